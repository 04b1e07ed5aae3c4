"""Finds the place in SGLang's code that raised a failure, the arguments that its conditions read, and the changes that
make a condition false."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import add, eq, floordiv, ge, gt, le, lt, mod, mul, ne, sub, truediv

from sglang_hydra.arguments.secrets import is_secret_name
from sglang_hydra.arguments.tables.order import release_key
from sglang_hydra.arguments.tables.table import Argument, known_versions, release
from sglang_hydra.releases.reading_refusals import Term, names_in
from sglang_hydra.releases.refusals import Found, look_up
from sglang_hydra.run.diagnose.life import Raised
from sglang_hydra.run.diagnose.server_args import CUT
from sglang_hydra.text.json_types import Json, JsonObject

_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.){0,8}(\w+)(?::\s*(.*))?$", re.DOTALL)
_MOST_CHANGES = 8
# A change of these makes another server, or concerns its machines.
_KEPT = frozenset(
    ("model_path", "tokenizer_path", "device", "disaggregation_mode", "nnodes", "node_rank", "host", "port")
)
_UNKNOWN = object()
Change = JsonObject


@dataclass(frozen=True)
class Cause:
    """A place in SGLang's code and its conditions. ``found`` holds the places whose message and frame agree best,
    several where one function raises a message twice. ``reads`` names the arguments that the conditions read, nearest
    first; ``arguments`` gives their logged values. ``variables`` and ``platform`` are the same for environment and
    machine. Each of ``changes`` sets one argument to make a condition false; without any, ``defaults`` resets one."""

    found: tuple[Found, ...]
    reads: tuple[str, ...] = ()
    arguments: Change = field(default_factory=dict)
    variables: tuple[str, ...] = ()
    platform: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    defaults: tuple[Change, ...] = ()

    @property
    def is_of_arguments(self) -> bool:
        """Returns whether a condition compares an argument itself, and not only a value computed from arguments."""
        return any(_compares(guard) for one in self.found for guard in one.site.guards)

    @property
    def agrees(self) -> tuple[str, ...]:
        """Returns the evidence for the place: message, place, or both."""
        return self.found[0].agrees

    @property
    def place(self) -> str:
        """Returns file and function: ``srt/managers/scheduler.py:__init__``."""
        site = self.found[0].site
        return f"{site.file}:{site.function}"


def cause_of(raised: Raised, version: str | None, args: Mapping[str, object] | None) -> Cause | None:
    """Returns the place that raised an exception, or None when no release has a matching one."""
    parts = _EXCEPTION.match(raised.text.strip())
    found = look_up(version, parts[1], parts[2] or "", raised.place, raised.at) if parts else ()
    if not found:
        return None
    table = release(found[0].release).arguments
    values = _values(args, table)
    reachable = tuple(one for one in found if not any(evaluated(guard, values) is False for guard in one.site.guards))
    found = reachable or found
    names = list(dict.fromkeys(name for one in found for name in one.names))
    shown = [name for name in names if name[0] not in "$@" and not is_secret_name(name)]
    changes = list(_changes(found[0].site.guards, values, table)) if len(found) == 1 and args else []
    return Cause(
        found,
        tuple(shown),
        {name: values[name] for name in shown if args and name in values},
        tuple(name[1:] for name in names if name[0] == "$"),
        tuple(name[1:] for name in names if name[0] == "@"),
        tuple(changes[:_MOST_CHANGES]),
        () if changes or not args else tuple(_defaults(shown, args, table)),
    )


def _defaults(names: Sequence[str], args: Mapping[str, object], table: Mapping[str, Argument]) -> Iterator[Change]:
    """Yields each argument with a non-default value, reset to its default."""
    for name in (name for name in names if name in table and name in args and name not in _KEPT):
        argument = table[name]
        if not argument.required and argument.computed is None and args[name] != argument.default:
            yield {name: argument.default}


def _values(args: Mapping[str, object] | None, table: Mapping[str, Argument]) -> dict[str, object]:
    """Returns the arguments of the log, completed with the defaults of the release."""
    defaults = {name: one.default for name, one in table.items() if one.computed is None}
    return {**defaults, **{name: value for name, value in (args or {}).items() if name != CUT}}


def evaluated(term: Term, values: JsonObject) -> Json:
    """Returns the value of a condition, or ``_UNKNOWN`` when an input that decides it is unknown."""
    match term:
        case ["c", value]:
            return value
        case ["a", name]:
            return values.get(name, _UNKNOWN)
        case ["!", one]:
            value = evaluated(one, values)
            return value if value is _UNKNOWN else not value
        case ["&" | "|" as operation, *parts]:
            found = [evaluated(one, values) for one in parts]
            decides = [one for one in found if one is not _UNKNOWN and bool(one) is (operation == "|")]
            if decides:
                return decides[0]
            return _UNKNOWN if _UNKNOWN in found else found[-1]
        case [operation, left, right] if operation in _OPERATIONS:
            pair = evaluated(left, values), evaluated(right, values)
            if operation == "%" and pair[1] == 1:
                return 0  # for every dividend
            if _UNKNOWN in pair:
                return _UNKNOWN
            try:
                return _OPERATIONS[operation](*map(_plain, pair))
            except (TypeError, ValueError, ZeroDivisionError):
                return _UNKNOWN
    return _UNKNOWN


def _plain(value: object) -> Json:
    """Lowers the case of texts, because members of enumerations are compared by name."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.casefold() if isinstance(value, str) else value


