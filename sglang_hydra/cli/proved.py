"""Proves a corrected command before it is shown: it keeps what was typed, and starts no more than was asked for.

``cli.reading.refused`` proves the rest: that nothing in it is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.compose.grammar import unquoted
from sglang_hydra.compose.schema import NO_CHOICE, NODES
from sglang_hydra.compose.unknown_words import flagged
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.flags import BY_NAME, HYDRA_FLAGS, OTHER_VERBS, VERBS
from sglang_hydra.text.words import nearest

STARTING = ("serve", "bench", "resume")
_LOOKING = ("plan", "check")
_ON = ("", "true", "1", "yes", "on")
_KEYS = frozenset((*EVERY, *NODES, *NO_CHOICE))


class _Part(NamedTuple):
    """A key and its value in a line, or another word (``value`` is None); ``places`` are those of its words."""

    name: str
    value: str | None
    places: range


def keeps(typed: Sequence[str], made: Sequence[str], about: Iterable[Finding], changing: Iterable[str] = ()) -> bool:
    """Returns whether ``made`` has every word and value of ``typed``, and starts and stops nothing more. The words and
    the keys that a finding is ``about`` may change, and the keys in ``changing``."""
    given = Counter(key for key, _ in {(part.name, part.value) for part in _parts(made) if part.value is not None})
    merged = {key for key, count in given.items() if count > 1} - {part.name for part in _parts(typed)}
    is_whole = not _lost(typed, made, about, changing) and (not merged or made[0] == "diff")  # it has two sides
    return is_whole and _action(made) in ("", *_actions_asked_for(typed))


def _lost(typed: Sequence[str], made: Sequence[str], about: Iterable[Finding], changing: Iterable[str]) -> list[str]:
    """Returns the typed words that ``made`` leaves out, and those whose value it changes."""
    wrong, keys = set[int](), set(changing)
    for finding in about:
        places = set(_places(typed, finding.typed))
        wrong |= places
        if not places:
            keys.update(finding.fields, (part.name for part in _parts(finding.typed)))
    parts = [part for part in _parts(typed) if wrong.isdisjoint(part.places) and part.name not in keys]
    kept = {part.name: part.value for part in _parts(made) if part.value is not None}
    last = {part.name: part for part in parts if part.value not in (None, "null")}
    changed = [part for part in last.values() if kept.get(part.name) != part.value]
    # Of two words for one key the later one holds; that one was wrong.
    is_later = max(wrong, default=-1)
    changed = [part for part in changed if part.places.stop > is_later or typed[part.places[0]] not in made]
    words = Counter(typed[at] for part in parts if part.value is None for at in part.places)
    return [*(part.name for part in changed), *(words - Counter(made))]


def _parts(line: Sequence[str]) -> Iterator[_Part]:
    """Yields the parts of a line without its verb. SGLang's own flags behind a bare ``--`` set their arguments."""
    cut = line.index("--") if "--" in line else len(line)
    at = int(bool(line) and line[0] in VERBS)
    while at < cut:
        name, equals, value = line[at].partition("=")
        key, flag, width = name.lstrip("+"), BY_NAME.get(name), 1
        if flag is not None and flag.value and not equals and at + 1 < cut:
            value, width = line[at + 1], 2
        if flag is not None:
            yield _Part(flag.names[0], value, range(at, at + width))
        elif equals and key.partition(".")[0] in _KEYS:
            yield _Part(key, _plain(value), range(at, at + 1))
        elif line[at]:
            yield _Part(key, None, range(at, at + 1))
        at += width
    at = cut + 1
    while at < len(line):
        name, equals, value = line[at].partition("=")
        end = next((end for end in range(at + 1, len(line)) if equals or line[end].startswith("--")), len(line))
        field = flagged(name)
        given = [value] if equals else line[at + 1 : end]
        yield _Part(field.name if field else name, _plain(",".join(given)) if field else None, range(at, end))
        at = end


def _places(line: Sequence[str], words: Sequence[str]) -> Iterator[int]:
    """Yields the places where these words follow each other in a line."""
    for at in range(len(line) - len(words) + 1) if words else ():
        if list(line[at : at + len(words)]) == list(words):
            yield from range(at, at + len(words))


def _plain(value: str) -> str:
    """Returns a value without its quotes and brackets, which may be written in several ways."""
    return unquoted(value).strip("[]").replace("'", "").replace('"', "")


def _actions_asked_for(line: Sequence[str]) -> set[str]:
    """Returns what a typed line asks for by its first two words, one of which may be another verb."""
    return {_action(line), *(_action([word]) for word in line[1:2] if word in VERBS)}


def _action(line: Sequence[str]) -> str:
    """Returns ``start`` or ``stop`` for a command line that does that, else an empty text."""
    if any(_looks_only(word) for word in line):
        return ""
    first = next((word for word in line if word[:1] != "-"), "")
    verb = first if first in VERBS else OTHER_VERBS.get(first.lower()) or nearest(first, VERBS) or "serve"
    if "=" in first or verb in STARTING:
        return "start"
    return "stop" if verb.partition(" ")[0] == "stop" else ""


def _looks_only(word: str) -> bool:
    """Returns whether a word asks for an answer in place of a start: ``--help``, ``--dry-run``, ``dry_run=true``."""
    name, _, value = word.partition("=")
    flag = BY_NAME.get(name)
    if name in HYDRA_FLAGS or (flag is not None and flag.sets in ("help", "version")):
        return True
    plain = name.lstrip("-").replace("_", "-").rpartition(".")[2]
    return plain != word and value.lower() in _ON and OTHER_VERBS.get(plain, plain) in _LOOKING
