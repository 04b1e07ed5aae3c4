"""Reads sweeps from their folders. Changes nothing; reports and omits unreadable parts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from sglang_hydra.arguments.secrets import hidden_in, without_secrets
from sglang_hydra.fit.forecast_own import Point
from sglang_hydra.measure.sweep.files import read_json
from sglang_hydra.measure.sweep.settings_checks import check_packages
from sglang_hydra.measure.sweep.store import DONE, FAILED, NoSweep, Store
from sglang_hydra.planning.choosing.forecast import measured_error, measured_share, point_of
from sglang_hydra.planning.plan import NOT_IDENTITY, Plan
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict, JsonObject, json_beside, value_at
from sglang_hydra.text.user_settings import settings
from sglang_hydra.text.words import program

VALID = "valid"
_MOST_HINTED = 5

# Settings that change a load's duration and not its kind.
_NOT_COMPARED = frozenset({"seed", "num_prompts", "min_duration", "warmup", "repeats", "timeout", "client"})


@dataclass(frozen=True)
class Row:
    """One point of one sweep. ``state`` is valid, invalid, failed or open; ``reasons`` say why it is not valid.

    ``settings`` are all resolved arguments of its server and, as ``bench.*``, its load; ``gpus`` is its number of GPUs.
    """

    sweep: str
    point_id: str
    server_id: str
    workload_id: str
    repeat: int
    words: tuple[str, ...]
    state: str
    reasons: tuple[str, ...]
    settings: JsonObject = field(repr=False)
    measures: JsonObject = field(default_factory=dict, repr=False)
    record: JsonObject = field(default_factory=dict, repr=False)
    gpus: int | None = None

    @property
    def same(self) -> tuple[str, str]:
        """Returns the identity that all repeats of one point share."""
        return self.server_id, self.workload_id

    def measure(self, name: str) -> float | None:
        """Returns a measure by its name, ``ttft_ms.p50`` or ``output_throughput``; None without one."""
        value = value_at(self.measures, name)
        return float(value) if isinstance(value, (int, float)) else None


@dataclass(frozen=True)
class SweepResults:
    """The contents of a sweep's folder. ``words`` is the typed command line, ``shared`` the words common to all points.

    ``refused`` are the reasons for points that never started; ``problems`` are unreadable files; ``config_dirs`` and
    ``config_name`` are the other sources of its configs."""

    folder: Path
    name: str
    words: tuple[str, ...]
    shared: tuple[str, ...]
    rows: tuple[Row, ...]
    refused: tuple[JsonObject, ...] = ()
    environment: JsonObject = field(default_factory=dict)
    problems: tuple[Finding, ...] = ()
    config_dirs: tuple[str, ...] = ()
    config_name: str | None = None
    searches: tuple[JsonObject, ...] = ()

    @cached_property
    def valid(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.state == VALID)


def read_sweeps(folders: Sequence[Path]) -> list[SweepResults]:
    """Reads each folder once. Raises ConfigError for a folder without a sweep, or with one of another schema."""
    different = list({folder.resolve(): folder for folder in folders}.values())
    names = _short_names(different)
    return [_read(folder, name) for folder, name in zip(different, names, strict=True)]


def points_of(plan: Plan) -> list[Point]:
    """Returns the valid points of the sweeps in ``forecast.results``, or else in the user's settings. Raises
    ConfigError for a folder without a sweep."""
    found = []
    for folder in plan.nodes.forecast.results or [item.value for item in settings().results]:
        store = Store(Path(folder).expanduser())
        plans = _Plans(store)
        for row in _read(store.folder, folder).valid:
            workload = row.record.get("workload") or {}
            point = point_of(plans.of(row.server_id), workload, row.measures)
            found += [point] if point is not None else []
    return found


def varying(rows: Sequence[Row]) -> list[str]:
    """Returns the sorted settings in which rows differ: the columns of a table."""
    seen: dict[str, set[str]] = {}
    for row in rows:
        for key, value in row.settings.items():
            seen.setdefault(key, set()).add(repr(value))
    return sorted(key for key, values in seen.items() if len(values) > 1)


def _read(folder: Path, name: str) -> SweepResults:
    store = Store(folder)
    record = hidden_in(_sweep_record(store))
    plans = _Plans(store)
    rows: list[Row] = []
    problems: list[Finding] = []
    for point_id, point in record["points"].items():
        try:
            row = _row(store, name, point_id, point, plans.of(point["server_id"]))
            rows.append(replace(row, gpus=record.get("servers", {}).get(row.server_id, {}).get("gpus")))
        except ConfigError as failure:
            problems += failure.findings
        except _SHAPE_ERRORS as failure:
            problems.append(_unreadable(store.point(point_id) / "result.json", failure))
    measured = dict.fromkeys(row.server_id for row in rows if row.record.get("measures"))
    for file in (store.server(server_id) / "plan.json" for server_id in measured):
        if not file.exists():  # an unreadable one is already a problem
            message = f"{file} is not there: the points of this server are shown without its settings"
            problems.append(Finding("error", "STO002", message, hint="was the folder copied whole?"))
    return SweepResults(
        folder,
        name,
        tuple(record["words"]),
        tuple(record["shared"]),
        tuple(rows),
        tuple(record.get("refused", ())),
        _environment(plans.found, rows),
        (*plans.problems, *problems, *store.damaged.values()),
        tuple(record.get("config_dirs", ())),
        record.get("config_name"),
        tuple(hidden_in(store.search_answers())),
    )


# Errors of a record that has the right schema name and a wrong shape.
_SHAPE_ERRORS = (KeyError, TypeError, AttributeError, ValueError, IndexError)


def _sweep_record(store: Store) -> JsonDict:
    """Returns the planned sweep. Raises ConfigError; for a folder of sweeps its hint lists these."""
    try:
        return store.read_sweep()
    except NoSweep as failure:
        inside = sorted(file.parent for file in store.folder.glob("*/sweep.json"))[:_MOST_HINTED]
        if not inside:
            raise
        hint = f"{program()} report {' '.join(shlex.quote(str(folder)) for folder in inside)}"
        raise ConfigError(failure.findings[0].said(hint)) from None


def _unreadable(file: Path, failure: Exception) -> Finding:
    problem = f"it lacks {failure}" if isinstance(failure, KeyError) else str(failure)
    hint = "it was not written by this package: move the file away, and the same sweep command makes it again"
    return Finding("error", "STO002", f"{file} cannot be read: {problem}", hint=hint)


class _Plans:
    """The plans of a sweep's servers, each read once. An unreadable plan becomes a problem, and its points are shown
    without their server's settings."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.found: dict[str, Mapping[str, object]] = {}
        self.problems: list[Finding] = []

    def of(self, server_id: str) -> JsonObject:
        if server_id not in self.found:
            file = self._store.server(server_id) / "plan.json"
            try:
                plan = hidden_in(read_json(file) or {})
                _server_settings(plan)
            except (OSError, *_SHAPE_ERRORS) as failure:
                plan = {}
                self.problems.append(_unreadable(file, failure))
            self.found[server_id] = plan
        return self.found[server_id]


