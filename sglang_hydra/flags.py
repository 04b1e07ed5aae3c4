"""The flags of the command line, each said once: for parsing, refusing, the help screen and completion."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Elsewhere(NamedTuple):
    """What is said of a flag with a verb that it does not go with: the finding's id, its message and what to type.

    ``{verb}`` stands for the verb, ``{why}`` for what is wrong, ``{program}`` for how this program is called.
    """

    id: str
    message: str
    hint: str


class Flag(NamedTuple):
    """One flag: ``sets`` is the attribute of the invocation, ``value`` what its value is called, empty for a switch.

    ``about`` is its line of the help, empty where another flag's says it or nobody needs to be told.
    Where it does not go everywhere, ``verbs`` are those that it goes with, ``apart`` the flags that it cannot stand
    beside, and ``elsewhere`` what is said then.
    """

    names: tuple[str, ...]
    sets: str
    about: str
    value: str = ""
    verbs: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    elsewhere: Elsewhere | None = None

    @property
    def shown(self) -> str:
        """``-o, --output FILE``, as the help has it: the long name, and a short one of one letter."""
        short = [name for name in self.names if len(name) == 2]
        return " ".join(filter(None, (", ".join([*short, self.names[0]]), self.value)))


MULTIRUN_VERBS = ("bench", "check", "fit", "plan")
"""The verbs that take several values for a key, with ``-m``."""

_RELEASES = Elsewhere(
    "UPG006", "--to and --from go with upgrade, and the verb is {verb}", "{program} upgrade --to VERSION ..."
)
_REVIEW = Elsewhere(
    "REV001",
    "--base and --format go with check, and the verb is {verb}",
    "{program} check --base main --format markdown FILE...; two plans: {program} diff",
)

FLAGS = (
    Flag(("--help", "-h"), "help", "--help WORD: arguments with WORD in their name or help, or a group: --help gpu"),
    Flag(("--version",), "version", ""),
    Flag(("--json",), "json", "the same for machines: plan, check, explain and most other verbs"),
    Flag(("--strict",), "strict", "check: fail also on what only we refuse"),
    Flag(
        ("--multirun", "-m"),
        "multirun",
        f"{', '.join(MULTIRUN_VERBS)}: every combination of several values: -m gpu=h100,h200 tp_size=4,8",
        verbs=MULTIRUN_VERBS,
        elsewhere=Elsewhere(
            "CLI013",
            "-m asks for several runs, and {verb} is for one",
            "{program} bench -m ... measures each, plan -m ... judges each, fit -m ... compares their memory",
        ),
    ),
    Flag(
        ("--output", "-o"),
        "output",
        "export, import, upgrade: write FILE instead of the terminal",
        value="FILE",
        verbs=("export", "import", "upgrade"),
        elsewhere=Elsewhere(
            "EXP016",
            "-o names a file for export, import and upgrade, and {verb} writes to the terminal",
            "{program} {verb} ... > FILE",
        ),
    ),
    Flag(
        ("--follow", "-f"),
        "follow",
        "logs: go on as the server writes",
        verbs=("logs",),
        elsewhere=Elsewhere(
            "CLI026", "-f follows a log and goes with logs, and the verb is {verb}", "{program} logs -f NAME"
        ),
    ),
    Flag(
        ("--against",),
        "against",
        "check, plan, upgrade: ask the SGLang of an environment, or installed, what it makes of it",
        value="VENV",
        verbs=("check", "plan", "upgrade"),
        apart=("-m", "--base", "--format"),
        elsewhere=Elsewhere(
            "AUT005",
            "--against goes with check, plan and upgrade, each alone, and {why}",
            "{program} check --against installed gpu=... model=...",
        ),
    ),
    Flag(
        ("--to",),
        "to",
        "upgrade: the release to go to; --from VERSION: the one that it was written for",
        value="VERSION",
        verbs=("upgrade",),
        elsewhere=_RELEASES,
    ),
    Flag(
        ("--from",),
        "since",
        "",
        value="VERSION",
        verbs=("upgrade",),
        elsewhere=_RELEASES,
    ),
    Flag(
        ("--base",),
        "base",
        "check: what changed since a git revision, or against a folder; --format text|markdown|json",
        value="REV|DIR",
        verbs=("check",),
        elsewhere=_REVIEW,
    ),
    Flag(
        ("--format",),
        "format",
        "",
        value="FORM",
        verbs=("check",),
        elsewhere=_REVIEW,
    ),
    Flag(
        ("--config-dir", "-cd", "--config-path", "-cp"),
        "config_dirs",
        "search DIR for config groups before ours; --config-name NAME: another primary config",
        value="DIR",
    ),
    Flag(("--config-name", "-cn"), "config_name", "", value="NAME"),
)
"""In the order of the help, which is also that in which misplaced ones are refused."""

BY_NAME = {name: flag for flag in FLAGS for name in flag.names}

HYDRA_FLAGS = ("--cfg", "-c", "--info", "-i", "--resolve", "--package", "-p", "--hydra-help", "--shell-completion")
"""Those that only Hydra reads."""
VALUED_HYDRA_FLAGS = ("--cfg", "-c", "--package", "-p")


def why_not(flag: Flag, verb: str, others: Iterable[Flag]) -> str | None:
    """What is wrong with a flag that was typed with ``verb`` beside ``others``; None where it goes there."""
    if flag.verbs and verb not in flag.verbs:
        return f"the verb is {verb}"
    beside = {name for other in others for name in other.names}
    unfit = next((name for name in flag.apart if name in beside), None)
    return f"{unfit} was given too" if unfit else None
