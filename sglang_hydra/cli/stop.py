"""``stop``: ends detached servers."""

from __future__ import annotations

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import typed_words


def run(invocation: Invocation) -> int:
    from sglang_hydra.run.launch import control

    return control.stop(typed_words(invocation), as_json=invocation.has("json"))
