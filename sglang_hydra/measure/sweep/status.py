"""The status of a sweep, read from its folder alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sglang_hydra.measure.sweep.claims import Claims
from sglang_hydra.measure.sweep.progress import counts, holders, named
from sglang_hydra.measure.sweep.store import DONE, FAILED, Store, answer_of
from sglang_hydra.text.screen import Line, columns, print_json, text, write
from sglang_hydra.text.words import plural, program, short

STATUS_SCHEMA = "sglang_hydra.sweep_status/1"
_SHOWN = 20


def status(folder: str, *, as_json: bool = False) -> int:
    """Shows how a sweep stands; from any terminal that sees its folder."""
    record = status_record(Path(folder).expanduser())
    if as_json:
        print_json(record)
    else:
        write(_lines(record))
    return 0


def status_record(folder: Path) -> dict[str, Any]:
    """Counts, who runs what, the best valid point that met its SLO, what searches found, every failure.

    Raises ConfigError for a folder without a sweep.
    """
    store = Store(folder)
    record = store.read_sweep()
    states = dict.fromkeys(("valid", "invalid", FAILED, "open"), 0)
    best: dict[str, Any] | None = None
    failures = []
    open_on: Counter[str] = Counter()
    for point_id, point in record["points"].items():
        state = store.standing(point_id)
        known = {"point_id": point_id, "words": point["words"]}
        states[state.outcome] += 1
        if state.state == DONE and state.record is not None:
            reached = state.record["measures"].get("output_throughput")
            if counts(state.record) and reached and (not best or reached > best["output_throughput"]):
                best = {**known, "output_throughput": reached}
        elif state.state == FAILED and state.record is not None:
            message = "; ".join(finding["message"] for finding in state.record.get("findings", ()))
            failures.append({**known, "kind": state.record["kind"], "message": message})
        else:
            open_on[point["server_id"]] += 1
    running = [
        {"server_id": server_id, "runner": holder.runner, "alive": holder.alive, "open": open_on[server_id]}
        for server_id, holder in holders(Claims(folder / "claims"), record["servers"])
    ]
    return {
        "schema": STATUS_SCHEMA,
        "folder": str(folder),
        "words": list(record["words"]),
        "total": len(record["points"]),
        "done": states["valid"] + states["invalid"],
        **states,
        "running": running,
        "best": best,
        "searches": store.search_answers(),
        "failures": failures,
        "damaged": [finding.message for finding in store.damaged.values()],
    }


def _lines(record: Mapping[str, Any]) -> list[Line]:
    done = f"{record['done']} of {plural(record['total'], 'point')} done"
    rest = ", ".join(f"{record[name]} {name}" for name in ("invalid", "failed", "open") if record[name])
    lines: list[Line] = [[text(record["folder"], "bold"), text(f": {done}{f' ({rest})' if rest else ''}")]]
    for item in record["running"]:
        alive = {True: "runs", False: "was killed", None: "runs elsewhere, or was killed there"}[item["alive"]]
        line = f"  server {item['server_id']}: {item['runner']} {alive}, {plural(item['open'], 'point')} to go"
        lines.append([text(line, "yellow" if item["alive"] is False else "")])
    if record["best"]:
        best = record["best"]
        line = f"  best so far: {best['output_throughput']:.1f} output tokens/s, {named(best['words'])}"
        lines.append([text(line, "green")])
    lines += [[text(f"  {answer_of(item)}", "green")] for item in record["searches"]]
    rows = [
        [text(""), text(item["kind"], "red"), text(short(named(item["words"]), 60)), text(short(item["message"]))]
        for item in record["failures"][:_SHOWN]
    ]
    lines += columns(rows)
    lines += [[text(f"  damaged: {message}", "yellow")] for message in record["damaged"]]
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
