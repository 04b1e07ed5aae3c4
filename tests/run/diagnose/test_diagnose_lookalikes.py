"""What a class claims, and beside it the lines that resemble its own and are not: each keeps its distance."""

from __future__ import annotations

import pytest

from sglang_hydra.run.diagnose import UNKNOWN, diagnose

READY = "[2026-06-11 08:16:00] The server is fired up and ready to roll!"
HIT = "[2026-06-11 08:15:11 TP0] Scheduler hit an exception: Traceback (most recent call last):"
FMHA = "Error in function 'TllmGenFmhaRunner' at /x/flashinfer/trtllm/fmha/fmhaRunner.cuh:30: Unsupported architecture"
DEEP_GEMM = (
    "tvm.error.InternalError: Assertion error (/deepgemm/csrc/apis/hyperconnection.hpp:56): Unsupported architecture"
)
ASSERTED = (
    "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1231: indexSelectSmallIndex: block: [21,0,0], thread: [7,0,0] "
    "Assertion `srcIndex < srcSelectDimSize` failed."
)
HICACHE = (
    "ValueError: Not enough host memory available. Requesting 120.00 GB but only have 90.00 GB free. Please reduce the "
    "size of the hierarchical cache."
)
XID = "[Mon Jun  1 08:15:11 2026] NVRM: Xid (PCI:0000:1b:00): {}, pid=4242, name=sglang::schedul, Ch 00000008"


def frame(place: str, function: str) -> str:
    return f'  File "/usr/local/lib/python3.12/dist-packages/{place}", line 7, in {function}'


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        # the GPU, and not the model
        ([f"RuntimeError: {FMHA}"], "unsupported_gpu"),
        ([DEEP_GEMM], "unsupported_gpu"),
        (["ValueError: Unsupported architecture: InternVLNextForChat"], "unsupported_architecture"),
        (["ValueError: Model architectures ['NewForCausalLM'] are not supported for now."], "unsupported_architecture"),
        (["RuntimeError: Assertion error (/x/deepgemm/csrc/jit/compiler.hpp:176): NVCC compilation failed"],
         "compile_failure"),
        (["ValueError: --enable-kv-cache-sharding does not support this model family (pool X)."], UNKNOWN),
        (["MemoryError: insufficient free VRAM for one top-k expert working set: free=1, object=2"], "oom_gpu"),
        (["ValueError: x with trtllm_mha does not yet support PD disaggregation"], UNKNOWN),
        # a kernel's assertion, and what the driver makes of it
        ([ASSERTED, "RuntimeError: CUDA error: unspecified launch failure"], "cuda_fault"),
        (["RuntimeError: CUDA error: unspecified launch failure", ASSERTED], "cuda_fault"),
        (["NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.",
          "RuntimeError: CUDA error: unspecified launch failure"], "gpu_hardware"),
        (["compiler assertion `x` failed, trying the next tactic"], UNKNOWN),
        # the kernel's messages: a process's fault, or the hardware's
        ([XID.format(31)], "cuda_fault"),
        ([XID.format(13)], "cuda_fault"),
        ([XID.format(79)], "gpu_hardware"),
        ([XID.format(48)], "gpu_hardware"),
        (["| ERR!   45C    P0    N/A /  N/A |      0MiB / 81559MiB |    N/A      Default |"], "gpu_hardware"),
        (["Unable to determine the device handle for GPU0000:1B:00.0: Unknown Error"], "gpu_hardware"),
        # what Docker and Kubernetes say of a container
        (['            "OOMKilled": true,', '            "ExitCode": 137,'], "host_oom"),
        (['            "OOMKilled": false,', '            "ExitCode": 0,'], UNKNOWN),
        (['            "OOMKilled": false,', '            "ExitCode": 139,'], "crash"),
        (["    Last State:     Terminated", "      Reason:       OOMKilled", "      Exit Code:    137"], "host_oom"),
        (["    Last State:     Terminated", "      Reason:       Completed", "      Exit Code:    0"], UNKNOWN),
        # a wrapper never beats the cause that it quotes
        ([HIT, frame("sglang/srt/models/x.py", "forward"), "torch.OutOfMemoryError: CUDA out of memory.", "",
          "During handling of the above exception, another exception occurred:", "",
          "Traceback (most recent call last):", frame("sglang/srt/model_executor/cuda_graph_runner.py", "__init__"),
          "Exception: Capture cuda graph failed: CUDA out of memory."], "oom_graph"),
        ([HIT, frame("sglang/srt/models/x.py", "forward"), "ValueError: expected 3 and got 4", "",
          "During handling of the above exception, another exception occurred:", "",
          "Traceback (most recent call last):", frame("sglang/srt/model_executor/cuda_graph_runner.py", "__init__"),
          "Exception: Capture cuda graph failed: expected 3 and got 4"], "release_fault"),
        (["Exception: Capture cuda graph failed: expected 3 and got 4"], "graph_capture"),
        ([f"Exception: Capture prefill CUDA graph failed: {FMHA}"], "unsupported_gpu"),
        # an exception of SGLang's, and none
        ([HIT, frame("sglang/srt/managers/scheduler.py", "run_batch"), "TypeError: 'NoneType' object is not iterable"],
         "release_fault"),
        (["Traceback (most recent call last):", '  File "/home/me/eval.py", line 3, in <module>', "TypeError: x"],
         UNKNOWN),
        ([HIT, frame("sglang/srt/server_args.py", "check"), "AssertionError: dp_size must be 1"], "invalid_arguments"),
        # prefill and decode servers
        (["[2026-06-11 08:16:00] Decode transfer failed for request rank=0 with exception KVTransferError("
          "bootstrap_room=7): Aborted by AbortReq."], "pd_bootstrap"),
        ([READY, "[2026-06-11 08:16:00] Decode transfer failed for request rank=0 with exception KVTransferError("
          "bootstrap_room=7): Aborted by AbortReq.",
          '[2026-06-11 08:16:01] INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK'], UNKNOWN),
        # weights
        (["KeyError: 'model.layers.3.self_attn.qkv_proj.k_scale'"], "weights_mismatch"),
        (["KeyError: model.layers.3.mlp.experts.w2_weight_scale"], "weights_mismatch"),
        (["KeyError: 'tool_calls'"], UNKNOWN),
        # an architecture of the model, of the GPU, and of neither
        (["ValueError: Unsupported architecture for this model: InternVLNextForChat"], UNKNOWN),
        (["RuntimeError: Unsupported architecture for dense decode fwd"], "unsupported_gpu"),
        (["ValueError: a kernel that is not supported on smaller pages"], UNKNOWN),
        (["[2026-06-11 08:15:11] NewForCausalLM has no SGLang implementation, using Transformers"], UNKNOWN),
        (["ValueError: NewForCausalLM has no SGLang implementation and"], "unsupported_architecture"),
        # an argument that a function of the server, of a framework above it, of a kernel or of the command line lacks
        (["TypeError: EagleWorkerV2.forward() got an unexpected keyword argument 'x'"], "release_fault"),
        (["TypeError: Engine.async_generate() got an unexpected keyword argument 'x'"], "version_mismatch"),
        (["TypeError: gemm() got an unexpected keyword argument 'x'"], "version_mismatch"),
        (["TypeError: Engine.__init__() got an unexpected keyword argument 'tpsize'"], "bad_flag"),
        (["[2026-06-11 08:15:11] the shell says: ambiguous option, -c or -C"], UNKNOWN),
        # packages: one that is not there, and one that Python had once
        (["ModuleNotFoundError: No module named 'imp'"], "version_mismatch"),
        (["ModuleNotFoundError: No module named 'importlib_metadata'"], "missing_package"),
        (["ModuleNotFoundError: No module named 'cgitest'"], "missing_package"),
        # who may do what
        (["permission denied while trying to connect to the Docker daemon socket"], "permission_denied"),
        (["haproxy: permission denied while reading upstream"], UNKNOWN),
        # a configuration of the model's own, and one that transformers makes
        ([HIT, frame("sglang/srt/models/x.py", "__init__"),
          "AttributeError: 'NewChatConfig' object has no attribute 'h'"], "bad_config"),
        ([HIT, frame("sglang/srt/models/x.py", "__init__"),
          "AttributeError: 'NewTextConfig' object has no attribute 'h'"], "release_fault"),
        ([HIT, frame("triton/jit.py", "run"), "AttributeError: 'NoneType' object has no attribute 'h'"],
         "release_fault"),
        (["[drm] amdgpu: page fault handler registered"], UNKNOWN),
    ],
)  # fmt: skip
def test_what_resembles_a_class_is_told_apart_from_it(lines: list[str], kind: str) -> None:
    assert diagnose(lines).kind == kind