_OPERATIONS: dict[str, Callable[[Json, Json], Json]] = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_OPERATIONS |= {"+": add, "-": sub, "*": mul, "//": floordiv, "/": truediv, "%": mod}
_OPERATIONS |= {"in": lambda left, right: left in right, "notin": lambda left, right: left not in right}


def _changes(guards: Sequence[Term], values: Mapping[str, object], table: Mapping[str, Argument]) -> Iterator[Change]:
    """Yields changes of one argument that make a condition false, starting with the nearest condition."""
    seen: list[Change] = []
    for guard in reversed(guards):
        names = () if evaluated(guard, values) is False else dict.fromkeys(names_in(guard))
        for name in (name for name in names if name in table and name not in _KEPT and not is_secret_name(name)):
            changes: Iterator[Change] = ({name: value} for value in _candidates(guard, name, values, table[name]))
            accepts = (one for one in changes if evaluated(guard, {**values, **one}) is False and one not in seen)
            seen += islice(accepts, 1)
    yield from seen


def _candidates(guard: Term, name: str, values: Mapping[str, object], argument: Argument) -> Iterator[object]:
    """Yields values to try for an argument: the constants of the condition, their neighbours, and the default."""
    had, kind = values.get(name), argument.type.partition(" ")[0]
    if kind == "bool":
        yield from (value for value in (False, True) if value is not had)
        return
    constants = list(_constants(guard, values))
    numbers = [one for one in constants if isinstance(one, int) and not isinstance(one, bool)]
    pool: list[object] = [*constants, *(one + step for one in numbers for step in (1, -1))]
    pool += [-(-had // one) * one for one in numbers if one > 1] if isinstance(had, int) else []
    pool += [argument.default, None]
    for value in dict.fromkeys(one for one in pool if not isinstance(one, (list, bool))):
        is_below = isinstance(value, (int, float)) and value < 0
        fits = isinstance(value, str) == (kind == "str") and value != "" and not is_below
        fits = fits and (not argument.choices or value in argument.choices)
        if value != had and ("None" in argument.type if value is None else fits):
            yield value


def _compares(term: object) -> bool:
    if not isinstance(term, list) or not term or term[0] in ("?", "c"):
        return False
    return term[0] == "a" or any(map(_compares, term[1:]))


def _constants(term: object, values: Mapping[str, object]) -> Iterator[object]:
    match term:
        case ["c", value]:
            yield from value if isinstance(value, list) else [value]
        case ["a", str(name)]:
            yield from [values[name]] if isinstance(values.get(name), (int, str)) else []
        case [operation, *parts] if operation != "?":
            for one in parts:
                yield from _constants(one, values)


def nearest_release(version: str | None) -> str | None:
    """Returns the release of a version text (the first one of a range), or None when it is unknown."""
    if version is None:
        return None
    name = version.removeprefix("near ").partition(" to ")[0]
    return name if name in known_versions() or release_key(name) is not None else None
