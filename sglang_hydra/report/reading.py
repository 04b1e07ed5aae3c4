"""Sweeps as their folders hold them. Nothing is changed there; what cannot be read is said and left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sglang_hydra.errors import ConfigError
from sglang_hydra.findings import Finding
from sglang_hydra.plans import NOT_IDENTITY
from sglang_hydra.sweep.files import read_json
from sglang_hydra.sweep.store import DONE, FAILED, Store

VALID = "valid"

# Settings of a load that say how long it ran and not what it was.
_NOT_COMPARED = frozenset({"seed", "num_prompts", "min_duration", "warmup", "repeats", "timeout"})


@dataclass(frozen=True)
class Row:
    """One point of one sweep. ``state`` is valid, invalid, failed or open; ``reasons`` say why it is not valid.

    ``settings`` are all resolved arguments of its server and, as ``bench.*``, its load.
    """

    sweep: str
    point_id: str
    server_id: str
    workload_id: str
    repeat: int
    words: tuple[str, ...]
    state: str
    reasons: tuple[str, ...]
    settings: Mapping[str, Any] = field(repr=False)
    measures: Mapping[str, Any] = field(default_factory=dict, repr=False)
    record: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def same(self) -> tuple[str, str]:
        """Equal for the repeats of one point."""
        return self.server_id, self.workload_id

    def measure(self, name: str) -> float | None:
        """A measure by its name, ``ttft_ms.p50`` or ``output_throughput``; None where there is none."""
        value: Any = self.measures
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return float(value) if isinstance(value, (int, float)) else None


@dataclass(frozen=True)
class SweepResults:
    """One sweep's folder, read. ``words`` is what was typed, ``shared`` what all points have of it.

    ``refused`` are the reasons for points that were never started; ``problems`` are files that could not be read.
    """

    folder: Path
    name: str
    words: tuple[str, ...]
    shared: tuple[str, ...]
    rows: tuple[Row, ...]
    refused: tuple[Mapping[str, Any], ...] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[Finding, ...] = ()

    @cached_property
    def valid(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.state == VALID)


def read_sweeps(folders: Sequence[Path]) -> list[SweepResults]:
    """Raises ConfigError for a folder that holds no sweep, or one of another schema."""
    names = _short_names(folders)
    return [_read(folder, name) for folder, name in zip(folders, names, strict=True)]


def varying(rows: Sequence[Row]) -> list[str]:
    """The settings in which rows differ, sorted: what a table of them has to show."""
    seen: dict[str, set[str]] = {}
    for row in rows:
        for key, value in row.settings.items():
            seen.setdefault(key, set()).add(repr(value))
    return sorted(key for key, values in seen.items() if len(values) > 1)


def _read(folder: Path, name: str) -> SweepResults:
    store = Store(folder)
    record = store.read_sweep()
    plans: dict[str, Mapping[str, Any]] = {}
    problems: list[Finding] = []
    rows = []
    for point_id, point in record["points"].items():
        try:
            plan = plans.setdefault(point["server_id"], _plan(store, point["server_id"]))
            rows.append(_row(store, name, point_id, point, plan))
        except ConfigError as failure:
            problems += failure.findings
    return SweepResults(
        folder,
        name,
        tuple(record["words"]),
        tuple(record["shared"]),
        tuple(rows),
        tuple(record.get("refused", ())),
        _environment(plans),
        tuple(problems),
    )


def _row(store: Store, name: str, point_id: str, point: Mapping[str, Any], plan: Mapping[str, Any]) -> Row:
    state, record = store.state(point_id)
    record = record or {}
    if state == DONE:
        shown, reasons = record["state"], tuple(record["reasons"])
    elif state == FAILED:
        shown, reasons = state, tuple(_said(record))
    else:
        shown, reasons = state, ()
    workload = record.get("workload") or {}
    return Row(
        name,
        point_id,
        point["server_id"],
        point["workload_id"],
        point["repeat"],
        tuple(point["words"]),
        shown,
        reasons,
        {**_server_settings(plan), **_load_settings(workload)},
        record.get("measures") or {},
        record,
    )


def _said(failure: Mapping[str, Any]) -> Iterator[str]:
    yield str(failure.get("kind", "unknown"))
    for finding in failure.get("findings", ()):
        yield f"{finding['id']}: {finding['message']}"


def _plan(store: Store, server_id: str) -> Mapping[str, Any]:
    file = store.server(server_id) / "plan.json"
    try:
        return read_json(file) or {}
    except (OSError, ValueError) as failure:
        raise ConfigError(Finding("error", "STO002", f"{file} cannot be read: {failure}")) from None


def _server_settings(plan: Mapping[str, Any]) -> dict[str, Any]:
    if not plan:
        return {}
    ignored = NOT_IDENTITY | ({"random_seed"} if plan.get("seed_drawn") else set())
    settings = {name: value for name, value in plan["values"].items() if name not in ignored}
    engine, gpu = plan["engine"], plan["gpu"]
    return {**settings, "gpu": gpu["name"], "engine": f"{engine['name']} {engine['version']}"}


def _load_settings(workload: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in workload.items():
        if name in _NOT_COMPARED:
            continue
        if isinstance(value, Mapping):
            found.update({f"bench.{name}.{inner}": item for inner, item in value.items()})
        else:
            found[f"bench.{name}"] = value
    return found


def _environment(plans: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What all servers of a sweep ran on: sets of values, one for each fact."""
    found: dict[str, set[str]] = {}
    for plan in plans.values():
        if not plan:
            continue
        engine, gpu = plan["engine"], plan["gpu"]
        found.setdefault("engine", set()).add(f"{engine['name']} {engine['version']}")
        memory = f", {gpu['memory_mib']:g} MiB" if gpu.get("memory_mib") else ""
        found.setdefault("gpu", set()).add(f"{gpu['name']}{memory}")
        found.setdefault("model", set()).add(str(plan["values"]["model_path"]))
        for name, value in {**plan.get("inherited", {}), **plan.get("environment", {})}.items():
            found.setdefault(name, set()).add(str(value))
    return {name: sorted(values) for name, values in found.items()}


def _short_names(folders: Sequence[Path]) -> list[str]:
    """The last part of each path, with more of it where two are called the same."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) == len(names):
        return names
    return [str(folder) for folder in folders]
