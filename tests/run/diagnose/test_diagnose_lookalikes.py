"""What a class claims, and beside it the lines that resemble its own and are not: each keeps its distance."""

from __future__ import annotations

import pytest

from sglang_hydra.run.diagnose.diagnosis import UNKNOWN, diagnose

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
        (["ValueError: --enable-kv-cache-sharding does not support this model family (pool X)."], "invalid_arguments"),
        (["MemoryError: insufficient free VRAM for one top-k expert working set: free=1, object=2"], "oom_gpu"),
        (["ValueError: x with trtllm_mha does not yet support PD disaggregation"], "invalid_arguments"),
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
          "bootstrap_room=7): Aborted by AbortReq."], UNKNOWN),
        ([READY, "[2026-06-11 08:16:00] Decode transfer failed for request rank=0 with exception KVTransferError("
          "bootstrap_room=7): Aborted by AbortReq.",
          '[2026-06-11 08:16:01] INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK'], UNKNOWN),
        (["[2026-06-11 08:15:00] Decode transfer failed for request rank=0 with exception KVTransferError("
          "bootstrap_room=7): Failed to get kvcache from prefill instance, it might be dead",
          HIT, frame("sglang/srt/disaggregation/decode.py", "pop"), "TypeError: 'NoneType' object is not iterable"],
         "release_fault"),
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
        # a kernel's host code, a kernel, and its allocator
        (["tvm.error.InternalError: Tensor match failed for Tensor<64, 4>[strides=<4, 1>]"], "release_fault"),
        (["tvm.error.InternalError: Error in function 'Plan' at /x/scheduler.cuh:52: indptr should be non-negative"],
         "release_fault"),
        (["tvm.error.InternalError: CUDA driver error (/x/h.hpp:72): 719 (CUDA_ERROR_LAUNCH_FAILED)"], "cuda_fault"),
        (["RuntimeError: Error in function 'run' at /x/gemm_runner.cu:258: Error occurred when running GEMM!"],
         "cuda_fault"),
        (["/x/torch-xpu-ops/src/ATen/native/xpu/sycl/Kernels.cpp:18: operator(): Assertion `input_[0] != 0` failed."],
         "cuda_fault"),
        # a backend that may not be chosen, by its words or by the list of those that may
        (["RuntimeError: FlashAttention on Ampere/Ada cards only supports fp16 and bf16 data type"],
         "unsupported_backend"),
        (["Exception: Capture cuda graph failed: FlashAttention only support fp16 and bf16 data type"],
         "unsupported_backend"),
        (["AssertionError: KV4 MHA expects attention_backend to be one of ['triton', 'trtllm_mha'], but got fa3"],
         "unsupported_backend"),
        (["[2026-06-11 08:15:11] Supported backends: ['triton', 'trtllm_mha'], fa3 was chosen"], UNKNOWN),
        (["TypeError: FlashInfer A2A + FP8 MoE requires a BF16 dispatch payload, got torch.float8_e4m3fn."],
         "unsupported_backend"),
        # what is too old, and what is only named with its version
        (["NotImplementedError: this module is only supported on Cuda toolkit 13.1 and above!"], "version_mismatch"),
        (["ValueError: torch 2.9.1 gave 3 outputs, 4 were wanted"], UNKNOWN),
        # MoRI moves the cache, and it exchanges tokens
        (["[mori]src/io/rdma/backend_impl.cpp:801: BuildRdmaConn: Assertion `hdr.type == x' failed."], "pd_bootstrap"),
        (["[mori]src/shmem/init.cpp:80: init: Assertion `heap' failed."], "expert_parallel_comm"),
        # a fault of the code that checks the arguments
        ([HIT, frame("sglang/srt/server_args.py", "__post_init__"),
          "TypeError: '>' not supported between instances of 'NoneType' and 'int'"], "release_fault"),
        # Python's own words for code that is wrong: SGLang's, or a client's
        (["TypeError: 'NoneType' object is not subscriptable"], "release_fault"),
        (["Exception: Capture cuda graph failed: list index out of range"], "release_fault"),
        (["Traceback (most recent call last):", '  File "/home/me/eval.py", line 3, in <module>',
          "IndexError: list index out of range"], UNKNOWN),
        # a traceback of SGLang without its first lines, and one of a handler of requests
        ([frame("sglang/srt/layers/linear.py", "forward"), frame("torch/nn/functional.py", "linear"),
          "RuntimeError: mat1 and mat2 shapes cannot be multiplied (6x128 and 64x3)"], "release_fault"),
        ([frame("sglang/srt/entrypoints/openai/serving_chat.py", "create"), "ValueError: n must be 1"], UNKNOWN),
        # an exception above its frames, of SGLang and of a client
        (["RuntimeError: mat1 and mat2 shapes cannot be multiplied (6x128 and 64x3)",
          frame("sglang/srt/models/x.py", "forward"), "    return self.proj(x)"], "release_fault"),
        (["RuntimeError: mat1 and mat2 shapes cannot be multiplied (6x128 and 64x3)",
          '  File "/home/me/eval.py", line 3, in <module>'], UNKNOWN),
        # a queue that has nothing yet, and threads that are too many
        ([HIT, frame("sglang/srt/managers/scheduler.py", "recv"), "zmq.error.Again: Resource temporarily unavailable"],
         "release_fault"),
        (["libgomp: Thread creation failed: Resource temporarily unavailable"], "too_many_processes"),
        ([HIT, frame("sglang/srt/utils/common.py", "run"), "subprocess.TimeoutExpired: Command 'x' timed out"],
         "release_fault"),
        # SGLang's arguments, wanted by a framework that knows another release
        ([frame("slime/backends/sglang_engine.py", "launch"),
          "AttributeError: 'ServerArgs' object has no attribute 'encoder_only'"], "version_mismatch"),
        (["NVRM: Check failed: Out of memory [NV_ERR_NO_MEMORY] @ mem_desc.c:1359"], "oom_gpu"),
        (["NVRM: a check failed, and memory was there"], UNKNOWN),
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
    assert "nothing was killed: 120.00 GB were requested; 90.00 GB were free" in found.finding.message
    assert "hicache_size" in str(found.finding.hint)