def _row(store: Store, name: str, point_id: str, point: JsonObject, plan: JsonObject) -> Row:
    state, record = store.state(point_id)
    record, shown, reasons = record or {}, state, list[str]()
    if state == DONE:
        shown, reasons = record["state"], list(map(without_secrets, record["reasons"]))
    elif state == FAILED:
        findings = (f"{finding['id']}: {finding['message']}" for finding in record.get("findings", ()))
        reasons = [str(record.get("kind", "unknown")), *map(without_secrets, findings)]
    workload, measures = record.get("workload") or {}, record.get("measures") or {}
    load = {name: value for name, value in workload.items() if name not in _NOT_COMPARED}
    return Row(
        name,
        point_id,
        point["server_id"],
        point["workload_id"],
        point["repeat"],
        tuple(point["words"]),
        shown,
        tuple(reasons),
        {**_server_settings(plan), **flat(load, "bench."), "latency_from": latency_from(record)},
        {**measures, **measured_share(plan, workload, measures), **measured_error(plan, workload, measures)},
        record,
    )


def latency_from(record: JsonObject) -> str:
    """Returns the start of a result's latencies: ``due`` or ``sent``."""
    return str((record.get("client") or {}).get("latency_from") or "sent")


def _server_settings(plan: JsonObject) -> JsonDict:
    if not plan:
        return {}
    ignored = NOT_IDENTITY | ({"random_seed"} if plan.get("seed_drawn") else set())
    settings = {name: value for name, value in plan["values"].items() if name not in ignored}
    engine, gpu = plan["engine"], plan["gpu"]
    return {**settings, "gpu": gpu["name"], "engine": f"{engine['name']} {engine['version']}"}


