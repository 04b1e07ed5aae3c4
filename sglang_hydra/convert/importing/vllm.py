"""Commands that start vLLM: the first one of a text as a command that starts SGLang."""

from __future__ import annotations

import re
import shlex

from sglang_hydra.arguments.vllm import translated
from sglang_hydra.text.findings import Finding

_START = re.compile(
    r"(?:\bvllm\s+serve|-m\s+vllm\.entrypoints\.openai\.api_server|\bvllm/vllm-openai\S*)\s+(?P<words>[^\n;&|]*)"
)


def from_vllm(text: str) -> tuple[str, list[Finding]] | None:
    """SGLang's command for vLLM's, with what has no counterpart; None for a text that starts no vLLM."""
    found = _START.search(re.sub(r"\\\n\s*", " ", text))
    if found is None:
        return None
    try:
        words = shlex.split(found["words"])
    except ValueError:  # a quote that is never closed
        return None
    argv, findings = translated(words)
    return shlex.join(["python", "-m", "sglang.launch_server", *argv]), findings
