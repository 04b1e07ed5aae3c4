"""Describes the arguments of each release, and of all releases together, in the form of ``fields``.

``EVERY`` has all arguments, because a configuration may name one before its release is known. ``fields_of`` has those
of one release, with its own choices and defaults."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from sglang_hydra.arguments.fields import FIELDS, MISSING
from sglang_hydra.arguments.fields.arg import Arg, Field
from sglang_hydra.arguments.fields.check import typed_problem
from sglang_hydra.arguments.secrets import is_secret_name
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.tables.order import same_release
from sglang_hydra.arguments.tables.table import Argument, Lazy, all_arguments, known_versions, nearest_known, release
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.words import nearest

_KINDS = frozenset(("int", "float", "bool", "str"))


def field_of(argument: Argument) -> Field:
    """Describes an argument of one release like ``FIELDS`` describes those of 0.5.2. An argument of both keeps its
    help, unit and reader; default, type and choices are the release's."""
    known = FIELDS.get(argument.name)
    default = MISSING if argument.required else argument.default
    if known is not None:
        return known._replace(default=default, arg=known.arg._replace(choices=argument.choices))
    plain = argument.type.removesuffix(" | None")
    item = plain[5:-1] if plain.startswith("list[") and plain[5:-1] in _KINDS else plain
    kind = f"list[{item}]" if item != plain else item if item in _KINDS else "Any"
    none = "the release decides" if argument.type.endswith(" | None") else None
    choices, nargs, const = argument.choices, argument.nargs, argument.const
    secret = is_secret_name(argument.name)
    about = Arg("", none=none, choices=choices, flags=argument.flags, nargs=nargs, const=const, secret=secret)
    return Field(argument.name, f"{kind} | None" if none else kind, default, about, "later releases")


@functools.lru_cache(maxsize=8)
def fields_of(version: str) -> Mapping[str, Field]:
    """Returns the arguments that users of a release may set, by name. Raises KeyError for an unknown release."""
    if same_release(version, SPECIFIED_VERSION):
        return FIELDS
    known = release(version).arguments
    return Lazy({name: None for name in known if not name.startswith("_")}, lambda name: field_of(known[name]))


def _every() -> Mapping[str, Field]:
    known = all_arguments()
    names = dict.fromkeys([*FIELDS, *(name for name in known if not name.startswith("_"))])
    return Lazy(names, lambda name: FIELDS[name] if name in FIELDS else field_of(known[name]))


EVERY: Mapping[str, Field] = _every()
"""Each argument of any release, as 0.5.2 has it, else as the newest release that has it."""


@functools.lru_cache(maxsize=1024)
def canonical_name(name: str) -> str | None:
    """Returns the argument with this name, or the one that a flag of this name sets (``fp8_gemm_backend``); None where
    no release has either."""
    if name in EVERY:
        return name
    if not name.isidentifier():
        return None
    return names_by_flag().get("--" + name.replace("_", "-"))


@functools.lru_cache(maxsize=1)
def names_by_flag() -> Mapping[str, str]:
    """Returns the argument that each flag sets; the last one if several share a flag."""
    return {flag: known.name for known in EVERY.values() for flag in known.arg.flags}


def fitting_problem(name: str, value: object, version: str | None, usual: str | None = None) -> str | None:
    """Returns why ``value`` is invalid for ``name``, or None: under the named release, else only if every release
    refuses it, in the words of the ``usual`` release. Raises KeyError for a name that no release has."""
    known = nearest_known(version) if version else None
    if known is not None:  # for an argument that the release lacks, ``accepted`` makes the finding
        return release_problem(name, value, known) if name in release(known).arguments else None
    if name in FIELDS and release_problem(name, value, SPECIFIED_VERSION) is None:
        return None
    found: str | None = None
    for one in reversed(known_versions()):
        if name in release(one).arguments:
            problem = release_problem(name, value, one)
            if problem is None:
                return None
            found = problem if one == usual else found or problem
    return found


