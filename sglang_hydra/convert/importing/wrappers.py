"""What a program around SGLang's command, or Slurm, gives its process: variables and GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sglang_hydra.convert.importing.launches import CONTAINERS, is_open, split_launch
from sglang_hydra.text.words import is_digits

_SBATCH = re.compile(r"^#SBATCH[ \t]+(.*)$", re.MULTILINE)
_SLURM = {
    "SLURM_NNODES SLURM_JOB_NUM_NODES": r"(?:--nodes[= ]|-N ?)(\d+)\b",
    "SLURM_GPUS_ON_NODE SLURM_GPUS_PER_NODE": r"--gpus-per-node[= ](?:\w+:)?(\d+)\b",
    "SLURM_NTASKS_PER_NODE": r"--ntasks-per-node[= ](\d+)\b",
}


def set_by_slurm(text: str) -> dict[str, str]:
    """The variables that Slurm sets by the script's own ``#SBATCH`` lines."""
    lines = " ".join(_SBATCH.findall(text))
    found = {names: match[1] for names, pattern in _SLURM.items() if (match := re.search(pattern, lines))}
    return {name: value for names, value in found.items() for name in names.split()}


def set_for_child(fields: Sequence[str]) -> dict[str, str]:
    """Returns the variables that ``env A=B``, ``docker run -e A=B`` and ``srun --export=A=B`` set, up to SGLang's
    own flags; ``mpirun -x A=B`` as well."""
    found: dict[str, str] = {}
    split = split_launch(fields)
    before = split[0] if split else list(fields)
    in_container = any(word.rpartition("/")[2] in CONTAINERS for word in before)
    programs = {word.rpartition("/")[2] for word in before}
    takes_exports, takes_pairs = not programs.isdisjoint(("mpirun", "mpiexec")), "env" in programs
    for at, word in enumerate(before):
        option, equals, rest = word.partition("=")
        sets_next = (in_container and word in ("-e", "--env")) or (takes_exports and word == "-x")
        if sets_next and at + 1 < len(before):
            option, equals, rest = "--env", "=", before[at + 1]
        elif in_container and word.startswith("-e") and not word.startswith("--"):
            option, equals, rest = "--env", "=", word[2:].lstrip("=")
        if option in ("--env", "--export") and equals:
            for pair in rest.split(",") if option == "--export" else [rest]:
                name, has_value, value = pair.partition("=")
                if has_value and name.isidentifier():
                    found[name] = value
        elif takes_pairs and equals and option.isidentifier():
            found[option] = rest
    return found


def gpus_of_container(words: Sequence[str]) -> int | None:
    """Returns how many GPUs ``docker run --gpus`` gives; None for all of them, or where it does not say."""
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option == "--gpus":
            value = value if equals else words[at + 1] if at + 1 < len(words) else ""
            value = value.strip("'\"")
            if is_digits(value.removeprefix("count=")):
                return int(value.removeprefix("count="))
            if value.startswith("device=") and not is_open(value):
                return len(value.removeprefix("device=").split(","))
    return None
