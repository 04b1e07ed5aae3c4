"""Translates the first vLLM command of a text into a command that starts SGLang."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from sglang_hydra.arguments.vllm import translated
from sglang_hydra.text.budget import read_documents
from sglang_hydra.text.findings import Finding

_IMAGE = "vllm/vllm-openai"
_ADDRESS = {"--host": "0.0.0.0", "--port": "8000"}
"""vLLM's defaults; SGLang's are 127.0.0.1 and 30000."""
_START = re.compile(
    r"(?P<variables>(?:\b[A-Z][A-Z0-9_]*=\S*[ \t]+)*)"
    r"(?:\bvllm\s+serve|-m\s+vllm\.entrypoints\.openai\.api_server|\bvllm/vllm-openai\S*)[ \t]+(?P<words>[^\n;&|]*)"
)


def from_vllm(text: str) -> tuple[str, list[Finding]] | None:
    """Returns SGLang's command for vLLM's, with findings on parts without a counterpart; None without vLLM."""
    try:
        words = next(_of_containers(text), None)
        found = None if words else _START.search(re.sub(r"\\\n\s*", " ", text))
        words = shlex.split(re.split(r"\s\d?>", found["words"])[0]) if found else words
    except ValueError:  # a quote that is never closed
        return None
    if words is None:
        return None
    starts = [at for at, word in enumerate(words[:4], 1) if word == "serve" or word.startswith("vllm.entrypoints")]
    words = words[starts[-1] if starts else 0 :]
    # An item of a list that is a flag and its value
    words = [part for word in words for part in (word.split(" ", 1) if word[:1] == "-" else [word])]
    argv, findings = translated(words)
    for flag, value in _ADDRESS.items():
        if flag not in argv:
            argv += [flag, value]
            findings.append(Finding("info", "IMP018", f"vLLM's {flag} is {value} where nothing sets it", ()))
    variables = [word for word in (found["variables"].split() if found else ()) if word[:5] != "VLLM_"]
    return shlex.join([*variables, "python", "-m", "sglang.launch_server", *argv]), findings


def _of_containers(text: str) -> Iterator[list[str]]:
    """Yields the flags of each container of a manifest that has vLLM's image."""
    if _IMAGE not in text:
        return
    import yaml

    try:
        waiting: list[object] = read_documents(text, "manifest")
    except (ValueError, RecursionError, yaml.YAMLError):
        return
    while waiting:
        node = waiting.pop()
        waiting += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        if isinstance(node, dict) and _IMAGE in str(node.get("image")):
            words = node.get("args") or node.get("command") or []
            yield [str(word) for word in words] if isinstance(words, list) else shlex.split(str(words))