def release_problem(name: str, value: object, version: str) -> str | None:
    """Returns why a release with the argument ``name`` refuses ``value``, in a clause that names both; else None."""
    field = fields_of(version)[name]
    if name in FIELDS:
        return typed_problem(name, value, field)
    wrong = misfit(release(version).arguments[name], value)
    return None if wrong is None else f"{name}={value!r} {wrong}"


def field_in(name: str, version: str | None) -> Field:
    """Returns an argument as the named release has it, else as the newest release that has it."""
    known = nearest_known(version) if version else None
    having = [one for one in ([known] if known else reversed(known_versions())) if name in release(one).arguments]
    return fields_of(having[0])[name] if having else EVERY[name]


def last_choices(name: str) -> tuple[object, ...]:
    """Returns the choices of an argument in the newest release that lists any; empty if none does."""
    listed = (release(version).arguments.get(name) for version in reversed(known_versions()))
    return next((argument.choices for argument in listed if argument is not None and argument.choices), ())


def releases_with_choice(name: str, value: object) -> list[str]:
    """Returns the releases that accept ``value`` for the argument ``name``, oldest first."""
    having = (one for one in known_versions() if name in release(one).arguments)
    return [one for one in having if release_problem(name, value, one) is None]


def first_with(name: str) -> str | None:
    """Returns the first release of the table with an argument of this name, or None."""
    return next((one for one in known_versions() if name in release(one).arguments), None)


_SUFFIXED = re.compile(r"\d+(\.\d+)?(Ki|Mi|Gi|Ti|k|M|G|T)|-?\d+")
_JSON_READERS = ("json.loads", "json_list_type", "parse_cuda_graph_config_arg")
_MOST_CHOICES = 12


def misfit(argument: Argument, value: object) -> str | None:
    """Returns why ``value`` is invalid for ``argument``, in a clause, or None."""
    if value is None:
        return None if "None" in argument.type.split(" | ") else "cannot be null"
    kinds = [kind for kind in _alternatives(argument.type) if kind != "None"]
    if not any(_fits(kind, value, argument) for kind in kinds):
        return f"is not {' or '.join(kinds)}"
    if argument.choices is not None:
        for item in value if isinstance(value, (list, tuple, set, frozenset)) else [value]:
            if item not in argument.choices:
                return f"is not one of its choices: {_listed(argument.choices)}"
    return None


def as_text(argument: Argument, value: object) -> object:
    """Returns a number as text where the argument is text, because YAML reads some words as numbers; other values
    stay."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return str(value) if is_number and "str" in argument.type.split(" | ") else value


def _alternatives(type: str) -> list[str]:
    """Splits a union type at the bars outside brackets."""
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(type):
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and depth == 0:
            parts.append(type[start:position].strip())
            start = position + 1
    return [*parts, type[start:].strip()]


def _fits(kind: str, value: object, argument: Argument) -> bool:
    if argument.reader in _JSON_READERS and isinstance(value, str):
        return _is_json(value)
    if argument.reader == "human_readable_int" and isinstance(value, str):
        return _SUFFIXED.fullmatch(value) is not None
    head, _, inner = kind.partition("[")
    if head in ("list", "set", "tuple"):
        each = inner.removesuffix("]") or "Any"
        return isinstance(value, (list, tuple, set, frozenset)) and all(
            any(_fits(part, item, argument) for part in _alternatives(each)) for item in value
        )
    if head in ("dict", "CudaGraphConfig"):
        return isinstance(value, Mapping)
    if head == "bool":
        return isinstance(value, bool)
    if head == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    if head == "float":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if head == "str":
        # A word that YAML reads as a number is text where text is wanted.
        return isinstance(value, (str, int, float)) and not isinstance(value, bool) and "\0" not in str(value)
    return head == "Any" or isinstance(value, (str, Mapping))


def _is_json(text: str) -> bool:
    try:
        read_json(text, "argument")
    except ValueError:
        return False
    return True


def nearest_choice(argument: Argument, value: object) -> str | None:
    """Returns the choice that was probably meant, or None."""
    return nearest(str(value), map(str, argument.choices)) if argument.choices else None


def _listed(choices: tuple[object, ...]) -> str:
    return ", ".join(map(str, choices[:_MOST_CHOICES])) + (", ..." if len(choices) > _MOST_CHOICES else "")
