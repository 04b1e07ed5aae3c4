"""Runs cases of real SGLang installs through the sealed releases, and compares every field.

    python tools/conformance_releases.py FILE... [--models MODELS.json] [--emit OUT] [--no-kept]

A file holds one JSON object a line, plain or gzipped: ``{id, release, machine, argv, models, expected}``, where
``models`` names config.json contents of MODELS.json, or is a mapping of them, and ``expected`` is ``{ok, values}`` or
``{ok, error}``; a case without it is only asked. The wheels are fetched before: ``sglang-hydra release fetch VERSION``.

Exits 1 on any difference or unanswered question. ``--emit`` writes the answers in the form of ``expected``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that a bare checkout will do

from release_cases import MODELS, read_cases

from sglang_hydra.releases import fetching
from sglang_hydra.releases.case import Case
from sglang_hydra.releases.release import ask_release
from sglang_hydra.rules.answer import Answer
from sglang_hydra.text.errors import MachineError

MOST_SHOWN = 40


def differences(expected: Mapping[str, Any], answer: Answer) -> list[str]:
    """What differs, a line for each field; of a case whose verdict differs only that. An expected error may be cut
    off."""
    if answer.ok is None:
        return [str(answer.unanswered)]
    if expected["ok"] != answer.ok:
        return [f"it {'accepts' if answer.ok else f'refuses: {answer.error}'}, and the install did not"]
    if not answer.ok:
        is_same = same_text(str(expected.get("error") or ""), str(answer.error))
        return [] if is_same else [f"error: {answer.error!r}, the install's is {expected['error']!r}"]
    wanted = expected["values"]
    if "drawn_ids" in answer.assumed:  # a server draws another at each start
        wanted, found = without_ids(wanted), without_ids(answer.values)
    else:
        found = answer.values
    return [
        f"{name}: {found.get(name, '(no such field)')!r}, the install has {wanted.get(name, '(none)')!r}"
        for name in sorted({*wanted, *found})
        if not same(wanted.get(name, ...), found.get(name, ...))
    ]


def without_ids(value: Any) -> Any:
    """The value without the ids of LoRA adapters."""
    if isinstance(value, list):
        return [without_ids(item) for item in value]
    if isinstance(value, Mapping):
        return {name: without_ids(item) for name, item in value.items() if name != "lora_id"}
    return value


def same_text(wanted: str, text: str) -> bool:
    """Whether an error is the same up to blanks, where ``wanted`` ends, and the order in which a set is written."""
    wanted, text = " ".join(wanted.split()), " ".join(text.split())
    return text.startswith(wanted) or sorted(re.findall(r"\w+", wanted)) == sorted(re.findall(r"\w+", text))


def same(left: Any, right: Any) -> bool:
    """Equality that tells 1 from True and from 1.0, at any depth."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return bool(left == right)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="+", type=Path)
    parser.add_argument("--models", type=Path, default=MODELS)
    parser.add_argument("--emit", type=Path)
    parser.add_argument("--no-kept", action="store_true", help="ask the releases again, whatever the cache has")
    options = parser.parse_args(argv)
    fetching.allow(lambda line: print(line, file=sys.stderr))  # a file that no case has read before
    models = json.loads(options.models.read_text(encoding="utf-8"))
    cases = [case for file in options.file for case in read_cases(file)]
    emitted, counts, shown = [], Counter[str](), 0
    begun = time.monotonic()
    for case, answer in answered(cases, models, use_kept=not options.no_kept):
        found = differences(case["expected"], answer) if "expected" in case else []
        if answer.ok is None and not found:
            found = [str(answer.unanswered)]
        counts["unanswered" if answer.ok is None else "accepted" if answer.ok else "refused"] += 1
        counts["differing fields"] += len(found) if answer.ok is not None else 0
        for line in found:
            shown += 1
            if shown <= MOST_SHOWN:
                print(f"{case['id']}: {line[:400]}")
        emitted.append(record(case, answer))
    if options.emit:
        options.emit.write_text("".join(json.dumps(row, sort_keys=True) + "\n" for row in emitted), encoding="utf-8")
    words = [f"{counts[name]} {name}" for name in ("accepted", "refused", "unanswered", "differing fields")]
    print(f"{len(cases)} cases in {time.monotonic() - begun:.1f} s: {', '.join(words)}")
    return 1 if counts["unanswered"] or counts["differing fields"] else 0


def answered(
    cases: Sequence[dict[str, Any]], models: Mapping[str, Any], *, use_kept: bool
) -> Iterator[tuple[dict[str, Any], Answer]]:
    """Each case with its answer, by release and machine, so that a child serves many."""
    order = sorted(cases, key=lambda case: (case["release"], json.dumps(case["machine"], sort_keys=True)))
    for case in order:
        named = case["models"]
        contents = named if isinstance(named, Mapping) else {name: models[name] for name in named}
        asked = Case(tuple(case["argv"]), case["machine"], contents)
        try:
            yield case, ask_release(case["release"], [asked], use_kept=use_kept)[0]
        except MachineError as failure:
            yield case, Answer(None, unanswered=str(failure))


def record(case: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
    made: dict[str, Any] = {"ok": answer.ok}
    if answer.ok:
        made["values"] = dict(answer.values)
    else:
        made["error"] = answer.error if answer.ok is False else answer.unanswered
    return {**{name: case[name] for name in ("id", "release")}, "expected": made}


if __name__ == "__main__":
    sys.exit(main())
