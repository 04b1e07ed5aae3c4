"""Examines this machine for serving. Each problem comes with what to type.

What goes here: ``observe`` and the files behind it read the machine's state and judge nothing; one file per concern
judges it, one function per check. What does not: whether a plan is right (``rules.checks``), and the GPU class
(``facts``)."""

from __future__ import annotations

from collections.abc import Mapping

from sglang_hydra.run.doctor.examination import Check, Examination, State
from sglang_hydra.run.doctor.machine_state import Examinee
from sglang_hydra.run.doctor.report import doctor_record, doctor_screen

__all__ = ["Check", "Examination", "Examinee", "State", "doctor_record", "doctor_screen", "examine"]


def examine(env: Mapping[str, str], request: Examinee) -> list[Examination]:
    """Runs every check of this machine, as a server with the environment ``env`` would find it, in a fixed order; that
    of the network only where a KV cache is sent.

    Writes nothing, and starts only short queries to the request's interpreter and the vendors' tools. Never raises for
    a missing or broken part: that becomes a finding."""
    from sglang_hydra.run.doctor.checks import CHECKS
    from sglang_hydra.run.doctor.network import check_rdma
    from sglang_hydra.run.doctor.observe import observe

    world = observe(env, request)
    return [check(world) for check in CHECKS if request.transfer or check is not check_rdma]
