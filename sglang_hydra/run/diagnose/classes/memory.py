"""Memory that ran out: the GPU's, stage by stage, and the host's."""

from __future__ import annotations

import re

from sglang_hydra.run.diagnose.failure_class import FailureClass, Signature, Stage, Weight, exited, sign

_OUT_OF_MEMORY = (
    "CUDA out of memory",
    "HIP out of memory",
    "NPU out of memory",
    "XPU out of memory",
    "CUDA error: out of memory",
    "HIP error: out of memory",
    "CUDA driver error: out of memory",
    "OutOfMemoryError",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "cudaErrorMemoryAllocation",
    "hipErrorOutOfMemory",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "failure 2 'out of memory'",
    "Cuda failure 'out of memory'",
    "Triton Error [CUDA]: out of memory",
    "Triton Error [HIP]: out of memory",
    # The driver's code for memory, as the allocator of enable_memory_saver prints it: fzyzcjy/torch_memory_saver#4, #9.
    "error  result=2 file=csrc/torch_memory_saver",
)
# The host's half of the hierarchical cache is pinned for the GPU: sgl-project/sglang#7666, #6285, #26301, #39744.
_PINNING = r" in (?:init_kv_buffer|_cuda_host_register|alloc_with_(?:host_register|pin_memory))$"
_LESS_PINNED = (
    "hicache_size=N, in GB for each rank, or a smaller hicache_ratio, so that all ranks together stay well below the "
    "host's free memory; or "
    "docker run --ulimit memlock=-1, and a higher memory limit of the container; or enable_hierarchical_cache=false"
)
_TRIED = re.compile(r"[Tt]ried to allocate ([\d.]+ ?[KMGT]i?B)")
_FREE = re.compile(r"total capacity of ([\d.]+ ?[KMGT]i?B) of which ([\d.]+ ?[KMGT]i?B) is free")
_AVAILABLE = re.compile(r"mem-fraction-static=([\d.]+).*above ([\d.]+)")


def _while(stage: Stage | None) -> tuple[Signature, ...]:
    weight = Weight.CAUSE if stage is not None else Weight.GENERAL
    return tuple(sign(needle, weight=weight, stage=stage) for needle in _OUT_OF_MEMORY)


def _sizes(line: str) -> str | None:
    """What torch says of the allocation that failed."""
    tried, free = _TRIED.search(line), _FREE.search(line)
    if tried is None:
        return None
    left = f", and {free[2]} of {free[1]} were free" if free else ""
    return f"{tried[1]} were asked for{left}"


def _fraction(line: str) -> str | None:
    found = _AVAILABLE.search(line)
    return f"SGLang asks for more than {found[2].rstrip('.')}, and {found[1]} was set" if found else None


