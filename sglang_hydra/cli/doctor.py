"""``doctor``: shows what this machine has, what it lacks for a plan, and how to fix it."""

from __future__ import annotations

import os

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of, show
from sglang_hydra.facts.trust import hub_access
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.run.doctor import Examinee, doctor_record, doctor_screen, examine


def run(invocation: Invocation) -> int:
    """Shows what this machine has, and what it lacks for the plan. Returns 3 if a server could not start."""
    named = any(request.text.startswith(("model", "recipe")) for request in invocation.requests)
    plan = make_plan(composer_of(invocation), invocation.requests)
    values = plan.values
    wants = not plan.probed and plan.gpu.device is not None
    sends = plan.nodes.topology.name == "pd" or values["disaggregation_mode"] != "null"
    request = Examinee(
        python=plan.engine.python,
        model_path=str(values["model_path"]) if named and values["model_path"] else None,
        host=str(values["host"]),
        port=int(values["port"]),
        download_dir=values["download_dir"],
        device=plan.gpu.device if wants else None,
        gpu=plan.gpu.name if wants else None,
        access=hub_access((plan.origins.get("model_path") or (None,))[-1]),
        transfer=values["disaggregation_transfer_backend"] if sends else None,
        devices=values["disaggregation_ib_device"],
    )
    found = examine(os.environ | plan.as_env(), request)
    record = doctor_record(found)
    show(invocation, lambda: record, lambda: doctor_screen(found))
    return 0 if record["ok"] else 3
