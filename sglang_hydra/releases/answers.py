"""Keeps a release's earlier answers: one file each in the user's cache, under everything on which they depend."""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from pathlib import Path

from sglang_hydra.facts.tiny import default_cache
from sglang_hydra.releases.case import Case
from sglang_hydra.releases.records import Record
from sglang_hydra.rules.answer import Answer, answer_of
from sglang_hydra.text.file_text import open_plain
from sglang_hydra.text.private import make_private, mark, require_private
from sglang_hydra.text.whole_file import write_whole

FOLDER = "answers"
_MOST_IN_A_FOLDER = 8
"""Of 256 folders: about 2,000 answers of 25 kB."""
_MOST_BYTES = 1 << 22
_MOST_HELD = 64
_held: dict[str, Answer] = {}
"""The latest answers that this process read: a sweep plans its points more than once."""


def answer_key(fingerprint: str, case: Mapping[str, object]) -> str:
    """Returns the key of an answer: the release's wheels, the child's own code, and the case without its id."""
    asked = {name: value for name, value in case.items() if name != "id"}
    text = json.dumps([fingerprint, child_version(), asked], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def child_version() -> str:
    """Returns a hash of the child's own code and tables, because another child may answer differently."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).with_name("child").glob("*.*")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:32]


def kept_answer_to(record: Record, case: Case, *, why: bool = True) -> Answer | None:
    """Returns the answer to an earlier equal question from the user's cache, or None. Its reasons are required only
    with ``why``."""
    asked = case.to_json()
    questions = [asked, {**asked, "why": True}][why:]
    return next(filter(None, (_held_answer(answer_key(record.fingerprint, each)) for each in questions)), None)


def _held_answer(key: str) -> Answer | None:
    if key not in _held:
        kept = kept_answer(key)
        if kept is None:
            return None
        while len(_held) >= _MOST_HELD:
            _held.pop(next(iter(_held)), None)
        _held[key] = answer_of(kept)
    return _held.get(key)


def kept_answer(key: str) -> dict[str, object] | None:
    """Returns the answer under ``key``; None without one, or without the mark of the user's own key. Raises
    MachineError (REL015) for a cache that others can write."""
    place = _place(key)
    try:
        require_private(place.parent)
        with open_plain(place) as file:
            stated, _, content = file.read(_MOST_BYTES).partition(b"\n")
    except OSError:
        return None
    if not hmac.compare_digest(mark(f"answer {key}", content).hex().encode(), stated):
        return None
    answer = json.loads(content)
    return answer if isinstance(answer, dict) else None


def keep_answer(key: str, answer: Mapping[str, object]) -> None:
    """Keeps an answer and deletes the oldest ones of its folder. A cache that cannot be written keeps nothing; one that
    others can write raises MachineError (REL015)."""
    place, content = _place(key), json.dumps(answer)
    try:
        make_private(place.parent)
        write_whole(place, f"{mark(f'answer {key}', content.encode()).hex()}\n{content}", mode=0o600)
        files = sorted(os.scandir(place.parent), key=lambda entry: entry.stat().st_mtime)
        for entry in files[:-_MOST_IN_A_FOLDER]:
            os.unlink(entry.path)
    except OSError:
        return


def _place(key: str) -> Path:
    return default_cache() / FOLDER / key[:2] / key[2:]
