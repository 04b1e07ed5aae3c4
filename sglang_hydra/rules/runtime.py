"""Rules for the device and the random seed."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule


@rule("DEV001", (444, 445))
def find_device(args: ServerArgs, facts: Facts) -> Outcome:
    """What: device, if unset, is cpu where SGLANG_USE_CPU_ENGINE=1, else this machine's accelerator as torch names it.
    Why: torch calls NVIDIA and AMD GPUs both cuda; the CPU engine serves only on request.
    Example: gpu=mi300x -> device=cuda"""
    if args.device is not None:
        return None
    if facts.env.get("SGLANG_USE_CPU_ENGINE") == "1":
        return Change("SGLANG_USE_CPU_ENGINE=1", device="cpu")
    if facts.gpu.device is None:
        return None
    return Change(f"the device of {facts.gpu.name}", device=facts.gpu.device)


def has_device(device: str | None, facts: Facts) -> bool:
    """Returns whether a device can serve: ``device`` was set, the CPU engine was requested, or the machine has a
    GPU."""
    return device is not None or facts.env.get("SGLANG_USE_CPU_ENGINE") == "1" or facts.gpu.device is not None


@rule("DEF003", (446, 447))
def draw_random_seed(args: ServerArgs, facts: Facts) -> Outcome:
    """What: random_seed, if unset, is drawn from 0 to 2**30; the plan keeps it and the launch passes it.
    Why: Inferred: all ranks must sample alike, and a run can be repeated only if its seed is known.
    Example: gpu=h100 -> random_seed=<drawn>"""
    if args.random_seed is not None or facts.seed is None:
        return None
    return Change("drawn", random_seed=facts.seed)
