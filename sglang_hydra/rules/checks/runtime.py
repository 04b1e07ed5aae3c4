"""Checks that a device exists, and that SGLang can read its memory."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule
from sglang_hydra.text.findings import Remedy

DEVICE_OF = {"nvidia": "cuda", "amd": "cuda", "intel": "xpu", "habana": "hpu", "huawei": "npu"}
"""Torch's device name for the GPUs of each vendor."""


@rule("DEV002", (444, 445))
def device_exists(args: ServerArgs, facts: Facts) -> Outcome:
    """What: a machine without accelerator is refused, unless device is set or SGLANG_USE_CPU_ENGINE=1.
    Why: SGLang serves from the CPU only on request.
    Example: gpu=none -> refused"""
    if args.device is not None:
        return None
    if facts.gpu.vendor != "none":
        device = DEVICE_OF.get(facts.gpu.vendor, "cuda")
        message = f"gpu={facts.gpu.name} does not say its device: a GPU of {facts.gpu.vendor} has {device}"
        return Refusal(message, "gpu.device", offers=f"gpu.device={device}")
    return Refusal(
        "this machine has no GPU and device is not set: gpu= names the class to plan for",
        "device",
        offers=(
            Remedy.typed("gpu=h100", ": plans for a machine that has one, as any other class does"),
            "gpu=h200",
            Remedy.typed("gpu=cpu", when="to serve from this machine's CPU"),
            "gpu=h200 tp_size=8",
        ),
    )


@rule("DEV003", (449, 449))
def device_memory_is_readable(args: ServerArgs, facts: Facts) -> Outcome:
    """What: device=hpu and device=npu are refused on a machine without such a device; so is a GPU of unknown memory.
    Why: SGLang first reads the memory with the vendor's tool: nvidia-smi, rocminfo, hl-smi or torch_npu. It reads
        NVIDIA and AMD GPUs under any device.
    Example: gpu=cpu device=hpu -> refused"""
    gpu = facts.gpu
    if not (gpu.is_cuda or gpu.is_hip):
        if args.device not in ("hpu", "npu"):
            return None
        if args.device != gpu.device:
            tool = "hl-smi" if args.device == "hpu" else "torch_npu"
            return Refusal(
                f"device={args.device} needs {tool}, and {gpu.name} has device={gpu.device}",
                "device",
                offers="device=null",
            )
    if gpu.memory_mib is None:
        return Refusal(
            f"the memory of {gpu.name} is unknown",
            "gpu.memory_mib",
            hint="gpu.memory_mib=MIB, as the vendor's tool reports it",
        )
    return None
