"""What looks like a failure of SGLang and is none: another engine's log, and an image that a client asked for."""

from __future__ import annotations

import pytest

from sglang_hydra.run.diagnose.diagnosis import UNKNOWN, diagnose

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB."
READY = "[2025-06-11 08:16:00] The server is fired up and ready to roll!"
TRACE = "Traceback (most recent call last):"
FRAME = '  File "/sgl-workspace/sglang/python/sglang/srt/utils.py", line 7, in load_image'

OTHERS = {
    "vLLM": "(APIServer pid=1) INFO 12-15 18:50:00 [api_server.py:1896] vLLM API server version 0.11.0",
    "TensorRT-LLM": "[TensorRT-LLM] TensorRT-LLM version: 0.17.0",
    "text-generation-inference": "2025-06-07T13:24:34Z  INFO text_generation_launcher: Args { sharded: None }",
    "llama.cpp": "llama_model_loader: loaded meta data with 29 key-value pairs",
    "Ollama": 'time=2025-01-01T00:00:00Z level=INFO source=routes.go:1200 msg="Listening on [::]:11434"',
    "LMDeploy": "2025-01-01 00:00:00,000 - lmdeploy - INFO - async_engine.py:260 - input backend=turbomind",
}


@pytest.mark.parametrize("engine", OTHERS)
def test_nothing_is_said_of_another_engine_s_failure(engine: str) -> None:
    found = diagnose([OTHERS[engine], OOM], 1)
    assert (found.kind, found.confidence, found.finding.id) == (UNKNOWN, 0.0, "DIA000")
    assert f"a log of {engine}," in found.finding.message
    assert not found.healthy


def test_the_name_of_a_container_makes_no_log_sglang_s() -> None:
    assert diagnose([f"sglang-1  | {line}" for line in (OTHERS["vLLM"], OOM)]).kind == UNKNOWN


@pytest.mark.parametrize("line", [FRAME, "[2025-06-11 08:14:02] server_args=ServerArgs(model_path='m')"])
def test_a_log_in_which_sglang_speaks_is_diagnosed_whatever_else_is_in_it(line: str) -> None:
    assert diagnose([OTHERS["vLLM"], line, OOM]).kind == "oom_gpu"
    assert diagnose([line, OTHERS["vLLM"], OOM]).kind == "oom_gpu"


def test_sglang_s_own_use_of_other_engines_kernels_is_no_other_engine() -> None:
    lines = [
        "INFO 12-06 16:07:01 custom_all_reduce.py:233] Registering 2967 cuda graph addresses",
        "[TensorRT-LLM][ERROR] Assertion failed: Failed to initialize cutlass TMA WS grouped gemm.",
        OOM,
    ]
    assert diagnose(lines).kind == "oom_gpu"


@pytest.mark.parametrize(
    "error",
    [
        "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://images.example.com/a.png",
        "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://images.example.com/a.png",
        "requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://images.example.com/a.png",
        "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://images.example.com/a",
        "requests.exceptions.SSLError: HTTPSConnectionPool(host='images.example.com', port=443): Max retries exceeded "
        "with url: /a.png (Caused by SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] x')))",
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='images.example.com', port=443): Max retries "
        "exceeded with url: /a.png (Caused by NameResolutionError('[Errno -3] Temporary failure in name resolution'))",
    ],
)
def test_an_image_that_a_client_names_and_nobody_gives_is_no_failure_of_the_hub(error: str) -> None:
    assert diagnose([READY, TRACE, FRAME, error]).kind == UNKNOWN


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("HTTPError: 503 Server Error: x for url: https://huggingface.co/api/models/Qwen/Qwen3-8B", "hub_unreachable"),
        ("HfHubHTTPError: 429 Client Error: Too Many Requests for url: http://mirror/Q/resolve/a", "hub_unreachable"),
        ("HfHubHTTPError: 401 Client Error. (Request ID: Root=1-6)", "hub_access"),
        ("HTTPError: 404 Client Error: Not Found for url: https://modelscope.cn/api/v1/models/Q/x", "model_not_found"),
        ("403 Forbidden: Please enable access to public gated repositories in your fine-grained token settings to view"
         " this repository..", "hub_access"),
    ],
)  # fmt: skip
def test_the_hub_s_own_answers_are_told_apart(error: str, kind: str) -> None:
    assert diagnose([error]).kind == kind
