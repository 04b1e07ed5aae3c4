"""Finds what this machine lacks for serving, each finding with what to type about it.

What goes here: ``observe`` and the files behind it look at the machine and only state what is there; one file a
concern then judges it, one check a function. What does not: whether a plan is right (``rules.checks``), and which GPU
class this is (``facts``).
"""

from __future__ import annotations

from collections.abc import Mapping

from sglang_hydra.run.doctor.examination import Check, Examination, State
from sglang_hydra.run.doctor.machine_state import Request
from sglang_hydra.run.doctor.report import doctor_record, doctor_screen

__all__ = ["Check", "Examination", "Request", "State", "doctor_record", "doctor_screen", "examine"]


def examine(env: Mapping[str, str], request: Request) -> list[Examination]:
    """Returns every check of this machine, as a server with the environment ``env`` would find it, in one fixed order.

    Nothing is written or started but short-lived questions to the request's interpreter and the vendors' tools. Never
    raises for what is missing or broken on the machine: that is what it finds.
    """
    from sglang_hydra.run.doctor.checks import CHECKS
    from sglang_hydra.run.doctor.observe import observe

    world = observe(env, request)
    return [check(world) for check in CHECKS]
