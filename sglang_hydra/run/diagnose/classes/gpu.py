"""The GPU and what drives it."""

from __future__ import annotations

import re

from sglang_hydra.run.diagnose.failure_class import FailureClass, Weight, sign

_DRIVER = re.compile(r"found version (\d+)|driver.{0,40}?(\d{3}\.\d+)|cuda>=([\d.]+)")


def _version(line: str) -> str | None:
    found = _DRIVER.search(line)
    if found is None:
        return None
    return f"version {found[1] or found[2]} is installed" if found[1] or found[2] else f"CUDA {found[3]} is needed"


_FABRIC_MANAGER = (
    "systemctl start nvidia-fabricmanager, of the driver's very version (apt-get install nvidia-fabricmanager-NNN), on "
    "the machine itself; or nvidia-smi -q -i 0, whose Fabric part says how far it is"
)

CLASSES = (
    FailureClass(
        "DIA028",
        "driver_too_old",
        "the NVIDIA driver is older than the CUDA that this build needs",
        "torch and the kernels are built for one CUDA release, and each needs a driver of some age. Inferred: in a "
        "container the driver is the host's, so another image is the shorter way, a new driver the lasting one.",
        "an image, or torch, for an older CUDA (cu126 instead of cu129); or a newer driver on the host",
        (
            sign("driver on your system is too old", in_warning=True),
            sign("driver version is insufficient for CUDA runtime version"),
            sign("unsatisfied condition: cuda>="),
            sign("requirement error", r"unsatisfied condition: cuda"),
            sign("please update your driver"),
            sign("provided PTX was compiled with an unsupported toolchain"),
            sign("Failed to initialize NVML: Driver/library version mismatch", in_warning=True),
            sign("Driver/library version mismatch", in_warning=True),
            sign("cudaErrorInsufficientDriver"),
            sign("forward compatibility was attempted on non supported HW", in_warning=True),
            sign("cudaErrorCompatNotSupportedOnDevice"),
            sign("system has unsupported display driver / cuda driver combination", in_warning=True),
        ),
        details=_version,
    ),
    FailureClass(
        "DIA029",
        "no_gpu",
        "no GPU is visible to the server",
        "SGLang found no accelerator. Inferred: the container was started without GPUs, the driver is not loaded, "
        "CUDA_VISIBLE_DEVICES hides them, torch was installed for CPUs only, or fabric manager is not running.",
        "docker run --gpus all, or resources.limits nvidia.com/gpu on Kubernetes, or --gres=gpu:N on Slurm; or "
        "nvidia-smi, to see what the machine has; or gpu=cpu, for SGLang's CPU engine",
        (
            sign("No accelerator ("),
            sign("has no attribute '_cuda_"),
            sign("No supported accelerator"),
            sign("Torch not compiled with CUDA enabled"),
            sign("Found no NVIDIA driver on your system"),
            sign("No CUDA GPUs are available"),
            sign("no CUDA-capable device is detected"),
            sign("cudaErrorNoDevice"),
            sign("No HIP GPUs are available"),
            sign("could not select device driver"),
            sign("nvidia-container-cli: initialization error"),
            sign("nvidia-smi not found"),
            sign("rocm-smi not found"),
            sign("hl-smi not found"),
            sign("nvidia-smi has failed because"),
            sign("NVIDIA-SMI has failed because"),
            sign("libcuda.so.1: cannot open shared object file"),
            # Machines with NVSwitch: pytorch/pytorch#35710, gpustack/gpustack#4154.
            *(
                sign(words, in_warning=True, advice=_FABRIC_MANAGER)
                for words in ("CUDA error: system not yet initialized", "Error 802: system not yet initialized")
            ),
            sign("CUDA driver initialization failed"),
            sign("cuda unknown error"),
            sign("CUDA unknown error", in_warning=True),
            sign("-smi error: ", None, Weight.GENERAL, exception=True),
            sign("0 active drivers", None, Weight.GENERAL),
            sign("Found 0 GPUs", None, Weight.GENERAL),
            sign("PyTorch was compiled without CUDA support"),
            sign("Cannot access accelerator device when none is available"),
            sign("NVML Shared Library Not Found", exception=True),
        ),
        fields=("device",),
    ),
    FailureClass(
        "DIA030",
        "too_few_gpus",
        "more GPUs are asked for than are visible",
        "Each rank takes one GPU, from base_gpu_id on in steps of gpu_id_step; the last ones are not there.",
        "tp_size=N, at most the GPUs of this node; or nnodes=2, for more; or CUDA_VISIBLE_DEVICES with all of them",
        (
            sign("invalid device ordinal"),
            sign("cudaErrorInvalidDevice"),
            sign("Invalid device id"),
            sign("invalid device id"),
            sign("Duplicate GPU detected", in_warning=True),
            sign("does not have enough GPU"),
            sign("exceeds the number of visible"),
            sign("nvidia-container-cli: device error", r"unknown device"),
        ),
        fields=("tp_size", "dp_size", "pp_size", "base_gpu_id"),
    ),
    FailureClass(
        "DIA031",
        "unsupported_gpu",
        "this build has no kernels for this GPU",
        "GPUs older than SM75 are not supported at all: SGLang stops before it loads the weights. Inferred: kernels "
        "are compiled for a list of compute capabilities, and newer GPUs need a build (torch, sgl-kernel, image) that "
        "came after them.",
        "an image or wheels built for this GPU (Blackwell: cu128 or later); or another GPU; or dtype=half below SM80",
        (
            sign("no kernel image is available for execution on the device"),
            sign("cudaErrorNoKernelImageForDevice"),
            sign("SGLang only supports sm75 and above"),
            sign("Bfloat16 is only supported on GPUs with compute capability"),
            sign("is not compatible with the current PyTorch installation", in_warning=True, weight=Weight.GENERAL),
            sign("PyTorch no longer supports this GPU", in_warning=True, weight=Weight.GENERAL),
            sign("only supported for compute capability"),
            sign("Unsupported compute capability"),
            sign("Unsupported GPU architecture"),
            sign("No supported CUDA architectures found"),
            sign("is not defined for option 'gpu-architecture'"),
            sign("is not defined for option 'gpu-name'"),
            sign("requires .target sm_"),
            sign("invalid device function"),
            sign("device kernel image is invalid"),
            sign("for current compute capability", exception=True),
            sign("with compute capability", r"only supported on .*with compute capability", exception=True),
            sign("FlashInfer requires GPUs with sm"),
            sign("hipErrorNoBinaryForGpu"),
            sign("type fp8e4nv not supported in this architecture"),
            sign("requires compute capability", exception=True),
            sign("requires SM", r"(?:Error|assert).*requires SM ?\d+", exception=True),
        ),
        fields=("dtype", "attention_backend", "quantization"),
    ),
    FailureClass(
        "DIA032",
        "kernel_resources",
        "a kernel asks for more shared memory or registers than this GPU has",
        "Inferred: Triton's kernels are tuned on large GPUs; on smaller ones (consumer cards, L4, A10) a tile can "
        "exceed the shared memory of a multiprocessor.",
        "attention_backend=flashinfer, where attention asks for it; or a later release, which has configurations for "
        "more GPUs; or a smaller tile: triton_attention_num_kv_splits, speculative_num_draft_tokens",
        (
            sign("OutOfResources"),
            sign("out of resource: shared memory"),
            sign("too many resources requested for launch"),
            sign("ptxas error", r"uses too much shared data"),
            sign("uses too much shared data"),
        ),
        fields=("attention_backend",),
        changes=("attention_backend=flashinfer", "attention_backend=null"),
    ),
    FailureClass(
        "DIA033",
        "cuda_fault",
        "a kernel touched memory that is not its own, or failed an assertion on the GPU",
        "The GPU reports it late, so that the traceback often names another place: torch's own message says so. "
        "Inferred: it is a bug of a kernel, or input that it was not made for; CUDA graphs, speculative decoding and "
        "custom backends are the usual places.",
        "CUDA_LAUNCH_BLOCKING=1 once, for the true place; or disable_cuda_graph=true, disable_overlap_schedule=true or "
        "another attention_backend, one at a time; or a later release",
        (
            sign("an illegal memory access was encountered"),
            sign("cudaErrorIllegalAddress"),
            sign("device-side assert triggered"),
            sign("misaligned address"),
            sign("an illegal instruction was encountered"),
            sign("Memory access fault by GPU"),
            sign("CUBLAS_STATUS_EXECUTION_FAILED"),
            sign("CUBLAS_STATUS_NOT_SUPPORTED", None, Weight.GENERAL),
            sign("CUBLAS_STATUS_INTERNAL_ERROR", None, Weight.GENERAL),
            sign("CUBLAS_STATUS_NOT_INITIALIZED", None, Weight.GENERAL),
            sign("CUDA error: invalid argument", None, Weight.GENERAL),
            sign("Illegal instruction encountered"),
            sign("hipErrorIllegalAddress"),
            sign("HSA_STATUS_ERROR_EXCEPTION"),
            sign("HSA_STATUS_ERROR_MEMORY_FAULT"),
            sign("MPU address access is invalid", in_warning=True),
            sign("probability tensor contains either", None, Weight.GENERAL),
            sign("Failed: Cuda error /", r"illegal|misaligned|launch failure"),
        ),
        fields=("attention_backend", "disable_cuda_graph", "disable_overlap_schedule"),
        retryable=True,
    ),
    FailureClass(
        "DIA034",
        "gpu_hardware",
        "a GPU or its links failed",
        "The driver reports broken memory, a GPU that is gone from the bus, or NVLink errors. Inferred: only the "
        "machine's owner can mend it; the server runs elsewhere meanwhile.",
        "dmesg | grep -i xid and nvidia-smi -q, for the machine's owner; or another node; or CUDA_VISIBLE_DEVICES "
        "without the GPU that the line names",
        (
            sign("uncorrectable ECC error encountered"),
            sign("uncorrectable NVLink error"),
            sign("NVRM: Xid"),
            sign("Xid (PCI"),
            sign("GPU has fallen off the bus"),
            sign("GPU is lost"),
            sign("hardware error", r"CUDA error: (?:.*)hardware|hardware stack error"),
            sign("CUDA error: unspecified launch failure"),
            sign("unspecified launch failure", None, Weight.GENERAL),
            sign("the launch timed out and was terminated"),
            sign("CUDA error: unknown error", None, Weight.GENERAL),
            sign("GPU requires reset"),
        ),
    ),
    FailureClass(
        "DIA035",
        "graph_capture",
        "capturing CUDA graphs failed, and not for memory",
        "While a graph is captured, nothing may synchronise with the GPU (CUDA's programming guide). Inferred: a "
        "kernel that does or that allocates, a custom all-reduce that cannot reach its peers, or torch.compile broke "
        "it off.",
        "the line before it, which names the kernel; or disable_cuda_graph=true, to see the same error without "
        "capture; or disable_custom_all_reduce=true; or enable_torch_compile=false",
        (
            sign(
                "Capture cuda graph failed",
                r"[Cc]apture cuda graph failed: (?!.*(?:onnection (?:closed|reset)|gloo))",
                Weight.GENERAL,
            ),
            sign("operation not permitted when stream is capturing", None, Weight.GENERAL),
            sign("last recorded in a capturing stream", None, Weight.GENERAL),
            sign("legacy stream depend on a capturing", None, Weight.GENERAL),
            sign("operation failed due to a previous error during capture", None, Weight.EFFECT),
            sign("Capture CUDA graph failed", None, Weight.GENERAL),
            sign("CUDA graph failed: ", None, Weight.GENERAL),
            sign("Capture CPU graph failed", None, Weight.GENERAL),
        ),
        fields=("disable_cuda_graph", "disable_custom_all_reduce", "enable_torch_compile"),
    ),
)
