"""Forms of messages, in words that no row of a table has: what each form claims, and the nearest that it must not."""

from __future__ import annotations

import pytest

from sglang_hydra.run.diagnose.diagnosis import UNKNOWN, diagnose

HIT = "[2026-06-11 08:15:11 TP0] Scheduler hit an exception: Traceback (most recent call last):"
ASSERTED = "RuntimeError: Assertion error (csrc/apis/gemm.hpp:95): "


def raised(place: str, function: str, *lines: str) -> list[str]:
    """The lines as a scheduler's traceback ends in them."""
    path = f"/usr/local/lib/python3.12/dist-packages/{place}"
    return [HIT, f'  File "{path}", line 7, in {function}', *lines, ""]


LORA = ("sglang/srt/lora/mem_pool.py", "get_tensor")
LOADER = ("sglang/srt/layers/moe/fused_moe_triton/layer.py", "_load_w2")
MODEL = ("sglang/srt/models/new.py", "__init__")
BACKEND = ("sglang/srt/layers/attention/new_backend.py", "forward_extend")
IMPORT = "ImportError: cannot import name 'get_size' from 'sglang.srt.layers.dp_attention' (/x/dp_attention.py)"

ONE_LINE = [
    # a GPU that kernels do not know
    ("unsupported_gpu", ASSERTED + "arch_major == 9 or arch_major == 10"),
    ("release_fault", ASSERTED + "m == m_ and k == k_"),
    ("unsupported_gpu", "DSLRuntimeError: expects arch to be one of [Arch.sm_100a, Arch.sm_103a], but got x"),
    ("unsupported_gpu", "RuntimeError: the matrix product needs compute capability of at least 9.0"),
    (UNKNOWN, "[2026-06-11 08:15:11] compute capability of the device: 9.0"),
    ("unsupported_gpu", "AssertionError: expected sm90 or sm103"),
    (UNKNOWN, "AssertionError: expected small or large"),
    ("unsupported_backend", "RuntimeError: FlashMLA is only supported on Hopper GPUs"),
    ("unsupported_gpu", "RuntimeError: Unsupported gfx1201: this kernel only supports gfx942 and gfx950"),
    ("unsupported_gpu", "ValueError: type fp8e5 not supported in this architecture"),
    ("unsupported_gpu", "CUDA_ERROR_NO_BINARY_FOR_GPU (209)"),
    # the names of the runtime's errors, each for what it is, and none for what only sounds like one
    ("cuda_fault", "RuntimeError: cudaErrorSomethingNew"),
    ("cuda_fault", "level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"),
    ("oom_gpu", "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"),
    ("graph_capture", "cudaErrorStreamCaptureUnjoined"),
    ("gpu_hardware", "CUDA_ERROR_NVLINK_UNCORRECTABLE"),
    ("driver_too_old", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
    ("kernel_resources", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
    ("no_gpu", "CUDA_ERROR_NO_DEVICE"),
    ("too_few_gpus", "CUDA_ERROR_INVALID_DEVICE"),
    (UNKNOWN, "cudaErrorNotReady is what a query of an event returns meanwhile"),
    ("gpu_occupied", "torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    ("oom_gpu", "RuntimeError: CUDA driver error: 2 (out of memory)"),
    # kernels on other makers' GPUs
    ("cuda_fault", "HW Exception by GPU node-1 (Agent handle: 0x55) reason :GPU Hang"),
    ("cuda_fault", "Memory access fault by GPU node-1 on address (nil). Reason: Page not present"),
    ("cuda_fault", "Queue 0x7f aborting with error : HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent attempted"),
    ("oom_gpu", "HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources"),
    ("cuda_fault", "EZ9999: Inner Error! there is an exception of aicore error, core id is 0"),
    (UNKNOWN, "[2026-06-11 08:15:11] aicore utilization of the device: 93 %"),
    ("cuda_fault", "NPU function error: call aclnnFill failed, error code is 507000"),
    ("release_fault", "NPU function error: call aclnnMatmul failed, error code is 161002"),
    ("cuda_fault", "KernelLaunch failed because value 0 for parameter blockDim is invalid."),
    ("nccl_timeout", "EI0006: Getting socket times out. Reason: Remote Rank did not send the data in time."),
    ("nccl_error", "RuntimeError: HCCL function error: HcclCommInitRootInfoConfig, error code is 7"),
    # compilers
    ("compile_failure", "/home/me/.cache/tvm-ffi/x/cuda.cu(45): error: identifier \"__nv_fp4_e2m1\" is undefined"),
    ("compile_failure", "kernel.cuh:38:10: fatal error: 'cuda_fp8.h' file not found"),
    ("cuda_fault", "CUDA error (/x/kernel.cuh:38): an error that has no name"),
    ("compile_failure", "/bin/sh: line 1: /opt/rocm/bin/hipcc: No such file or directory"),
    ("compile_failure", "RuntimeError: ninja exited with status 1"),
    ("compile_failure", "LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.shfl.sync.bfly.i32"),
    ("compile_failure", "hipcc: error: clang frontend command failed with exit code 70"),
    # a library that has no kernel for what was asked, and a kernel that only is mentioned
    ("unsupported_backend", "RuntimeError: gemm: cannot get heuristic kernel! q_type:bf16 gqa:8"),
    ("unsupported_backend", "RuntimeError: No valid tactic found for this GEMM"),
    ("unsupported_backend", "RuntimeError: Missing TRTLLM-GEN kernel (decode): qkvLayout=2"),
    ("unsupported_backend", "ValueError: Unsupported head dim: 106"),
    (UNKNOWN, "[2026-06-11 08:15:11] no kernel found in the cache, tuning one"),
    # what only is a warning, or was done without
    (UNKNOWN, "[2026-06-11 08:15:11] Failed to set up x: undefined symbol: y. Disabling x fusion permanently."),
    ("version_mismatch", "ImportError: /x/common_ops.so: undefined symbol: y"),
    # ranks and servers
    ("expert_parallel_comm", "RuntimeError: CUDA driver exception (/x/DeepEP-main/csrc/utils/memory.hpp:69): 800 (x)"),
    ("expert_parallel_comm", "RuntimeError: mori dispatch failed: the heap is too small"),
    (UNKNOWN, "RuntimeError: memorized dispatch failed"),
    ("peer_lost", "[W509 02:29:39.49 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=1): Broken pipe"),
    ("peer_lost", "torch.distributed.DistNetworkError: failed to recv, got 0 bytes"),
    ("nccl_timeout", "what():  [enforce fail at /x/pair.cc:456] op.preamble.length <= op.nbytes. 4 vs 3"),
    ("pd_bootstrap", "E0611 08:15:11.1 42 rdma_context.cpp:200] Failed to open device mlx5_9"),
    (UNKNOWN, "I0611 08:15:11.1 42 rdma_context.cpp:200] Failed over to device mlx5_1"),
    # packages and the hub
    ("version_mismatch", "RuntimeError: operator torchvision::nms does not exist"),
    ("missing_package", "ImportError: aiter is required when SGLANG_USE_AITER is set to True"),
    ("missing_package", "RuntimeError: cuda.bindings is not available. Install it with: pip install cuda-python"),
    ("hub_unreachable", "'[Errno 101] Network is unreachable' thrown while requesting HEAD https://huggingface.co/m/x"),
    (UNKNOWN, "'[Errno 101] Network is unreachable' thrown while requesting GET https://example.org/image.png"),
    # the model
    ("unsupported_architecture", "KeyError: 'gemma5_assistant'"),
    (UNKNOWN, "KeyError: 'gemma_assistant'"),
    ("unsupported_architecture", "ValueError: Unrecognized configuration class <class 'x.NewConfig'> for AutoModel"),
    ("bad_config", "AttributeError: 'NewModelConfig' object has no attribute 'num_experts'"),
    ("release_fault", "AttributeError: 'Fp8OnlineConfig' object has no attribute 'ignored'"),
    ("quantization", "RuntimeError: Invalid thread config for MKN = [24, 2880] and num_bits = 8, group_size = 64"),
    ("weights_mismatch", "RuntimeError: Some weights are not initialized from checkpoints: {'lm_head'}"),
    # SGLang's own classes and what its code takes for granted
    ("release_fault", "TypeError: NewTokenToKVPool.get_cpu_copy() got an unexpected keyword argument 'x'"),
    ("version_mismatch", "TypeError: DynamicCache.update() got an unexpected keyword argument 'x'"),
    (UNKNOWN, "ValueError: the answer is None of these"),
    ("invalid_arguments", "AssertionError: Please enable dp attention when setting enable_dp_lm_head."),
    ("invalid_arguments", "ValueError: New cache is not compatible with --page-size of more than 1."),
    ("warmup_failed", "[2026-06-11 08:15:11] Prefill warmup failed: 'X' object is not subscriptable"),
    # features that exclude each other, alone and quoted; and what a wrapper quotes
    ("invalid_arguments", "AssertionError: speculative decoding does not support pipeline parallelism yet"),
    ("invalid_arguments", "Exception: Capture cuda graph failed: --enable-x requires --disable-y"),
    ("unsupported_backend", "Exception: Capture cuda graph failed: Unsupported dtype x. Supported: bfloat16, float16"),
    ("release_fault", "Exception: Capture cuda graph failed: not enough values to unpack (expected 6, got 5)"),
    ("release_fault", "RuntimeError: Expected a.size(0) == B to be true, but got false.  (Could this error message be "
     "improved?  If so, please report an enhancement request to PyTorch.)"),
    (UNKNOWN, "RuntimeError: The size of tensor a (8) must match the size of tensor b (4) at dimension 1"),
    # what ranks share, and what else is divided
    ("parallel_size", "AssertionError: num_heads (30) must be divisible by attn_tp_size (4)"),
    (UNKNOWN, "AssertionError: token count 30 is not divisible by 4"),
    # packages that are too old, or not there; memory of the host
    ("version_mismatch", "ImportError: Please upgrade your 'mooncake-engine' installation to 0.3.11 or above."),
    ("version_mismatch", "ImportError: Can't import moe_x from flashinfer. Please check flashinfer version."),
    ("missing_package", "AssertionError: please make sure vocos is installed."),
    ("missing_package", "ImportError: Please install mooncake to run SGLang with MooncakeTransferEngine."),
    ("host_oom", "ValueError: No host memory is left for HiCache after the 10 GiB reserve; set --hicache-ratio"),
    # a library that both ranks and servers use
    (UNKNOWN, "[mori]ibverbs.cpp:168: syscall failed with Connection timed out"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "line"), ONE_LINE, ids=lambda part: part[:60])
def test_a_form_of_message_is_known_by_its_form(kind: str, line: str) -> None:
    assert diagnose([line]).kind == kind


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        # frames and exception indented alike
        ("release_fault", ["08:14:25  [DP0 TP0] Scheduler hit an exception",
                           '          File ".../speculative/worker.py", line 1158, in forward',
                           "            if pool.ratio != 128:",
                           "          AttributeError: 'StatePool' object has no attribute 'ratio'"]),
        # the line below a compiler's says what of the kernel it is
        ("unsupported_gpu", ["triton.compiler.errors.CompilationError: at 1:0:", "def kernel(", "^",
                             'ValueError("type fp8e4nv not supported in this architecture")']),
        ("compile_failure", ["triton.compiler.errors.CompilationError: at 1:0:", "def kernel(", "^",
                             "AssertionError: Unsupported rhs dtype fp8e5"]),
        # a name of sglang's, wanted by itself or by what stands above it
        ("release_fault", raised("sglang/srt/layers/cp/utils.py", "<module>", IMPORT)),
        ("version_mismatch", raised("verl/workers/rollout/sglang_rollout.py", "<module>", IMPORT)),
        ("version_mismatch", [IMPORT]),
        # an adapter that does not fit, and code that does not
        ("lora", raised(*LORA, "ValueError: the rank of the adapter is above the pool's")),
        ("lora", raised(*LORA, "KeyError: 'gate_up_proj_moe'")),
        ("release_fault", raised(*LORA, "TypeError: object of type 'NoneType' has no len()")),
        ("release_fault", raised(*LORA, "    assert lora_lm_head_module is not None", "AssertionError")),
        # the part of a later rank, and of the first
        ("parallel_size", raised(*LOADER, "RuntimeError: start (8) + length (8) exceeds dimension size (8).")),
        ("weights_mismatch", raised(LOADER[0], "weight_loader",
                                    "RuntimeError: start (0) + length (16) exceeds dimension size (8).")),
        ("release_fault", raised("sglang/srt/mem_cache/x.py", "take",
                                 "RuntimeError: start (8) + length (8) exceeds dimension size (8).")),
        # what a model's class wants
        ("invalid_arguments", raised(*MODEL, "ValueError: NewModel pipeline parallelism is not supported")),
        ("release_fault", raised(*MODEL, "ValueError: expected 3 layers")),
        ("weights_mismatch", raised(MODEL[0], "permute_qk_weight_for_rotary",
                                    "RuntimeError: shape [8,64] invalid for input of size 2621440")),
        # what a backend wants of who starts it, and a value that its own code left out
        ("unsupported_backend", raised(*BACKEND, "AssertionError: the sparse path requires a page size of 64")),
        ("release_fault", raised(*BACKEND, "AssertionError: the sparse path requires page_table_of_draft")),
        # a configuration that transformers refuses, and one that SGLang asks for what it does not have
        ("bad_config", raised("transformers/modeling_rope_utils.py", "validate", "KeyError: 'rope needs a factor'")),
        ("release_fault", [*raised(*MODEL, "")[:-2],
                           *raised("transformers/configuration_utils.py", "__getattribute__",
                                   "AttributeError: 'NewTextConfig' object has no attribute 'num_experts'")[2:]]),
        # pages of one server, and of two
        ("release_fault", raised(*BACKEND, "AssertionError: page_size mismatch: cache has 64, expected 1")),
        ("pd_bootstrap", raised("sglang/srt/disaggregation/common/conn.py", "connect",
                                "RuntimeError: page size mismatch: prefill server has 64, decode server has 1")),
        # a feature that another part of SGLang does not have, and a request that asks for one
        ("release_fault", raised("sglang/srt/mem_cache/x.py", "take", "ValueError: x is not supported with fp8 yet")),
        ("unsupported_backend", raised("sglang/kernels/ops/attention/x.py", "run",
                                       "NotImplementedError: x is only supported on sm90 and above")),
        ("release_fault", raised("sglang/kernels/ops/attention/x.py", "run",
                                 "ValueError: x requires contiguous rows")),
        # a kernel's arguments, as the vendor's lines say below the exception
        ("release_fault", raised("sglang/srt/layers/x.py", "apply",
                                 "RuntimeError: NPU function error: call aclnnMatmul failed, error code is 161002",
                                 "[ERROR] ERR00100 PTA call acl api failed.", "AclNN_Parameter_Error(EZ1001): x")),
        ("cuda_fault", raised("sglang/srt/layers/x.py", "apply",
                              "RuntimeError: NPU function error: call aclnnMatmul failed, error code is 507035",
                              "[ERROR] ERR00100 PTA call acl api failed.")),
    ],
)  # fmt: skip
def test_a_form_is_told_apart_by_where_it_was_raised_and_what_stands_around(kind: str, lines: list[str]) -> None:
    assert diagnose(lines).kind == kind


def test_a_server_that_was_stopped_may_lose_its_peers() -> None:
    lines = [
        "[2026-06-11 08:16:00] The server is fired up and ready to roll!",
        '[2026-06-11 08:16:01] INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK',
        "[2026-06-11 08:17:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
        "[rank1]:[W611 08:17:01.1 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=1): Broken pipe",
    ]
    assert diagnose(lines).kind == UNKNOWN
