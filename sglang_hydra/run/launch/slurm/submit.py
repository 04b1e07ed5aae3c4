"""Submits a function as one job through submitit; Slurm records no secret."""

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

from sglang_hydra.arguments.secrets import is_secret
from sglang_hydra.run.launch.slurm.states import MESSAGES, ask_slurm
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import install_command

ORIGINAL_PYTHONPATH = "SGLANG_HYDRA_PYTHONPATH"
"""The job's variable with the value of PYTHONPATH before the job's script added this package."""

_SHORTEST_SECRET = 4
# Options whose sbatch variable has another name.
_VARIABLES = {"time": "TIMELIMIT", "mem": "MEM_PER_NODE"}


class Job(NamedTuple):
    """A submitted job. ``folder`` contains its script, its pickle and its output."""

    id: str
    folder: Path

    @property
    def output(self) -> tuple[Path, Path]:
        """Returns the files of the batch process's stdout and stderr, on the shared file system."""
        return self.folder / f"{self.id}_0_log.out", self.folder / f"{self.id}_0_log.err"


def require_slurm() -> None:
    """Raises MachineError if this machine cannot submit: without Slurm commands or submitit."""
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
    call: Callable[[], object],
    *,
    options: Mapping[str, str | bool],
    folder: Path,
    setup: Sequence[str] = (),
    hidden: Collection[str] = (),
) -> Job:
    """Submits ``call()`` as one job that runs once, on the job's first node.

    ``call`` must be importable (a module's function, or functools.partial of one). It runs with this interpreter, this
    package and this directory: all three must have the same path on the nodes. ``options`` are sbatch's long options
    (``options.sbatch_settings``), ``setup`` is shell code before everything else. ``folder`` receives the script, the
    pickle and the output. Slurm records the environment without variables that contain one of ``hidden`` or have a
    secret's name; ``record`` passes these on. Raises MachineError with sbatch's message if Slurm refuses the job."""
    require_slurm()
    if "%" in str(folder):
        message = f"Slurm and submitit read % in the name of the job's folder {folder}"
        raise MachineError(Finding("error", "SLM004", message, ("hydra.run.dir",), "hydra.run.dir=FOLDER without %"))
    from submitit import SlurmExecutor
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    # With `exec`, signals for the batch script reach our process. We call srun ourselves, see inside.py.
    executor = SlurmExecutor(folder, python=f"exec {shlex.quote(sys.executable)}")
    own = {"signal": "B:CONT@1", **options}  # submitit always sends a signal; this one changes nothing
    executor.update_parameters(
        job_name=None,
        time=None,
        wckey=None,
        use_srun=False,
        setup=[*setup, *_path_lines()],
        additional_parameters={name.replace("_", "-"): value for name, value in own.items()},
    )
    try:
        # submitit would print sbatch's message, which the finding also contains.
        with _recorded_environment(options, hidden), contextlib.redirect_stderr(io.StringIO()):
            job = executor.submit(call)
    except (FailedJobError, FailedSubmissionError, OSError) as failure:
        raise MachineError(_refused(str(failure))) from failure
    return Job(str(job.job_id), Path(folder))


def _path_lines() -> list[str]:
    """Writes the shell lines that add a checkout to PYTHONPATH in the job; ``inside`` removes it again."""
    root = Path(__file__).parents[4]
    if root.name in ("site-packages", "dist-packages"):
        return []
    return [
        f'export {ORIGINAL_PYTHONPATH}="${{PYTHONPATH-}}"',
        f'export PYTHONPATH={shlex.quote(str(root))}"${{PYTHONPATH:+:$PYTHONPATH}}"',
    ]


@contextlib.contextmanager
def _recorded_environment(options: Collection[str], hidden: Collection[str]) -> Iterator[None]:
    """Limits the environment to what Slurm may record, because sbatch sends the whole environment.

    Removes secrets, the variables of an outer job (SLURM_MEM_PER_CPU contradicts an own ``mem``), and sbatch variables
    that would override ``options`` in its script."""
    secrets = [text for text in hidden if len(text) >= _SHORTEST_SECRET]
    beating = {f"SBATCH_{_VARIABLES.get(name, name.replace('-', '_').upper())}" for name in options}

    def unwanted(name: str, value: str) -> bool:
        of_another_job = name.startswith("SLURM_") and name not in ("SLURM_CONF", "SLURM_CLUSTERS")
        return is_secret(name, value) or name in beating or of_another_job or any(text in value for text in secrets)

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
    known = ((field, hint) for part, field, hint in MESSAGES["refusals"] if part in output.lower())
    field, hint = next(known, ("launch.slurm", "`sinfo` shows what there is"))
    typed = _partitions() if hint == "{partitions}" else hint
    return Finding("error", "SLM004", f"Slurm refused the job: {reason}", (field,), typed)


def _partitions() -> list[str]:
    """Returns the overrides for existing partitions."""
    names = sorted(set(re.findall(r"[\w.-]+", ask_slurm("sinfo", "--noheader", "-o", "%R") or "")))
    found = [f"launch.slurm.partition={name}" for name in names[:4]]
    return found or ["launch.slurm.partition=NAME: `sinfo` lists them"]
