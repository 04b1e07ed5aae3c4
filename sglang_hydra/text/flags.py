"""The verbs and flags of the command line as data, for parsing, error messages, help and completion.

flags.json has the tables: each verb with its help line, and a row for each flag with the fields of ``Flag``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sglang_hydra.text.json_types import JsonObject, json_beside


class Flag(NamedTuple):
    """One flag. ``sets`` is the field of ``cli.invocation.Invocation`` that stores its value; ``value`` is the name of
    the value in the help, empty for a switch.

    ``about`` is the help line, empty where another flag's line covers this flag or nobody needs one. ``verbs`` lists
    the only verbs that accept the flag (empty: all do), ``apart`` the flags that exclude it. ``elsewhere`` is the error
    for a misplaced flag: the finding's ``id``, ``message`` and ``hint`` (what to type), with placeholders ``{verb}``,
    ``{why}`` for the conflict and ``{program}`` for the name of this program."""

    names: tuple[str, ...]
    sets: str
    about: str = ""
    value: str = ""
    verbs: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] | None = None

    @property
    def shown(self) -> str:
        """Returns the form in the help, ``-o, --output FILE``: the long name, and a short name of one letter."""
        short = [name for name in self.names if len(name) == 2]
        return " ".join(filter(None, (", ".join([*short, self.names[0]]), self.value)))


_TABLE: JsonObject = json_beside(__file__)

VERBS: Mapping[str, str] = _TABLE["verbs"]
"""Each verb with its help line, in the order of the help."""

TASKS: Mapping[str, Sequence[str]] = _TABLE["tasks"]
"""The verbs by task, in the order of the help."""

OTHER_VERBS: Mapping[str, str] = _TABLE["other_verbs"]
"""Other names that people type for a verb, each with our verb."""

NO_VERBS: Mapping[str, str] = {name: hint for names, hint in _TABLE["no_verbs"].items() for name in names.split()}
"""Hints for words that ask for what no verb does."""

FILLERS = frozenset(_TABLE["fillers"].split())
"""Filler words of a sentence, which set nothing."""


def _flag(row: JsonObject) -> Flag:
    lists = {name: tuple(row.get(name, ())) for name in ("names", "verbs", "apart")}
    return Flag(**{**row, **lists})


FLAGS = tuple(map(_flag, _TABLE["flags"]))
"""All flags in the order of the help, which is also the order in which misplaced ones are refused."""

BY_NAME = {name: flag for flag in FLAGS for name in flag.names}
BY_VALUE = {flag.sets: flag for flag in FLAGS}

MULTIRUN_VERBS = BY_NAME["--multirun"].verbs
"""The verbs that take several values for a key with ``-m``."""

HYDRA_FLAGS = ("--cfg", "-c", "--info", "-i", "--resolve", "--package", "-p", "--hydra-help")
"""The flags that only Hydra reads."""
VALUED_HYDRA_FLAGS = ("--cfg", "-c", "--package", "-p")
INFO_FLAGS, INFO_KINDS = ("--info", "-i"), ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
"""Hydra's flags with an optional value, and the allowed values."""
RUN_FLAGS = ("--run", "-r")
"""The flags that ask for a single run, which is the default."""
INSTEAD: Mapping[str, Mapping[str, str]] = {name: row for row in _TABLE["instead"] for name in row["names"]}
"""The Hydra flags that have a replacement here: ``message`` and ``hint``."""


def why_not(flag: Flag, verb: str, others: Iterable[Flag]) -> str | None:
    """Returns why ``verb`` or one of ``others`` excludes a typed flag, or None where the flag is allowed."""
    if flag.verbs and verb not in flag.verbs:
        return f"the verb is {verb}"
    beside = {name for other in others for name in other.names}
    unfit = next((name for name in flag.apart if name in beside), None)
    return f"{unfit} was given too" if unfit else None
