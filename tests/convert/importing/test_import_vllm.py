"""Deployments of vLLM: the flags of its container are SGLang's, and none of its lines is taken for a model."""

from __future__ import annotations

import shlex

import pytest

from sglang_hydra.convert.importing.vllm import from_vllm

FLAGS = ["--model", "Qwen/Qwen3-8B", "--tensor-parallel-size", "2", "--max-num-seqs", "64"]
IMAGE = "image: vllm/vllm-openai:v0.9"


@pytest.mark.parametrize(
    "text",
    [
        f"spec:\n  containers:\n  - {IMAGE}\n    args: [{', '.join(FLAGS)}]\n",
        f"---\nkind: Service\n---\nspec:\n  containers:\n  - {IMAGE}\n    args:\n"
        + "".join(f'    - "{flag}"\n' for flag in FLAGS),
        f"services:\n  a:\n    {IMAGE}\n    command: {' '.join(FLAGS)}\n",
        f"docker run --gpus all vllm/vllm-openai:v0.9 {' '.join(FLAGS)}",
        f"vllm serve {' '.join(FLAGS)}",
    ],
    ids=["Kubernetes, one line", "Kubernetes, a line each", "Compose", "docker", "command"],
)
def test_flags_of_vllm_are_read_wherever_they_stand(text: str) -> None:
    found = from_vllm(text)
    assert found is not None
    words = shlex.split(found[0])
    assert words[:3] == ["python", "-m", "sglang.launch_server"]
    options = dict(zip(words[3::2], words[4::2], strict=True))
    assert options.pop("--host") == "0.0.0.0"
    assert options.pop("--port") == "8000"
    assert options == {"--model-path": "Qwen/Qwen3-8B", "--tp-size": "2", "--max-running-requests": "64"}


@pytest.mark.parametrize("text", ["image: vllm/vllm-openai:v0.9\n", f"a: [1\n{IMAGE}\n"], ids=["no flags", "no YAML"])
def test_what_has_no_flags_names_no_model(text: str) -> None:
    found = from_vllm(text)
    assert found is None or "--model-path" not in found[0]
