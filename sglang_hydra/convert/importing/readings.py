"""The servers of a script by every answer to the conditions that its caller decides, each named by its answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sglang_hydra.convert.importing.conditions import Choices, Key, shown
from sglang_hydra.convert.importing.launches import Launch, of_every_node

_MOST_READINGS, _MOST_SERVERS = 48, 16
_LONGEST_NAME = 96
_WORDS = {">=": "ge", "<=": "le", "!=": "not", ">": "gt", "<": "lt"}
_Found = tuple[Choices, list[Launch]]


def of_every_reading(read: Callable[[Choices], list[Launch]]) -> list[Launch]:
    """Every server of a script, each once. ``read`` reads it with some answers; those of the first reading are the
    likely ones. Combinations are tried up to a limit, and only of answers that changed a server."""
    found: list[_Found] = []
    first: dict[tuple[object, ...], Launch] = {}
    waiting = [Choices()]
    known: set[Key] = set()
    tries = 0
    while waiting and tries < _MOST_READINGS and len(first) < _MOST_SERVERS:
        choices, tries = waiting.pop(0), tries + 1
        launches = read(choices)
        following = choices.free
        if tries > 1 and all(_key(launch) in first for launch in launches):
            following = [key for key in following if key not in known]  # what the answer led to
        else:
            found.append((choices, launches))
        known.update(choices.free)
        for launch in launches:
            first.setdefault(_key(launch), launch)
        past = max((choices.free.index(key) for key in choices.wanted if key in choices.free), default=-1)
        waiting += [
            Choices({**choices.wanted, key: not choices.made[key]})
            for key in choices.free[past + 1 : past + 1 + _MOST_READINGS]
            if key in following
        ]
    count = f"{len(first)}{' or more' if waiting else ''}"
    return [_labelled(launch, _where(key, found), count) for key, launch in first.items()]


def _key(launch: Launch) -> tuple[object, ...]:
    words = of_every_node(launch.words) if "--nnodes" in launch.words else launch.words
    return words, repr(launch.values), launch.name, launch.behind_router


def _where(key: tuple[object, ...], found: Sequence[_Found]) -> dict[Key, bool]:
    """The answers with which a server is started: those that matter to any, and that it is not started with both of."""
    matter = {one for choices, _ in found for one in choices.wanted}
    mine = [choices.made for choices, launches in found if any(_key(launch) == key for launch in launches)]
    return {
        one: answer
        for one, answer in mine[0].items()
        if one in matter and all(made.get(one) == answer for made in mine)
    }


def _labelled(launch: Launch, where: Mapping[Key, bool], count: str) -> Launch:
    """Names a server by the conditions under which the script starts it."""
    if not where:
        return launch
    listed = shown(where)
    slug = " ".join(listed)
    for sign, word in _WORDS.items():
        slug = slug.replace(sign, word)
    slug = re.sub(r"[^\w.]+", "-", slug).strip("-").lower()
    remark = f"one of {count} servers of this script: where {', '.join(listed)}; --env NAME=VALUE decides a condition"
    name = "-".join(part for part in (launch.name, slug) if part) if len(slug) <= _LONGEST_NAME else launch.name
    return replace(launch, name=name, remarks=(*launch.remarks, remark))