RUN = frame("sglang/srt/managers/scheduler.py", "run_scheduler_process")
RAISED = (RUN, frame("sglang/srt/models/x.py", "forward"))
EXPECTED = "ValueError: expected 3 and got 4"
WORK = '[2026-06-11 08:16:01] INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK'
DECODE = "[2026-06-11 08:16:01 TP0] Decode batch. #running-req: 4, #token: 9071, #queue-req: 0"
CHAINED = "During handling of the above exception, another exception occurred:"


@pytest.mark.parametrize(
    "fault",
    [
        [HIT, *RAISED, EXPECTED],
        [HIT, EXPECTED],
        [HIT],
        [HIT.replace("Traceback (most recent call last):", "")],
        [HIT.replace("Traceback (most recent call last):", ""), HIT[HIT.index("Traceback") :], *RAISED, EXPECTED],
        [HIT.replace("Traceback (most recent call last):", EXPECTED)],
        [HIT.replace("Scheduler", "TpModelWorkerClient"), RAISED[1], EXPECTED],
        [HIT.replace("Scheduler", "DetokenizerManager"), RAISED[1], EXPECTED],
        [HIT, *RAISED, "RuntimeError: the kernel failed, falling back to triton"],
        [HIT, *RAISED, "RuntimeError: the store is gone, will retry"],
        [HIT, *RAISED, "    assert x", "AssertionError"],
        [HIT, *RAISED, "sglang.srt.models.x.NoSlots: none left"],
        [HIT, *RAISED, "NoSlots: none left"],
        [HIT, *RAISED, "KeyError: 4"],
        [HIT, *RAISED, "KeyError: 4", "", CHAINED, "", "Traceback (most recent call last):", *RAISED, EXPECTED],
        ["Exception in thread Thread-3 (forward_thread_func):", "Traceback (most recent call last):", RAISED[1],
         EXPECTED],
        [*RAISED, EXPECTED],
        [HIT, HIT.replace("TP0", "TP1"), RUN, RUN, *RAISED, *RAISED, EXPECTED, EXPECTED],
        [f"(SGLangEngine pid=2) {line}" for line in (HIT, *RAISED, EXPECTED)],
        [f"sglang-1  | {line}" for line in (HIT, *RAISED, EXPECTED)],
        [f"    {line}" for line in (HIT, *RAISED, EXPECTED)],
        ["[2026-06-11 08:16:01] Subprocess scheduler_0 (pid=4) crashed with exit code -3. Triggering SIGQUIT"],
        ["[2026-06-11 08:16:01 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("after", [WORK, DECODE])
def test_an_exception_in_a_scheduler_is_never_healthy_whatever_comes_after(fault: list[str], after: str) -> None:
    found = diagnose([READY, *fault, "", *[after] * 60])
    assert not found.healthy
    assert found.confidence <= 0.8 or found.kind == "watchdog_timeout"


def test_a_scheduler_that_ended_is_not_acquitted_by_answers() -> None:
    found = diagnose([READY, HIT, *RAISED, EXPECTED, "", *[WORK] * 60])
    assert (found.kind, found.confidence) == ("release_fault", 0.7)


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