def _environment(plans: Mapping[str, JsonObject], rows: Sequence[Row]) -> JsonDict:
    """Returns the facts of all servers and points of a sweep: a sorted list of values for each fact."""
    found: dict[str, set[str]] = {}
    facts: list[tuple[str, object]] = []
    for plan in filter(None, plans.values()):
        engine, gpu = plan["engine"], plan["gpu"]
        memory = f", {gpu['memory_mib']:g} MiB" if gpu.get("memory_mib") else ""
        facts += [("engine", f"{engine['name']} {engine['version']}"), ("gpu", f"{gpu['name']}{memory}")]
        facts += [("model", plan["values"]["model_path"])]
        facts += {**plan.get("inherited", {}), **plan.get("environment", {})}.items()
    machines = (row.record.get("machine") or {} for row in rows)
    facts += [(name, value) for machine in machines for name, value in machine.items() if value is not None]
    for name, value in facts:
        found.setdefault(name, set()).add(str(value))
    return {name: sorted(values) for name, values in found.items()}


def _short_names(folders: Sequence[Path]) -> list[str]:
    """Returns the last part of each path, or the whole paths if two parts are equal."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else list(map(str, folders))


_INFERENCEX: Mapping[str, Mapping[str, str]] = json_beside(__file__)
"""The names of InferenceX and bench_serving for a point's settings, its measures, and the numbers of a spread."""


def results(*folders: str | Path) -> Any:
    """Returns a DataFrame with a row for each point of these sweeps: its ids, its state with the reasons, its identity
    (model, hw, gpus, framework, release, tp, conc, isl, osl, as InferenceX names them), the varying settings, and its
    measures as bench_serving and InferenceX name them (``output_throughput``, ``mean_ttft_ms``, ``p95_itl_ms``,
    ``tput_per_gpu``). Unknown values are None.

    Raises ConfigError for a folder without a sweep, MachineError without pandas."""
    check_packages("results", "pandas", extra="notebook")
    rows = [row for sweep in read_sweeps([Path(folder) for folder in folders]) for row in sweep.rows]
    keys = [key for key in varying(rows) if key not in _INFERENCEX["settings"].values()]
    varied = [{key: row.settings.get(key) for key in keys} for row in rows]
    cells = [ids_of(row) | _named(row) | own | _measured(row) for row, own in zip(rows, varied, strict=True)]
    return import_module("pandas").DataFrame(cells)


def _named(row: Row) -> dict[str, object]:
    found = {name: row.settings.get(key) for name, key in _INFERENCEX["settings"].items()}
    framework, _, release = str(found.pop("framework") or "").partition(" ")
    return {**found, "gpus": row.gpus, "framework": framework or None, "release": release or None}


def _measured(row: Row) -> JsonDict:
    measures, spreads = _INFERENCEX["measures"], _INFERENCEX["spreads"]
    named = {name: row.measures.get(key) for name, key in measures.items()}
    for name, key in spreads.items():
        values = row.measures.get(key) or {}
        named |= {f"{called}_{name}_ms": values.get(number) for called, number in _INFERENCEX["numbers"].items()}
    taken = {*measures.values(), *spreads.values()}
    return named | flat({name: value for name, value in row.measures.items() if name not in taken})


def ids_of(row: Row) -> dict[str, object]:
    """Returns the identity and state of a row as table cells."""
    own = {name: getattr(row, name) for name in ("sweep", "point_id", "server_id", "repeat", "state")}
    return {**own, "reasons": "; ".join(row.reasons), "words": " ".join(row.words)}


def flat(measures: Any, path: str = "") -> dict[str, object]:
    """Flattens nested measures: ``{"ttft_ms": {"p50": 3.0}}`` becomes ``{"ttft_ms.p50": 3.0}``."""
    found: dict[str, object] = {}
    for name, value in measures.items():
        found |= flat(value, f"{path}{name}.") if isinstance(value, dict) else {path + name: value}
    return found
