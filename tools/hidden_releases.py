"""Hides each recorded release from the tables in turn, adopts it from its wheel, and compares what it then answers.

    python tools/hidden_releases.py [VERSION...] [--every 1]

A copy of the package that knows the releases before it, and no later one, pins the wheel with the real parts of the
last of them and adopts it as ``release adopt`` does. Public cases are read by the table that was made and asked of the
release; what the whole package reads and answers is what should come out. Without VERSION all but the oldest are
hidden; their wheels are fetched before.

Exits 1 where a release answers less than 95 % equally, or answers otherwise without saying what it lacks.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ENOUGH = 0.95
_TABLES = ("arguments/tables/table.json", "releases/releases.json")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", nargs="*")
    parser.add_argument("--every", type=int, default=1, help="one case in so many")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.inside:
        print(json.dumps(made(json.loads(options.inside.read_text(encoding="utf-8")))))
        return 0
    known = [*json.loads((ROOT / "sglang_hydra" / _TABLES[1]).read_text(encoding="utf-8"))["releases"]]
    return max(
        [hidden(version, known[: known.index(version)], options.every) for version in options.version or known[1:]]
    )


def hidden(version: str, before: Sequence[str], every: int) -> int:
    """Prints what a release answers that is known from its wheel alone; 1 where that is not enough."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(
            ROOT / "sglang_hydra", Path(folder, "sglang_hydra"), ignore=shutil.ignore_patterns("__pycache__")
        )
        record = _hide(Path(folder, "sglang_hydra"), version, before)
        order = Path(folder, "order.json")
        wanted = _run(ROOT, order, {"version": version, "every": every}, folder)
        found = _run(Path(folder), order, {"version": version, "every": every, "record": record}, folder)
    pairs = list(zip(wanted["cases"], found["cases"], strict=True))
    other = [(one, two) for one, two in pairs if one != two]
    lacking = [two for _, two in other if "unanswered" in two["answer"] or "refused" in two["read"]]
    table, mine = wanted["table"], found["table"]
    same = sum(table[name] == mine.get(name) for name in table)
    said = ", ".join(f"{len(names)} {title}" for title, names in found["said"].items() if names)
    print(
        f"{version} from {before[-1]}: {len(pairs) - len(other)} of {len(pairs)} cases equal, {len(lacking)} say what "
        f"is lacking, {len(other) - len(lacking)} other; {same} of {len(table)} arguments as recorded, "
        f"{len(mine.keys() - table.keys())} more; {said or 'nothing new'}"
    )
    for one, two in other[:5]:
        print(f"  {differing(one, two)}")
    return int(len(other) > len(pairs) * (1 - ENOUGH) or len(other) > len(lacking))


def _hide(package: Path, version: str, before: Sequence[str]) -> dict[str, Any]:
    """Takes a release and all later ones from the tables of a copied package; the record that its pin has."""
    table, records = (json.loads((package / name).read_text(encoding="utf-8")) for name in _TABLES)
    rows = [row["version"] for row in table["releases"]]
    table["releases"] = table["releases"][: rows.index(version)]
    record: dict[str, Any] = {
        **records["releases"][version],
        "real_parts": records["releases"][before[-1]]["real_parts"],
    }
    libraries = records["libraries"]
    records["releases"] = {known: records["releases"][known] for known in before}
    records["model_types"] = {known: names for known, names in records["model_types"].items() if known in before}
    for name, content in zip(_TABLES, (table, records), strict=True):
        (package / name).write_text(json.dumps(content), encoding="utf-8")
    for file in package.glob("releases/re*/*.json.gz"):
        if file.name.removesuffix(".json.gz") not in before:
            file.unlink()
    return {"schema": records["schema"], "libraries": libraries, "releases": {version: record}}


def _run(package: Path, order: Path, asked: Mapping[str, Any], settings: str) -> dict[str, Any]:
    """What the package in a folder makes of the cases, in a process of its own with no settings."""
    order.write_text(json.dumps(asked), encoding="utf-8")
    own = {"SGLANG_HYDRA_SETTINGS": str(Path(settings, "settings", "settings.yaml"))}
    done = subprocess.run(
        [sys.executable, __file__, "--inside", str(order)],
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, **own, "PYTHONPATH": str(package), "SGLANG_HYDRA_OFFLINE": "1"},
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def made(order: Mapping[str, Any]) -> dict[str, Any]:
    """What this package reads and answers of the cases of a release; with a ``record`` it pins and adopts it before."""
    from release_cases import CASES, MODELS, read_cases

    from sglang_hydra.arguments.reading import parse_argv
    from sglang_hydra.arguments.tables.table import known_versions, raw_tables
    from sglang_hydra.releases.adopting import adopt, keep_table, said_of
    from sglang_hydra.releases.case import Case
    from sglang_hydra.releases.process import end_children
    from sglang_hydra.releases.records import pinned_file, record_of
    from sglang_hydra.releases.release import ask_release
    from sglang_hydra.releases.trusted import pin
    from sglang_hydra.text.errors import ConfigError

    version, said = order["version"], {}
    if "record" in order:
        pins = pinned_file()
        assert version not in known_versions()
        assert pins is not None
        pins.parent.mkdir(parents=True, exist_ok=True)
        pins.write_text(json.dumps(order["record"]), encoding="utf-8")
        pins.chmod(0o600)
        record = record_of(version)
        assert record is not None
        adopted, row = adopt(replace(record))
        pin(adopted)
        keep_table(version, row)
        said = dict(said_of(row))
        end_children()
    models = json.loads(MODELS.read_text(encoding="utf-8"))
    rows = list(read_cases(CASES))
    rows = [row for row in rows if row["release"] == version] or [row for row in rows if row["release"] == "0.5.23"]
    cases = []
    for row in sorted(rows[:: order["every"]], key=lambda row: json.dumps(row["machine"], sort_keys=True)):
        try:
            read: dict[str, Any] = {"values": parse_argv(row["argv"], version)}
        except ConfigError as failure:
            read = {"refused": failure.findings[0].message}
        case = Case(tuple(row["argv"]), row["machine"], {name: models[name] for name in row["models"]})
        (answer,) = ask_release(version, [case], use_kept=False)
        found = {"values": dict(answer.values), "error": answer.error}
        cases.append({"read": read, "answer": found if answer.ok is not None else {"unanswered": answer.unanswered}})
    end_children()
    return {"cases": cases, "said": said, "table": raw_tables(version)[0]}


def differing(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """What is other in one case, in words."""
    for key in ("read", "answer"):
        one, two = wanted[key], found[key]
        if one != two and "values" in one and "values" in two:
            names = [n for n in {**one["values"], **two["values"]} if one["values"].get(n) != two["values"].get(n)]
            return f"{key}: {[(n, one['values'].get(n), two['values'].get(n)) for n in names[:3]]}"[:400]
        if one != two:
            return f"{key}: {two}, recorded {one}"[:400]
    return ""


if __name__ == "__main__":
    sys.exit(main())
