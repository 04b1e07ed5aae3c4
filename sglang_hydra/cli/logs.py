"""``logs``: shows the log of a detached server."""

from __future__ import annotations

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import typed_words


def run(invocation: Invocation) -> int:
    from sglang_hydra.run.launch import control

    return control.logs(typed_words(invocation), follow=invocation.has("follow"))
