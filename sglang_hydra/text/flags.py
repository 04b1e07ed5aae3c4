"""The verbs and the flags of the command line as data: for parsing, error messages, the help screen and completion.

flags.json has the tables: each verb with its line of the help, and a row for each flag with the fields of ``Flag``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.text.json_types import JsonObject


class Flag(NamedTuple):
    """One flag: ``sets`` is the name by which ``cli.invocation.Invocation`` has what was typed, ``value`` the name
    of the value in the help, empty for a switch.

    ``about`` is its line of the help, empty where another flag's line covers it or nobody needs one.
    Where it does not go everywhere, ``verbs`` are those that it goes with, ``apart`` the flags that it cannot be
    beside, and ``elsewhere`` is the error for these: the finding's ``id``, ``message`` and ``hint`` (what to type), in
    which ``{verb}`` means the verb, ``{why}`` what is wrong, ``{program}`` how this program is called.
    """

    names: tuple[str, ...]
    sets: str
    about: str = ""
    value: str = ""
    verbs: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] | None = None

    @property
    def shown(self) -> str:
        """Returns ``-o, --output FILE``, as the help has it: the long name, and a short one of one letter."""
        short = [name for name in self.names if len(name) == 2]
        return " ".join(filter(None, (", ".join([*short, self.names[0]]), self.value)))


_TABLE: JsonObject = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))

VERBS: Mapping[str, str] = _TABLE["verbs"]
"""Each verb with its line of the help, in the order of the help."""

TASKS: Mapping[str, Sequence[str]] = _TABLE["tasks"]
"""The verbs by what one wants to do, in the order of the help."""

OTHER_VERBS: Mapping[str, str] = _TABLE["other_verbs"]
"""What people call a verb, with ours."""

FILLERS = frozenset(_TABLE["fillers"].split())
"""Words of a sentence, which set nothing."""


def _flag(row: JsonObject) -> Flag:
    lists = {name: tuple(row.get(name, ())) for name in ("names", "verbs", "apart")}
    return Flag(**{**row, **lists})


FLAGS = tuple(map(_flag, _TABLE["flags"]))
"""In the order of the help, which is also that in which misplaced ones are refused."""

BY_NAME = {name: flag for flag in FLAGS for name in flag.names}
BY_VALUE = {flag.sets: flag for flag in FLAGS}

MULTIRUN_VERBS = BY_NAME["--multirun"].verbs
"""The verbs that take several values for a key, with ``-m``."""

HYDRA_FLAGS = ("--cfg", "-c", "--info", "-i", "--resolve", "--package", "-p", "--hydra-help")
"""Those that only Hydra reads."""
VALUED_HYDRA_FLAGS = ("--cfg", "-c", "--package", "-p")
INFO_FLAGS, INFO_KINDS = ("--info", "-i"), ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
"""Those that may have a value, and the values."""
RUN_FLAGS = ("--run", "-r")
"""What says that one run is meant, which is the default."""
INSTEAD: Mapping[str, Mapping[str, str]] = {name: row for row in _TABLE["instead"] for name in row["names"]}
"""Flags of Hydra's that something else stands for here: ``message`` and ``hint``."""


def why_not(flag: Flag, verb: str, others: Iterable[Flag]) -> str | None:
    """Returns what is wrong with a flag that was typed with ``verb`` beside ``others``; None where it goes there."""
    if flag.verbs and verb not in flag.verbs:
        return f"the verb is {verb}"
    beside = {name for other in others for name in other.names}
    unfit = next((name for name in flag.apart if name in beside), None)
    return f"{unfit} was given too" if unfit else None
