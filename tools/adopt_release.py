"""Adopts a release of SGLang: reads it, runs it, records it, and lists what is new and has to be declared.

    python tools/adopt_release.py 0.5.24                  # fetches it and writes the table, releases.json, the answers
    python tools/adopt_release.py --wheels FOLDER 0.5.24  # keeps what is downloaded there, and takes what is there
    python tools/adopt_release.py --check 0.5.23          # writes nothing; the wheels must be here (release fetch)
    python tools/adopt_release.py --against VENV 0.5.24   # compares random lines with a real install as well
    python tools/adopt_release.py --newest                # the newest one of the registry

In this order: the table of releases (read_releases.py), the real parts and the questions that nothing answers
(record_release.py), what changed since the release before, random lines (random_release_cases.py), recorded answers
(record_answers.py, for the releases that have a file of them and for the newest), where it refuses and what it asks
first (record_refusals.py, for the same).

A question that nothing answers, and an argument that is gone without a successor, has to be declared: with a fact
(sglang_hydra/releases/child/questions.py), with a row of
sglang_hydra/arguments/tables/successors.json, or, where it stays open, with a reason in tools/releases/declared.json.

Exit code: 0 adopted, 1 something new is not declared ("2 new questions"), 2 the release could not be had.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that a bare checkout will do

import read_releases  # noqa: E402
import record_release  # noqa: E402

from sglang_hydra.arguments.tables.successors import successor  # noqa: E402
from sglang_hydra.arguments.tables.table import known_versions, release, rows  # noqa: E402
from sglang_hydra.releases.recorded import recorded_releases  # noqa: E402
from sglang_hydra.releases.records import RECORDS, record_of  # noqa: E402
from sglang_hydra.releases.refusals import recorded_versions  # noqa: E402

DECLARED = Path(__file__).with_name("releases") / "declared.json"
_PLACE = re.compile(r" \([\w/.-]+:\d+\)$")
_SHOWN = 8


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", nargs="?")
    parser.add_argument("--newest", action="store_true", help="the newest release of the registry")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="where wheels are kept; otherwise they are not")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--against", type=Path, metavar="VENV", help="a real install of the release")
    options = parser.parse_args(argv)
    try:
        version = read_releases.released(read_releases.FIRST)[-1] if options.newest else options.version
    except read_releases.WheelError as failure:
        print(f"adopt_release: {failure}", file=sys.stderr)
        return 2
    if version is None:
        parser.error("which release? 0.5.24, or --newest")
    with tempfile.TemporaryDirectory() as scratch:
        questions = _recorded(version, options.wheels or Path(scratch), check=options.check)
    if questions is None:
        return 2
    for title, names in changes_of(version):
        listed = ", ".join(names[:_SHOWN]) + (f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        print(f"{version}: {len(names)} {title}{': ' if names else ''}{listed}")
    new = [*questions_of(questions, version), *undeclared_successors(version)]
    if options.against is not None and _differs(version, options.against):
        new.append("random lines differ from the real install")
    if not options.check and (version in recorded_releases() or version == known_versions()[-1]):
        _run("record_answers.py", version)
    if not options.check and (version in recorded_versions() or version == known_versions()[-1]):
        _run("record_refusals.py", *(("--wheels", str(options.wheels)) if options.wheels else ()), version)
    if not new:
        print(f"{version}: adopted; nothing new to declare")
        return 0
    count = len(new)
    print(f"{version}: {count} new question{'s' if count > 1 else ''}, to be declared", *new, sep="\n  ")
    return 1


def _recorded(version: str, folder: Path, *, check: bool) -> list[str] | None:
    """Writes the table and the record. Returns the questions that nothing answered, None where it cannot be had."""
    if not check:
        folder.mkdir(parents=True, exist_ok=True)
        if version not in known_versions() and read_releases.main(["--wheels", str(folder)]):
            return None
        for cached in (rows, release):
            cached.cache_clear()
        content = json.loads(RECORDS.read_text(encoding="utf-8"))
        try:
            record_release.record(version, folder, content)
        except (record_release.NotHad, record_release.MachineError, record_release.ChildFailed) as failure:
            print(f"adopt_release: {version}: {failure}", file=sys.stderr)
            return None
        RECORDS.write_text(record_release.written(content), encoding="utf-8")
        row = content["releases"][version]
        made = record_release.as_record(version, row, content["libraries"])
    else:
        found = record_of(version)
        if found is None or version not in known_versions():
            print(f"adopt_release: {version} is not recorded: without --check it is fetched", file=sys.stderr)
            return None
        made = found
    try:
        return sorted(set(record_release.unanswered_texts(made, is_last=True)))
    except (record_release.MachineError, record_release.ChildFailed, AssertionError) as failure:
        print(f"adopt_release: {version}: its wheels are not here: {failure}", file=sys.stderr)
        return None


def questions_of(found: Sequence[str], version: str) -> Iterator[str]:
    """The questions that are not declared, each once, without the line that asked."""
    declared = declarations().get("questions", {})
    for text in dict.fromkeys(_PLACE.sub("", text) for text in found):
        if not any(re.fullmatch(pattern, text) for pattern in declared):
            yield f"{version} asks: {text}"


def declarations() -> Mapping[str, Mapping[str, str]]:
    """``questions`` and ``arguments`` that stay open, each with its reason."""
    content: dict[str, dict[str, str]] = json.loads(DECLARED.read_text(encoding="utf-8"))
    return content


def undeclared_successors(version: str) -> Iterator[str]:
    """Arguments of the release before that are gone without a successor, an advice, or a declaration."""
    known = known_versions()
    before = known[max(known.index(version) - 1, 0)]
    declared = declarations().get("arguments", {})
    for name in release(before).arguments.keys() - release(version).arguments.keys():
        found = successor(name, version)
        if found.name is None and not found.advice and name not in declared and name[0] != "_":
            yield f"{name} is gone: what took its place? (successors.json)"


def changes_of(version: str) -> Iterator[tuple[str, list[str]]]:
    """What the release changed, by a title: names, sorted."""
    row: Mapping[str, Any] = next(row for row in rows() if row["version"] == version)
    arguments, old = row.get("arguments", {}), row.get("old_flags", {})
    changed = arguments.get("changed", {})
    classes = json.loads((read_releases.TABLE.with_name("architectures.json")).read_text(encoding="utf-8"))
    yield "new arguments", sorted(arguments.get("added", {}))
    yield "removed arguments", sorted(arguments.get("removed", ()))
    yield "arguments with other choices", sorted(name for name, spec in changed.items() if "choices" in spec)
    yield "defaults that moved", sorted(name for name, spec in changed.items() if "default" in spec)
    yield "newly deprecated flags", sorted(old.get("added", {}))
    yield "old flags that are no longer accepted", sorted(old.get("removed", ()))
    yield "new model classes", sorted(classes.get(version, {}).get("added", ()))
    yield "new variables", sorted(row.get("variables", {}).get("added", ()))


def _differs(version: str, environment: Path) -> bool:
    """Whether random lines come out otherwise than in a real install."""
    python = environment / "bin" / "python" if environment.is_dir() else environment
    with tempfile.TemporaryDirectory() as scratch:
        cases = str(Path(scratch) / "cases.jsonl")
        drawn = _run("random_release_cases.py", version, "--python", str(python), "--out", cases)
        return bool(drawn or _run("conformance_releases.py", cases))


def _run(tool: str, *words: str) -> int:
    command = [sys.executable, str(Path(__file__).with_name(tool)), *words]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