CLASSES = (
    FailureClass(
        "DIA001",
        "oom_load",
        "GPU memory ran out while the weights were loaded",
        "The weights of one GPU, and what loading them needs besides, are more than the memory that was free. "
        "mem_fraction_static does not help: SGLang reads it only once the weights are loaded, to size the KV cache. "
        "Inferred: the model is too large for these GPUs at this tp_size and quantization, or something else holds "
        "memory there.",
        "tp_size=2 or more (each GPU then holds a smaller part); or quantization=fp8, or a checkpoint that is quantized"
        " already; or nvidia-smi, to see who else holds memory on the GPU",
        _while(Stage.LOAD),
        fields=("tp_size", "quantization", "model_path"),
        memory=True,
        details=_sizes,
    ),
    FailureClass(
        "DIA002",
        "mem_fraction_too_low",
        "the weights leave no room for the KV cache below mem_fraction_static",
        "mem_fraction_static is the part of the GPU's memory for weights and KV cache together. What is in use once "
        "the weights are loaded is as much as it allows, so that no token fits. Inferred: a higher fraction makes room "
        "until too little is left for activations and CUDA graphs; where both ends meet, the model needs more GPUs or "
        "a smaller checkpoint.",
        "mem_fraction_static=0.9, or what fit shows; or tp_size=2 or more; or max_running_requests=16, for models with"
        " a state for each request",
        (
            sign("Please try to increase --mem-fraction-static"),
            sign("leave no GPU memory for the KV cache"),
            sign("leaves no room for the full KV pool"),
            sign("Not enough GPU memory for hybrid (mamba/linear-attention) state cache"),
            sign("state cache is too small to serve any requests"),
            sign("Not enough space for mamba cache"),
            sign("cannot fit ONE worst-case request"),
            sign("cannot hold even one request"),
            sign("Memory pool size is too small"),
            sign("max_total_num_tokens <= 0", weight=Weight.GENERAL),
            sign("is larger than the profiled value -", weight=Weight.GENERAL, in_warning=True),
        ),
        fields=("mem_fraction_static", "tp_size"),
        memory=True,
        details=_fraction,
    ),
    FailureClass(
        "DIA003",
        "oom_kv",
        "GPU memory ran out while the KV cache was allocated",
        "The KV cache is made as large as mem_fraction_static allows. Inferred: it did not fit because the fraction is "
        "too high, because another process took memory after it was measured, or because host buffers or a draft model "
        "come on top of it.",
        "mem_fraction_static=0.8, or what fit shows; or max_total_tokens=N, for a cache of that many tokens; or"
        " nvidia-smi, to see who else holds memory on the GPU",
        _while(Stage.KV),
        fields=("mem_fraction_static", "max_total_tokens"),
        memory=True,
        details=_sizes,
    ),
    FailureClass(
        "DIA004",
        "oom_graph",
        "GPU memory ran out while CUDA graphs were captured",
        "Graphs and their buffers live outside of mem_fraction_static, in what it leaves free. SGLang's own message "
        "names a smaller fraction, a smaller largest batch and no torch.compile as what may help.",
        "mem_fraction_static=0.8, or what fit shows; or cuda_graph_max_bs=16; or disable_cuda_graph=true, which is"
        " slower",
        _while(Stage.GRAPHS),
        fields=("mem_fraction_static", "cuda_graph_max_bs"),
        memory=True,
        details=_sizes,
    ),
    FailureClass(
        "DIA005",
        "oom_runtime",
        "memory ran out while requests were served",
        "Inferred: activations of a long prefill, logits, or the buffers of a kernel did not fit into what "
        "mem_fraction_static leaves free; or the KV cache itself was full and nothing could be taken back.",
        "chunked_prefill_size=2048; or mem_fraction_static=0.8, or what fit shows; or max_running_requests=64; or"
        " schedule_conservativeness=1.3, where the KV cache was full",
        (
            sign("out of memory. Try to lower your batch size"),
            sign("alloc_req_slots runs out of memory"),
            sign("Out of memory. Please set a smaller number"),
            sign("Out of memory even after retracting all other requests"),
            sign("Failed to allocate token prealloc indices"),
            sign("No space left for only one request"),
            sign(
                "in AlignedAllocator",
                advice="engine.env.SGLANG_FLASHINFER_WORKSPACE_SIZE=2147483648, for a larger workspace of FlashInfer; "
                "or chunked_prefill_size=2048; or attention_backend=triton",
            ),
            sign(
                "Buffer overflow when allocating memory for",
                advice="engine.env.SGLANG_FLASHINFER_WORKSPACE_SIZE=2147483648, for a larger workspace of FlashInfer; "
                "or attention_backend=triton",
            ),
            *_while(Stage.SERVE),
        ),
        fields=("chunked_prefill_size", "mem_fraction_static", "max_running_requests"),
        memory=True,
        details=_sizes,
    ),
    FailureClass(
        "DIA006",
        "oom_gpu",
        "GPU memory ran out; the log does not say while doing what",
        "The lines that tell loading, KV cache, CUDA graphs and serving apart are not in this log: it begins later, or "
        "only the error was kept.",
        "mem_fraction_static=0.8, or what fit shows; or look at the log from its beginning",
        _while(None),
        fields=("mem_fraction_static", "tp_size"),
        memory=True,
        details=_sizes,
    ),
    FailureClass(
        "DIA007",
        "gpu_occupied",
        "the GPUs have unequal free memory: other processes run on some of them",
        "With tp_size above 1 SGLang compares the free memory of all ranks before it loads, and stops where one has "
        "less than 90 % of another's; its message names other processes as a possible cause. Inferred: mostly an "
        "earlier server was not stopped, or two servers share GPUs.",
        "nvidia-smi, and stop what it lists; or base_gpu_id=N, to start on other GPUs; or CUDA_VISIBLE_DEVICES",
        (sign("The memory capacity is unbalanced", exception=True),),
        fields=("base_gpu_id", "tp_size"),
        retryable=True,
    ),
    FailureClass(
        "DIA008",
        "shm_too_small",
        "shared memory (/dev/shm) is too small",
        "Docker gives a container 64 MiB of /dev/shm unless told otherwise. Inferred: ranks on one node exchange data "
        "through it, and NCCL and SGLang's own queues overrun it: an error about a segment, or a bus error with no "
        "words at all.",
        "docker run --ipc=host, or --shm-size 32g; or on Kubernetes an emptyDir with medium: Memory at /dev/shm",
        (
            sign("creating shared memory segment", in_warning=True),
            sign("Error while attaching to shared memory segment", in_warning=True),
            sign("No space left on device", r"shm|/nccl-|posix_fallocate|psm_|sem\.", in_warning=True),
            sign("not enough space in /dev/shm", in_warning=True),
            sign("shared memory (shm)", r"insufficient|limit|out of"),
            sign("unable to open shared memory object", r"(?!.*Too many open files)unable to open"),
            # idiap/ESLAM#20: torch keeps what processes share in files of /dev/shm.
            sign("unable to write to file </torch_"),
            sign("unable to mmap", r"/torch_|/psm_|shm"),
            sign("Bus error", weight=Weight.GENERAL),
            sign("exit code: -7", weight=Weight.EFFECT),
            sign("exit code -7", weight=Weight.EFFECT),
            sign("SIGBUS", r"[Kk]illed|[Ss]ignal|terminated|code", weight=Weight.EFFECT),
        ),
        signals=(7,),
    ),
    FailureClass(
        "DIA009",
        "host_oom",
        "the kernel killed the server, as it does where the host's memory runs out, or an allocation failed",
        "Beyond the machine's memory, or the container's limit, the kernel sends SIGKILL, which leaves no message in "
        "the server's own log. Inferred: loading keeps pieces of the checkpoint in host memory, once for each rank; "
        "pinned buffers, the hierarchical cache and CPU offloading take more.",
        "raise the container's memory limit (docker --memory, resources.limits.memory, sbatch --mem); or"
        " dmesg -T | grep -i oom, to be sure; or hicache_size=N or cpu_offload_gb=N, where these are set",
        (
            sign("Out of memory: Kill"),
            sign("emory cgroup out of memory"),
            sign("oom-kill:constraint"),
            sign("oom_reaper"),
            sign("OOMKilled"),
            sign("oom_kill event"),
            sign("oom-kill event"),
            sign("cgroup out-of-memory handler"),
            sign("Out Of Memory", r"(?:task|step|error: .*StepId|State).*Out Of Memory|OUT_OF_MEMORY"),
            sign("OUT_OF_MEMORY", r"(?:state|State|JobState|slurm)"),
            sign("DefaultCPUAllocator: "),
            sign("Cannot allocate memory", weight=Weight.CAUSE),
            sign("Not enough host memory"),
            sign("cudaHostRegister failed", advice=_LESS_PINNED),
            sign("Error: CUDA error: out of memory", frame=_PINNING, exception=True, advice=_LESS_PINNED),
            sign("Error: CUDA error: invalid argument", frame=_PINNING, exception=True, advice=_LESS_PINNED),
            sign("std::bad_alloc"),
            sign("MemoryError", r"(?:^|\s)(?:\w+\.)*_?(?:Array)?MemoryError\b(?!.*CUDA)", exception=True),
            sign("Unable to allocate", r"GiB|MiB for an array"),
            sign("exitcode=9", r"exitcode=9\b", weight=Weight.EFFECT),
            sign("with an exit code 9", r"code 9\b", weight=Weight.EFFECT),
            sign("exit code: -9", weight=Weight.EFFECT),
            sign("Exit code: -9", weight=Weight.EFFECT),
            sign("exit code -9", weight=Weight.EFFECT),
            sign("terminated with -9", weight=Weight.EFFECT),
            sign("Killed", r"^(?:\S+: line \d+: +)?(?:\d+ )?Killed\b", weight=Weight.END),
            sign("killed", r"signal: killed|killed by signal 9|signal 9\b|SIGKILL", weight=Weight.END),
            sign("xit", exited(137), weight=Weight.END),
        ),
        fields=("cpu_offload_gb", "hicache_size"),
        signals=(9,),
    ),
)