@pytest.mark.parametrize(
    ("lines", "retryable"),
    [
        (["RuntimeError: KV cache dtype mismatch: prefill server has kv_cache_dtype=fp8, but decode has bf16"], False),
        (["KVTransferError(bootstrap_room=1): Failed due to an unknown reason from another rank"], True),
    ],
)
def test_two_servers_that_are_made_differently_are_not_tried_again(lines: list[str], retryable: bool) -> None:
    found = diagnose(lines)
    assert (found.kind, found.retryable) == ("pd_bootstrap", retryable)


def test_a_cache_that_is_too_large_for_the_host_was_not_killed() -> None:
    found = diagnose([HICACHE])
    assert found.kind == "host_oom"
    assert "nothing was killed: 120.00 GB were asked for, and 90.00 GB were free" in found.finding.message
    assert "hicache_size" in str(found.finding.hint)


def test_an_exception_in_a_scheduler_is_never_healthy_whatever_comes_after() -> None:
    fault = [HIT, frame("sglang/srt/models/x.py", "forward"), "ValueError: expected 3 and got 4", ""]
    work = '[2026-06-11 08:16:01] INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK'
    found = diagnose([READY, *fault, *[work] * 60])
    assert not found.healthy
    assert found.confidence <= 0.8


def test_a_fault_of_the_release_names_its_place() -> None:
    lines = [
        HIT,
        frame("sglang/srt/managers/scheduler.py", "run_batch"),
        frame("torch/x.py", "f"),
        "ValueError: expected 3",
    ]
    found = diagnose(lines, -9)
    assert found.finding.message.endswith(": srt/managers/scheduler.py:run_batch")
    assert found.confidence <= 0.8
