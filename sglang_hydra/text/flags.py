"""The verbs and the flags of the command line as data: for parsing, error messages, the help screen and completion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

VERBS = {
    "serve": "plan, check and start a server (the default): gpu=... model=..., or serve mine.yaml",
    "plan": "show what would be started, and why; starts nothing, needs no GPU: plan mine.yaml tp_size=4",
    "check": "judge overrides, YAML files, plans or folders of them; for CI",
    "explain": "explain NAME: what an argument or a key of ours is, and how its value came about; explain ID: a rule",
    "diff": "diff 'gpu=h100 tp_size=8' 'gpu=h200': which resolved values differ between two plans, and why",
    "upgrade": "upgrade --to 0.5.23 OVERRIDES|FILE|'COMMAND': what breaks, is renamed or moves, and the new command",
    "fit": "where the memory of a GPU goes, and what would make the model fit; -m gpu=h100,h200 compares",
    "export": "export FORMAT: a script or manifest that runs the plan without this package; -o FILE writes it",
    "import": "import FILE|-|'COMMAND': a launch command, script, manifest or log as an experiment; -o FILE writes it",
    "recipes": "published launch configurations with their verdicts: recipes gpu=h200 model=deepseek",
    "bench": "measure: bench -m model=qwen3_8b tp_size=1,2,4 bench.concurrency=1,8,64; starts each server once",
    "resume": "resume multirun/SWEEP: takes the points of a sweep that have no result; sweep.rerun=[failed] those too",
    "report": "report multirun/SWEEP...: what sweeps found; writes report.html; several are compared with the first",
    "audit": "every model on every GPU class, and every recipe",
    "diagnose": "diagnose FILE|-: why a server failed, from its log, and what to change; any SGLang since 0.4",
    "doctor": "what this machine has, what it lacks for a plan, and how to mend it",
    "completion": 'completion bash|zsh: the script for your shell: eval "$(sglang-hydra completion bash)"',
    "status": "the servers that launch.detach=true started: state, url, model, run folder; status multirun/SWEEP",
    "stop": "stop NAME, stop all: ends detached servers",
    "logs": "logs NAME: what a detached server wrote; -f goes on as it writes",
}
"""Each verb with its line of the help, in the order of the help."""


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


@dataclass
class FlagValues:
    """What the flags of a command line set: a field for each ``Flag.sets``."""

    config_dirs: list[str] = field(default_factory=list)
    config_name: str | None = None
    json: bool = False
    strict: bool = False
    help: bool = False
    version: bool = False
    multirun: bool = False
    follow: bool = False
    output: str | None = None
    base: str | None = None
    format: str | None = None
    against: str | None = None
    to: str | None = None
    since: str | None = None
    trusted_folders: list[str] = field(default_factory=list)
    allowed_env: list[str] = field(default_factory=list)
    hub_token: bool = False
    no_fetch: bool = False


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
    Flag(
        ("--trust",),
        "trusted_folders",
        "let files of others name interpreters below FOLDER; --allow-env NAME: read a variable",
        value="FOLDER",
    ),
    Flag(("--allow-env",), "allowed_env", "", value="NAME"),
    Flag(("--hub-token",), "hub_token", ""),
    Flag(("--no-fetch",), "no_fetch", ""),
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
