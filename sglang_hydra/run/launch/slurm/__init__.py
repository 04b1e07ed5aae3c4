"""A server as one Slurm job: its nodes and GPUs, one rank on each node, watched from the terminal that asked for it.

    settings ─► options ─► submit ─► the job: inside ─► srun ─► child_rank, one on each node
                              └─► follow: the queue, the log, the job's own record

What goes here: the requests to Slurm. What does not: the life of the server itself, which is the same as on one
machine (``run.launch.local``, run inside the job), and how ranks are spread (``planning.nodes``).

A job that holds one server and something that talks to it (the points of a sweep) is ``submit.submit`` with a function
that uses ``inside.server_of``; ``states.state_of`` says how it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_hydra.compose.composer import Composer
from sglang_hydra.planning.plan import Plan

if TYPE_CHECKING:
    from sglang_hydra.cli.invocation import Invocation


def serve_slurm(composer: Composer, invocation: Invocation, plan: Plan) -> int:
    """``launch=slurm``: submits the plan as one job and stays with it until its end. Returns the exit code."""
    from sglang_hydra.run.launch.slurm.serve import serve

    return serve(composer, invocation, plan)
