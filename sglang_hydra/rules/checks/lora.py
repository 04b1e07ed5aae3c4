"""Checks adapters: their form, and the buffers for them."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.lora import is_adapter
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule
from sglang_hydra.text.json_types import Json

_FORMS = "a list of NAME=PATH, of paths, or of {lora_name: NAME, lora_path: PATH}"


@rule("LOR004", (2314, 2355), stage="check")
def adapters_are_readable(args: ServerArgs, facts: Facts) -> Outcome:
    """What: with LoRA on, lora_paths must be a list of NAME=PATH, PATH or mappings with lora_name and lora_path, or one
        mapping of names to paths.
    Why: every adapter needs a name for requests to choose it by. Finished LoRARefs are refused by SGLang too.
    Example: enable_lora=true lora_paths=[7] -> refused"""
    adapters: object = args.lora_paths
    if not args.enable_lora or adapters is None or isinstance(adapters, dict):
        return None
    if not isinstance(adapters, list):
        return Refusal(f"lora_paths is {adapters!r}, and not a list or a mapping", "lora_paths", hint=_FORMS)
    for place, item in enumerate(adapters):
        if not is_adapter(item):
            got = "has not both lora_name and lora_path" if isinstance(item, dict) else "is not text or a mapping"
            return Refusal(f"lora_paths[{place}] {got}: {item!r}", "lora_paths", hint=_FORMS)
    return None


@rule("LOR006", (2357, 2363), stage="check")
def all_modules_stands_alone(args: ServerArgs, facts: Facts) -> Outcome:
    """What: with LoRA on, all in lora_target_modules is refused beside other names.
    Why: all means every module already.
    Example: enable_lora=true max_lora_rank=16 lora_target_modules=["all","q_proj"] -> refused"""
    if not args.enable_lora or not args.lora_target_modules:
        return None
    modules = set(args.lora_target_modules)
    if "all" not in modules or len(modules) == 1:
        return None
    return Refusal(
        f"lora_target_modules names all and {len(modules) - 1} more",
        "lora_target_modules",
        offers='lora_target_modules=["all"]',
    )


@rule("LOR010", (2377, 2380), stage="check")
def adapters_can_be_loaded(args: ServerArgs, facts: Facts) -> Outcome:
    """What: with LoRA on, there must not be more lora_paths than max_loaded_loras.
    Why: all of lora_paths are loaded at the start.
    Example: lora_paths=["a=/l/a","b=/l/b"] max_loaded_loras=1 max_loras_per_batch=1 -> refused"""
    adapters: Json = args.lora_paths
    if not args.enable_lora or args.max_loaded_loras is None or len(adapters) <= args.max_loaded_loras:
        return None
    return Refusal(
        f"{len(adapters)} adapters in lora_paths, and max_loaded_loras={args.max_loaded_loras}",
        "max_loaded_loras",
        "lora_paths",
        offers=f"max_loaded_loras={len(adapters)}",
    )
