"""LoRA adapters served beside the base model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sglang_hydra.arguments.fields.arg import arg, argument_class
from sglang_hydra.arguments.fields.choices import LORA_TARGET_MODULE_CHOICES


@dataclass(frozen=True)
class LoRARef:
    """One adapter by name, as SGLang keeps it once ``lora_paths`` is read. ``pinned`` keeps it in GPU memory."""

    lora_name: str
    lora_path: str
    pinned: bool = False

    def __str__(self) -> str:
        return f"{self.lora_name}={self.lora_path}{' (pinned)' if self.pinned else ''}"


@argument_class
class Lora:
    """LoRA adapters served beside the base model."""

    enable_lora: bool | None = arg(
        None,
        "Serve LoRA adapters, also ones that are loaded later by request.",
        none="on exactly if lora_paths names an adapter",
    )
    max_lora_rank: int | None = arg(
        None,
        "Largest rank of any adapter, now or later; needed where adapters are only loaded later.",
        none="the largest of the adapters in lora_paths",
    )
    lora_target_modules: Any = arg(
        None,
        "List of the modules that any adapter changes, now or later; the one item all stands for every supported one.",
        none="the union over the adapters in lora_paths",
        choices=LORA_TARGET_MODULE_CHOICES,
        nargs="*",
    )
    lora_paths: Any = arg(
        None,
        "Adapters to load at start: a list of paths, of name=path, or of {lora_name, lora_path, pinned}; or a mapping "
        "from name to path.",
        none="no adapters at start",
        nargs="*",
        parser="lora",
    )
    max_loaded_loras: int | None = arg(
        None,
        "Most adapters held in CPU memory at once; at least max_loras_per_batch.",
        unit="adapters",
        none="no limit",
    )
    max_loras_per_batch: int = arg(
        8,
        "Adapters that one batch may mix, the base model counted; each takes GPU memory of its own.",
        unit="adapters",
    )
    lora_backend: str = arg("triton", "Kernels of the adapters; SGLang 0.5.2 has triton only.")
