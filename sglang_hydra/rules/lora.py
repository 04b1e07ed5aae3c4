"""Brings LoRA adapters into one form. SGLang does this while it checks, so these rules run in that stage."""

from __future__ import annotations

from collections.abc import Iterator

from sglang_hydra.arguments.fields import LoRARef, ServerArgs
from sglang_hydra.arguments.fields.choices import LORA_TARGET_MODULES
from sglang_hydra.rules.rule import Change, Facts, Outcome, Restated, rule
from sglang_hydra.text.json_types import Json


def is_adapter(item: object) -> bool:
    """Returns whether SGLang can read ``item`` of a list of adapters: text, or a mapping with a name and a path."""
    return isinstance(item, str) or (isinstance(item, dict) and "lora_name" in item and "lora_path" in item)


def _refs(adapters: Json) -> Iterator[LoRARef]:
    if isinstance(adapters, dict):
        for name, path in adapters.items():
            yield LoRARef(lora_name=name, lora_path=path, pinned=False)
        return
    for item in adapters:
        if isinstance(item, dict):
            pinned = item.get("pinned", False)
            yield LoRARef(lora_name=item["lora_name"], lora_path=item["lora_path"], pinned=pinned)
        else:
            name, named, path = item.partition("=")
            yield LoRARef(lora_name=name, lora_path=path if named else name, pinned=False)


@rule("LOR005", (2314, 2350), stage="check")
def name_every_adapter(args: ServerArgs, facts: Facts) -> Outcome:
    """What: with LoRA on, lora_paths becomes a list of LoRARef(name, path, pinned), from NAME=PATH, PATH, mappings with
        lora_name and lora_path, or one mapping of names to paths. NAME=PATH splits at the first equals sign.
    Why: every other part of the server reads this one form.
    Example: lora_paths=["a=/l/a"] -> lora_paths=[{"lora_name":"a","lora_path":"/l/a","pinned":false}]"""
    adapters: object = args.lora_paths
    if not args.enable_lora:
        return None
    if adapters is None:
        return Change("none is loaded at the start", lora_paths=[])
    if not isinstance(adapters, dict) and not (isinstance(adapters, list) and all(map(is_adapter, adapters))):
        return None
    return Restated("one form for every adapter", lora_paths=list(_refs(adapters)))


@rule("LOR007", (2357, 2364), stage="check")
def expand_target_modules(args: ServerArgs, facts: Facts) -> Outcome:
    """What: with LoRA on, lora_target_modules becomes a set, and all on its own every module that SGLang supports.
    Why: buffers are made for each of these modules. Plain text is read as a set of letters, so write a list.
    Example: enable_lora=true max_lora_rank=16 lora_target_modules=["q_proj"] -> lora_target_modules=["q_proj"]"""
    if not args.enable_lora or not args.lora_target_modules:
        return None
    modules = set(args.lora_target_modules)
    if modules == {"all"}:
        return Restated("all supported modules", lora_target_modules=set(LORA_TARGET_MODULES))
    return Restated("each module once", lora_target_modules=modules)
