"""Finds what this machine lacks for serving, each finding with what to type about it.

What goes here: ``observe`` and the files behind it look at the machine and only state what is there; one file a
concern then judges it, one check a function. What does not: whether a plan is right (``rules.checks``), and which GPU
class this is (``facts``).
"""

from __future__ import annotations

from collections.abc import Mapping

from sglang_hydra.facts.hub import OWN, Access
from sglang_hydra.run.doctor.examination import Check, Examination, State
from sglang_hydra.run.doctor.report import doctor_record, doctor_screen

__all__ = ["Check", "Examination", "State", "doctor_record", "doctor_screen", "examine"]


def examine(
    env: Mapping[str, str],
    *,
    python: str | None = None,
    model_path: str | None = None,
    host: str = "127.0.0.1",
    port: int = 30000,
    download_dir: str | None = None,
    device: str | None = None,
    gpu: str | None = None,
    access: Access = OWN,
) -> list[Examination]:
    """Every check of this machine, as a server with the environment ``env`` would find it, in one fixed order.

    ``python`` is the interpreter that runs the engine (None: ours); ``model_path`` a folder, a file or a hub id;
    ``host`` and ``port`` where the server would listen; ``download_dir`` where weights would be downloaded to, None
    for the Hugging Face cache; ``device`` (``cuda``) and ``gpu`` (``h200``) what the plan names, None for what is
    here; ``access`` is how the hub may be asked. Nothing is written or started but short-lived questions to ``python``
    and the vendors' tools. Never raises for what is missing or broken on the machine: that is what it finds.
    """
    from sglang_hydra.run.doctor.checks import CHECKS
    from sglang_hydra.run.doctor.machine_state import Request
    from sglang_hydra.run.doctor.observe import observe

    world = observe(env, Request(python, model_path, host, port, download_dir, device, gpu, access))
    return [check(world) for check in CHECKS]
