"""``status``: shows the detached servers, or a sweep."""

from __future__ import annotations

import os

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import typed_words
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.words import program


def run(invocation: Invocation) -> int:
    """Shows the detached servers, or a sweep if a folder was typed."""
    words = typed_words(invocation)
    if url := next((word for word in words if "://" in word), None):
        hints = [f"{program()} diff 'gpu=... model=...' {url} compares it with a plan", f"curl {url}/health asks it"]
        message = f"{url} is the address of a server, and status lists those that launch.detach=true started here"
        raise ConfigError.of("CLI026", message, hint=hints)
    if len(words) == 1 and (os.path.isdir(words[0]) or os.sep in words[0]):
        from sglang_hydra.measure.sweep.progress import status

        return status(words[0], as_json=invocation.has("json"))
    from sglang_hydra.run.launch import control

    return control.status(words, as_json=invocation.has("json"))
