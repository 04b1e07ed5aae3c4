"""Reads the releases' answers that ship with this package: for the published recipes and the catalog's plain plans.

Each release has one file, written by tools/releases/answer_files.py: lines of JSON, of which a plan reads only its own.
It is packed in parts, so that a plan unpacks few of them: the sizes of the others, the tables, then the answers by the
first digit of their keys. Shared content is written once: ``base`` has the most frequent value of each argument,
``pairs`` the others, ``changes`` and ``steps`` the reasons. SGLang's own sentences are not recorded: a refusal has the
kind of the error and its place."""

from __future__ import annotations

import functools
import gzip
import hashlib
import itertools
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from sglang_hydra.releases.case import Case
from sglang_hydra.releases.records import Record, newest_release
from sglang_hydra.rules.answer import Answer, Change, changes_of, step_of
from sglang_hydra.text.json_types import Json, JsonDict, JsonObject, by_identity

FOLDER = Path(__file__).with_name("recorded_answers")
_GZIP = 16 + zlib.MAX_WBITS
_CHUNK = 1 << 14
RESOLVED = FOLDER / "resolved_fields.json"
_NUMBERS = ("port", "stream_interval", "decode_log_interval", "random_seed")
_KINDS: Mapping[str, type] = {**dict.fromkeys(_NUMBERS, int), "host": str, "enable_metrics": bool}
ALONE = {f"--{name.replace('_', '-')}": (name, kind) for name, kind in _KINDS.items()}
"""Flags of the newest release that change only their own value, and refuse nothing: its answer without them holds. A
test asks its wheel."""


def key_of(case: Case) -> str:
    """Returns the key of a recorded answer: every fact that the release is given."""
    record = case.to_json()
    models = ", ".join(f"{json.dumps(path)}: {_written(model)}" for path, model in sorted(record.pop("models").items()))
    text = f'{_in_order(record)[:-1]}, "models": {{{models}}}}}'  # the last of the keys
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _written(model: JsonObject) -> str:
    return _in_order(model) if "files" in model else _config_in_order(model)


_in_order = functools.partial(json.dumps, sort_keys=True)
_config_in_order = by_identity(_in_order)


def recorded_answer(record: Record, case: Case, why: bool = True) -> Answer | None:
    """Returns the answer to a case, with changes if ``why``; None if none is recorded for the record's wheels."""
    content = content_of(record.version)
    if content is None or content.head["fingerprint"] != record.fingerprint:
        return None
    row: Json = content.answer(key_of(case))
    typed: JsonDict = {}
    if row is None and record.version == newest_release():
        words, typed = _without_alone(case.argv)
        row = content.answer(key_of(case._replace(argv=words))) if typed else None
    if row is None:
        return None
    if "error" in row:
        check = None if row["check"] is None else step_of(content.item("steps", row["check"]))
        return Answer(False, stage=row["stage"], error=row["error"], check=check)
    values = {**content.head["base"], **dict(content.item("pairs", at) for at in row["values"])}
    for name in row["absent"]:
        values.pop(name, None)
    return Answer(
        True,
        values=values | typed,
        environment=row["environment"],
        assumed=row["assumed"],
        changes=content.changes(row["changes"]) if why else (),
    )


def _without_alone(argv: tuple[str, ...]) -> tuple[tuple[str, ...], JsonDict]:
    """Removes the words of ``ALONE`` and returns the others with the values of the removed ones."""
    kept, typed, rest = [], {}, list(argv)
    while rest:
        name, kind = ALONE.get(rest[0], (None, str))
        if name is None:
            kept.append(rest.pop(0))
        else:
            rest.pop(0)
            typed[name] = True if kind is bool else kind(rest.pop(0))
    return tuple(kept), typed


def recorded_releases() -> tuple[str, ...]:
    """Returns the releases with shipped answers."""
    return tuple(sorted(file.name.removesuffix(".json.gz") for file in FOLDER.glob("*.json.gz")))


def always_same(version: str) -> JsonDict:
    """Returns the arguments to which every recorded answer of a release gives the same value; none for a release
    without answers for every model."""
    content = content_of(version)
    if content is None or version not in recorded_releases():
        return {}
    return {name: value for name, value in content.head["base"].items() if name not in content.head["varying"]}


@functools.lru_cache(maxsize=1)
def resolved_fields() -> frozenset[str]:
    """Returns the arguments that the code of some release sets in any recorded answer."""
    return frozenset(json.loads(RESOLVED.read_text(encoding="utf-8")))


class _Content:
    """A file. ``head``, the first line of its tables, has the first line and the length of each. The other parts are
    answers, each after its key. Lines that were read are kept, because many answers share them."""

    def __init__(self, packed: bytes) -> None:
        sizes = zlib.decompressobj(_GZIP)
        of_tables, *of_answers = json.loads(sizes.decompress(packed))
        begin = len(packed) - len(sizes.unused_data)
        ends = list(itertools.accumulate(of_answers, initial=begin + of_tables))
        self.lines = [b""]
        unpack = zlib.decompressobj(_GZIP)
        for at in range(begin, ends[0], _CHUNK):  # all at once they would lie twice in memory
            first, *lines = unpack.decompress(packed[at : min(at + _CHUNK, ends[0])]).split(b"\n")
            self.lines[-1] += first
            self.lines += lines
        self.head: JsonObject = json.loads(self.lines[0])
        self._packed = [packed[start:end] for start, end in itertools.pairwise(ends)]
        self._parts: dict[int, Mapping[str, str]] = {}
        self._items: dict[int, Json] = {}
        self._changes: dict[int, Change] = {}

    def part(self, at: int) -> Mapping[str, str]:
        """Returns the answers with the same first digit, by their keys."""
        if at not in self._parts:
            lines = gzip.decompress(self._packed[at]).decode().strip().split("\n")
            self._parts[at] = dict(line.split(" ", 1) for line in lines if line)
        return self._parts[at]

    def item(self, table: str, at: int) -> Json:
        line = self.head[table][0] + at
        if line not in self._items:
            self._items[line] = json.loads(self.lines[line])
        return self._items[line]

    def changes(self, numbers: Sequence[int]) -> tuple[Change, ...]:
        unread = [at for at in numbers if at not in self._changes]
        self._changes |= zip(unread, changes_of([self._change(at) for at in unread]), strict=True)
        return tuple(map(self._changes.__getitem__, numbers))

    def _change(self, at: int) -> JsonObject:
        field, before, after, step = self.item("changes", at)
        where = {} if step is None else self.item("steps", step)
        return {"field": field, "before": before, "after": after, **where}

    def answer(self, key: str) -> Json:
        row = self.part(int(key[0], 16)).get(key)
        return None if row is None else json.loads(row)


@functools.lru_cache(maxsize=8)
def content_of(version: str) -> _Content | None:
    file = file_of(version)
    return _Content(file.read_bytes()) if file.is_file() else None


def file_of(version: str) -> Path:
    """Returns the file of a release."""
    return FOLDER / f"{version}.json.gz"
