"""Gives the results of sweeps as a pandas DataFrame, for notebooks."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from sglang_hydra.measure.report.reading import Row, read_sweeps, varying
from sglang_hydra.measure.sweep.required_packages import check_packages


def results(*folders: str | Path) -> Any:
    """A DataFrame with a row for each point of these sweeps: its ids, its state with the reasons, the settings that
    vary, and every measure by its name (``ttft_ms.p50``, ``output_throughput``; units as in ``report``).

    Raises ConfigError for a folder that holds no sweep, MachineError where pandas is missing.
    """
    check_packages("results", "pandas", extra="notebook")
    rows = [row for sweep in read_sweeps([Path(folder) for folder in folders]) for row in sweep.rows]
    keys = varying(rows)
    records = [{**ids_of(row), **{key: row.settings.get(key) for key in keys}, **flat(row.measures)} for row in rows]
    return import_module("pandas").DataFrame(records)


def ids_of(row: Row) -> dict[str, Any]:
    """Which point a row is and how it stands, in the cells of a table."""
    names = ("sweep", "point_id", "server_id", "repeat", "state")
    own = {name: getattr(row, name) for name in names}
    return {**own, "reasons": "; ".join(row.reasons), "words": " ".join(row.words)}


def flat(measures: Any, path: str = "") -> dict[str, Any]:
    """``{"ttft_ms.p50": 3.0}`` of ``{"ttft_ms": {"p50": 3.0}}``."""
    found: dict[str, Any] = {}
    for name, value in measures.items():
        found |= flat(value, f"{path}{name}.") if isinstance(value, dict) else {path + name: value}
    return found
