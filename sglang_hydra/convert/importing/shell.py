"""Tracks the state of a shell script at a command: its variables and files, and additions by Slurm or by a program
around SGLang's command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sglang_hydra.convert.importing.expansion import Value, fields_of, replaced, text_of
from sglang_hydra.convert.importing.launches import CONTAINERS, is_one_of, is_open, open_names, opened, split_launch
from sglang_hydra.convert.importing.syntax import Heredoc, commands_of
from sglang_hydra.text.words import is_digits

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.ASCII | re.DOTALL)
_LONGEST = 1 << 16
_BY_DEFAULT = re.compile(r"\"?\$\{(\w+):?-[^{}]+\}\"?", re.ASCII)
_ASKED, _COUNTED = (re.compile(rf"{dollar}\{{?(\w+)(:?-)?", re.ASCII) for dollar in (r"\$", r"\$?"))
"""The variables in a word; in ``(( ))`` a bare name is one."""
_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*):?=(.*)\}", re.ASCII | re.DOTALL)


@dataclass
class Shell:
    """The state of the script so far. ``all_for_process``: every exported variable is the server's, as in exports.
    ``defaults`` maps variables with only a default to the one that a caller sets."""

    variables: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    files: dict[str, str] = field(default_factory=dict)
    all_for_process: bool = False
    defaults: dict[str, str] = field(default_factory=dict)

    def content_of(self, heredoc: Heredoc) -> str:
        return heredoc.body if heredoc.literal else replaced(heredoc.body, self.variables)

    def environment(self) -> dict[str, str]:
        return {
            name: value
            for name in sorted(self.exported)
            if isinstance(value := self.variables.get(name), str)
            and (self.all_for_process or is_one_of("variables", name))
        }

    def assign(self, name: str, adds: str, value: str) -> None:
        made: Value
        default = _BY_DEFAULT.fullmatch(value)
        self.defaults.pop(name, None)
        if default and default[1] not in self.variables:
            self.defaults[name] = default[1]
        if value.startswith("("):
            inner = value[1:].removesuffix(")")
            words = [word for one in commands_of(inner) for word in one.words]
            made = [item for word in words for item in fields_of(word, self.variables)]
        else:
            made = text_of(value, self.variables)
            if name in open_names(made) or f"${name}" in open_names(made):
                made = opened(f"${name}")
        before = self.variables.get(name)
        if adds and before is not None:
            items = before if isinstance(before, list) else [before]
            if isinstance(made, list):
                made = [*items, *made]
            else:
                made = [*items[:-1], items[-1] + made] if isinstance(before, list) and items else "".join(items) + made
        if sum(map(len, made)) + len(made) > _LONGEST:
            made = opened(f"${name}")
        self.variables[name] = made

    def default_in(self, words: Sequence[str]) -> str:
        """Returns the caller's variable whose default alone decides a condition; empty for none."""
        asks = _COUNTED if words[0].startswith("((") else _ASKED
        asked = (match.groups() for word in words for match in asks.finditer(word))
        found = (name if default and name not in self.variables else self.defaults.get(name) for name, default in asked)
        return next(filter(None, found), "")

    def pass_over(self, words: Sequence[str], conditions: Sequence[str] = ()) -> None:
        """Records assignments that are skipped: a variable without another value is empty, or unknown if one of the
        assumed ``conditions`` reads it."""
        for match in filter(None, map(ASSIGNMENT.fullmatch, words)):
            is_asked = any(re.search(rf"\$\{{?{match[1]}\b", condition) for condition in conditions)
            self.variables.setdefault(match[1], opened(f"${match[1]}") if is_asked else "")


def defaults_of(words: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the variables that ``: ${NAME:=value}`` sets if they have no value."""
    found = [_DEFAULT.fullmatch(word.strip('"')) for word in words]
    return [(match[1], match[2]) for match in found if match]


_SBATCH = re.compile(r"^#SBATCH[ \t]+(.*)$", re.MULTILINE)
_SLURM = {
    "SLURM_NNODES SLURM_JOB_NUM_NODES": r"(?:--nodes[= ]|-N ?)(\d+)\b",
    "SLURM_GPUS_ON_NODE SLURM_GPUS_PER_NODE": r"--gpus-per-node[= ](?:\w+:)?(\d+)\b",
    "SLURM_NTASKS_PER_NODE": r"--ntasks-per-node[= ](\d+)\b",
}


def set_by_slurm(text: str) -> dict[str, str]:
    """Returns the variables that Slurm sets for the script's own ``#SBATCH`` lines."""
    lines = " ".join(_SBATCH.findall(text))
    found = {names: match[1] for names, pattern in _SLURM.items() if (match := re.search(pattern, lines))}
    return {name: value for names, value in found.items() for name in names.split()}


def gpus_of_slurm(text: str) -> int | None:
    """Returns the number of GPUs on each node that a script's own ``#SBATCH`` lines ask for; None without one."""
    lines = " ".join(_SBATCH.findall(text))
    asked = re.search(r"(?:--gres[= ]gpu|--gpus-per-node[= ])(?:[:=]?[A-Za-z][\w.-]*)?[:=]?(\d+)\b", lines)
    return int(asked[1]) if asked else None


def where_slurm_runs(text: str) -> list[str]:
    """Returns the values of a script's own ``#SBATCH`` options that may name a GPU: ``gpu:h100:4``."""
    options = r"--gres|--gpus(?:-per-node)?|--constraint|--partition|-[GCp]"
    return re.findall(rf"(?<!\S)(?:{options})[= ](\S+)", " ".join(_SBATCH.findall(text)))


def set_for_child(fields: Sequence[str]) -> dict[str, str]:
    """Returns the variables that ``env A=B``, ``docker run -e A=B``, ``srun --export=A=B`` and ``mpirun -x A=B`` set,
    up to SGLang's own flags."""
    split = split_launch(fields)
    before = split[0] if split else list(fields)
    programs = {word.rpartition("/")[2] for word in before}
    in_container, by_mpi = (not programs.isdisjoint(names) for names in (CONTAINERS, ("mpirun", "mpiexec")))
    pairs: list[str] = []
    for word, after in zip(before, [*before[1:], ""], strict=False):
        option, _, rest = word.partition("=")
        if (in_container and word in ("-e", "--env")) or (by_mpi and word == "-x"):
            pairs.append(after)
        elif in_container and word.startswith("-e"):
            pairs.append(word[2:].lstrip("="))
        elif option in ("--env", "--export"):
            pairs += rest.split(",") if option == "--export" else [rest]
        elif "env" in programs and option.isidentifier():
            pairs.append(word)
    parts = (pair.partition("=") for pair in pairs)
    return {name: value for name, equals, value in parts if equals and name.isidentifier()}


def gpus_of_container(words: Sequence[str]) -> int | None:
    """Returns the number of GPUs in ``docker run --gpus``; None for all of them or without the option."""
    for word, after in zip(words, [*words[1:], ""], strict=False):
        option, equals, value = word.partition("=")
        if option == "--gpus":
            value = (value if equals else after).strip("'\"")
            if is_digits(value.removeprefix("count=")):
                return int(value.removeprefix("count="))
            if value.startswith("device=") and not is_open(value):
                return len(value.removeprefix("device=").split(","))
    return None
