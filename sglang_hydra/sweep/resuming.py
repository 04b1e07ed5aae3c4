"""``resume`` and ``status`` of a sweep: from its folder alone, by whoever comes to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sglang_hydra.errors import ConfigError
from sglang_hydra.findings import Finding
from sglang_hydra.overrides import Request
from sglang_hydra.screen import Line, columns, text, write
from sglang_hydra.sweep.claims import Claims
from sglang_hydra.sweep.progress import holders, named
from sglang_hydra.sweep.store import DONE, FAILED, Store
from sglang_hydra.words import plural, program, short

if TYPE_CHECKING:
    from sglang_hydra.cli import Invocation

STATUS_SCHEMA = "sglang_hydra.sweep_status/1"
_SHOWN = 20
_FOR_ONCE = frozenset(("sweep.rerun", "sweep.dry_run", "sweep.folder"))
"""What was asked of one run and not of the sweep, and where its folder then was."""


def resume(invocation: Invocation) -> int:
    """Runs what a sweep's folder says is open: the command that made it, with further words on top.

    Raises ConfigError for a folder that holds no sweep.
    """
    from sglang_hydra.sweep import verbs

    if not invocation.requests:
        message = "resume takes the folder of a sweep"
        raise ConfigError(Finding("error", "STO005", message, hint="resume multirun/SWEEP sweep.rerun=[failed]"))
    folder, *more = invocation.requests
    _refuse_files(more)
    record = Store(Path(folder.text)).read_sweep()
    typed = {_key(request.text) for request in more}
    place = f"{folder.text}/sweep.json"
    requests = [Request(word, place) for word in record["words"] if _key(word) not in typed | _FOR_ONCE]
    requests.append(Request.typed("sweep.folder", folder.text, folder.place))
    again = dataclasses.replace(
        invocation,
        verb="bench",
        multirun=True,
        requests=[*requests, *more],
        config_dirs=invocation.config_dirs or list(record.get("config_dirs", ())),
        config_name=invocation.config_name or record.get("config_name"),
    )
    return verbs.bench(again)


def _refuse_files(more: Sequence[Request]) -> None:
    from sglang_hydra.documents import is_document

    file = next((short(request.text) for request in more if is_document(request.text)), None)
    if file is not None:
        message = f"{file}: resume goes on with what the sweep was begun with, and takes no file on top"
        hint = f"{program()} bench -m {file} ... begins a sweep from it"
        raise ConfigError(Finding("error", "SWP010", message, hint=hint))


def status(folder: str, *, as_json: bool = False) -> int:
    """Shows how a sweep stands; from any terminal that sees its folder."""
    record = status_record(Path(folder))
    if as_json:
        from sglang_hydra.actions import print_json

        print_json(record)
    else:
        write(_lines(record))
    return 0


class _Counted(NamedTuple):
    states: Mapping[str, int]
    best: dict[str, Any] | None
    failures: list[dict[str, Any]]
    open_on: Mapping[str, int]


def status_record(folder: Path) -> dict[str, Any]:
    """Counts, who runs what, the best valid point, every failure. Raises ConfigError for a folder without a sweep."""
    store = Store(folder)
    record = store.read_sweep()
    counted = _count(store, record)
    running = [
        {
            "server_id": server_id,
            "runner": holder.runner,
            "alive": holder.alive,
            "open": counted.open_on.get(server_id, 0),
        }
        for server_id, holder in holders(Claims(folder / "claims"), record["servers"])
    ]
    states = counted.states
    return {
        "schema": STATUS_SCHEMA,
        "folder": str(folder),
        "words": list(record["words"]),
        "total": len(record["points"]),
        "done": states["valid"] + states["invalid"],
        **states,
        "running": running,
        "best": counted.best,
        "failures": counted.failures,
    }


def _count(store: Store, record: Mapping[str, Any]) -> _Counted:
    states = dict.fromkeys(("valid", "invalid", FAILED, "open"), 0)
    best: dict[str, Any] | None = None
    failures = []
    open_on: dict[str, int] = {}
    for point_id, point in record["points"].items():
        state = store.state(point_id)
        if state.state == DONE and state.record is not None:
            states[state.record["state"]] += 1
            reached = state.record["measures"].get("output_throughput")
            if state.record["state"] == "valid" and reached and (not best or reached > best["output_throughput"]):
                best = {"point_id": point_id, "words": point["words"], "output_throughput": reached}
        elif state.state == FAILED and state.record is not None:
            states[FAILED] += 1
            said = "; ".join(finding["message"] for finding in state.record.get("findings", ()))
            failures.append(
                {"point_id": point_id, "words": point["words"], "kind": state.record["kind"], "message": said}
            )
        else:
            states["open"] += 1
            open_on[point["server_id"]] = open_on.get(point["server_id"], 0) + 1
    return _Counted(states, best, failures, open_on)


def _lines(record: Mapping[str, Any]) -> list[Line]:
    counts = f"{record['done']} of {plural(record['total'], 'point')} done"
    rest = ", ".join(f"{record[name]} {name}" for name in ("invalid", "failed", "open") if record[name])
    lines: list[Line] = [[text(record["folder"], "bold"), text(f": {counts}{f' ({rest})' if rest else ''}")]]
    for item in record["running"]:
        alive = {True: "runs", False: "was killed", None: "runs elsewhere, or was killed there"}[item["alive"]]
        said = f"  server {item['server_id']}: {item['runner']} {alive}, {plural(item['open'], 'point')} to go"
        lines.append([text(said, "yellow" if item["alive"] is False else "")])
    if record["best"]:
        best = record["best"]
        said = f"  best so far: {best['output_throughput']:.1f} output tokens/s, {named(best['words'])}"
        lines.append([text(said, "green")])
    rows = [
        [text(""), text(item["kind"], "red"), text(short(named(item["words"]), 60)), text(short(item["message"]))]
        for item in record["failures"][:_SHOWN]
    ]
    lines += columns(rows)
    if len(record["failures"]) > _SHOWN:
        lines.append([text(f"  and {len(record['failures']) - _SHOWN} more that failed", "dim")])
    if record["open"] and not any(item["alive"] for item in record["running"]):
        lines.append([text(f"  {program()} resume {record['folder']} takes what is open", "dim")])
    elif not record["open"] and record["done"]:
        lines.append([text(f"  {program()} report {record['folder']} shows and compares them", "dim")])
    if record["failed"] and not record["open"]:
        lines.append(
            [text(f"  {program()} resume {record['folder']} sweep.rerun=[failed] takes what failed again", "dim")]
        )
    return lines


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+~")
