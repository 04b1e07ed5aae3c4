"""Submitting a function as one job, through submitit, with nothing secret in what Slurm keeps."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.arguments.secrets import is_secret_name
from sglang_hydra.run.launch.slurm.states import MESSAGES, ask_slurm
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import install_command

ORIGINAL_PYTHONPATH = "SGLANG_HYDRA_PYTHONPATH"
"""In the job: what PYTHONPATH was before the job's own script added this package to it."""

_SHORTEST_SECRET = 4
# Variables of sbatch that are not named like their option.
_VARIABLES = {"time": "TIMELIMIT", "mem": "MEM_PER_NODE"}


class Job(NamedTuple):
    """A job that was submitted. ``folder`` has its script, its pickle and its own output."""

    id: str
    folder: Path

    @property
    def output(self) -> tuple[Path, Path]:
        """Returns where the batch process's stdout and stderr go, on the shared file system."""
        return self.folder / f"{self.id}_0_log.out", self.folder / f"{self.id}_0_log.err"


def require_slurm() -> None:
    """Raises MachineError where this machine cannot submit: no Slurm commands, no submitit."""
    missing = [name for name in ("sbatch", "srun", "scontrol", "scancel") if shutil.which(name) is None]
    if missing:
        message = f"launch=slurm needs Slurm's commands, and this machine has no {', '.join(missing)}"
        hint = "start it on a login node of the cluster; launch=local runs here"
        raise MachineError(Finding("error", "SLM003", message, ("launch",), hint))
    import importlib.util

    if importlib.util.find_spec("submitit") is None:
        message = "launch=slurm needs the package submitit, which this environment has not"
        raise MachineError(Finding("error", "SLM003", message, ("launch",), install_command("slurm")))


def submit(
    call: Callable[..., object],
    *arguments: object,
    options: Mapping[str, str | bool],
    folder: Path,
    setup: Sequence[str] = (),
    hidden: Collection[str] = (),
) -> Job:
    """Submits ``call(*arguments)`` as one job, to run once, on the job's first node.

    ``call`` must be importable (a module's function, or functools.partial of one); it runs under this interpreter,
    with this package, from this directory: all three must be at the same path on the nodes. ``options`` are sbatch's
    long options (``options.sbatch_settings``), ``setup`` lines of shell before anything else. ``folder`` takes the
    script, the pickle and the output. Variables that hold one of ``hidden``, or whose name says that they hold a
    secret, are not in the environment that Slurm records with the job: ``keys`` hands them over.

    Raises MachineError with sbatch's message where Slurm refuses the job.
    """
    require_slurm()
    if "%" in str(folder):
        message = f"Slurm and submitit read % in the name of the job's folder {folder}"
        raise MachineError(Finding("error", "SLM004", message, ("hydra.run.dir",), "hydra.run.dir=FOLDER without %"))
    from submitit import SlurmExecutor
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    # `exec`: signals for the batch script reach our process. srun is ours, see inside.py.
    executor = SlurmExecutor(folder, python=f"exec {shlex.quote(sys.executable)}")
    own = {"signal": "B:CONT@1", **options}  # submitit always sends one; this one changes nothing
    executor.update_parameters(
        job_name=None,
        time=None,
        wckey=None,
        use_srun=False,
        setup=[*setup, *_path_lines()],
        additional_parameters={name.replace("_", "-"): value for name, value in own.items()},
    )
    try:
        # submitit would print sbatch's message, and the finding has it too.
        with _recorded_environment(options, hidden), contextlib.redirect_stderr(io.StringIO()):
            job = executor.submit(call, *arguments)
    except (FailedJobError, FailedSubmissionError, OSError) as failure:
        raise MachineError(_refused(str(failure))) from failure
    return Job(str(job.job_id), Path(folder))


def _path_lines() -> list[str]:
    """Writes the lines that make a checkout known in the job; ``inside`` takes the path away again."""
    root = Path(__file__).parents[4]
    if root.name in ("site-packages", "dist-packages"):
        return []
    return [
        f'export {ORIGINAL_PYTHONPATH}="${{PYTHONPATH-}}"',
        f'export PYTHONPATH={shlex.quote(str(root))}"${{PYTHONPATH:+:$PYTHONPATH}}"',
    ]


@contextlib.contextmanager
def _recorded_environment(options: Collection[str], hidden: Collection[str]) -> Iterator[None]:
    """Sets the environment to what the job may see and Slurm may keep: sbatch sends everything.

    Without secrets; without what another job left there, when this runs inside one (SLURM_MEM_PER_CPU contradicts an
    own ``mem``); and without the variables of sbatch that would beat ``options`` in its script.
    """
    secrets = [text for text in hidden if len(text) >= _SHORTEST_SECRET]
    beating = {f"SBATCH_{_VARIABLES.get(name, name.replace('-', '_').upper())}" for name in options}

    def unwanted(name: str, value: str) -> bool:
        of_another_job = name.startswith("SLURM_") and name not in ("SLURM_CONF", "SLURM_CLUSTERS")
        return is_secret_name(name) or name in beating or of_another_job or any(text in value for text in secrets)

    taken = {name: value for name, value in os.environ.items() if unwanted(name, value)}
    for name in taken:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(taken)


def _refused(output: str) -> Finding:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    reason = "; ".join(line.removeprefix("sbatch: ").removeprefix("error: ") for line in lines)[:600]
    for part, field, hint in MESSAGES["refusals"]:
        if part in output.lower():
            typed = _partitions() if hint == "{partitions}" else hint
            return Finding("error", "SLM004", f"Slurm refused the job: {reason}", (field,), typed)
    return Finding(
        "error", "SLM004", f"Slurm refused the job: {reason}", ("launch.slurm",), "`sinfo` shows what there is"
    )


def _partitions() -> list[str]:
    """Returns what to type instead of a partition that does not exist."""
    answer = ask_slurm("sinfo", "--noheader", "-o", "%R")
    if answer is None:
        return ["launch.slurm.partition=NAME: `sinfo` lists them"]
    names = sorted(set(re.findall(r"[\w.-]+", answer)))
    return [f"launch.slurm.partition={name}" for name in names[:4]] or ["`sinfo` lists the partitions"]
