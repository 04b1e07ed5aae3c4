"""Rules for the share of the GPU's memory for weights and KV cache."""

from __future__ import annotations

from typing import Any

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.arguments.memory_classes import class_of
from sglang_hydra.facts.config_view import view_of
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule
from sglang_hydra.text.words import number

# The tower of ViT-L/14: the reference for others, and the assumed size of a tower that states none.
BASE_LAYERS, BASE_HIDDEN_SIZE = 24, 1024


def vision_tower(args: ServerArgs, facts: Facts) -> tuple[Any, Any] | None:
    """Returns layers and hidden size of the vision tower to reserve memory for; None if the rule does not apply."""
    if facts.was_given("mem_fraction_static"):
        return None
    view = view_of(facts.model, args.json_model_override_args)
    if view is None or not view.is_multimodal(args.enable_multimodal):
        return None
    vision = view.vision
    if vision is None:
        return None
    return vision.get("num_hidden_layers", BASE_LAYERS), vision.get("hidden_size", BASE_HIDDEN_SIZE)


@rule("MEM001", (452, 496))
def choose_mem_fraction(args: ServerArgs, facts: Facts) -> Outcome:
    """What: mem_fraction_static, if unset, is what the memory class leaves after its reserve, rounded to 3 digits.
        2 GiB more are kept for a draft model (6 for STANDALONE), 4 more for DP attention.
    Why: activations, CUDA graphs and draft models live outside the static pool and grow with the GPU class.
    Example: gpu=h100 tp_size=8 -> mem_fraction_static=0.831"""
    if args.mem_fraction_static is not None:
        return None
    memory = facts.gpu.capacity_mib(args.device)
    if memory is None:
        return None
    gpus = args.tp_size * args.pp_size
    row = class_of(memory)
    reserved = row.reserved_mib(gpus)
    reason = f"{row.name}: {row.reserved_gib} GiB"
    if row.gpus_per_gib is not None:
        reason += f" + {1 / row.gpus_per_gib} GiB for " + ("1 GPU" if gpus == 1 else f"each of {gpus} GPUs")
    if args.speculative_algorithm is not None:
        draft_gib = 6 if args.speculative_algorithm == "STANDALONE" else 2
        reserved += draft_gib * 1024
        reason += f" + {draft_gib} GiB for {args.speculative_algorithm}"
    # Before DPA001: with dp_size=1 the switch is reset only after this, and the 4 GiB stay reserved.
    if args.enable_dp_attention:
        reserved += 4 * 1024
        reason += " + 4 GiB for DP attention"
    return Change(
        f"{reason} of {number(memory)} MiB are kept free", mem_fraction_static=round((memory - reserved) / memory, 3)
    )


@rule("MEM003", (2513, 2549))
def make_room_for_vision(args: ServerArgs, facts: Facts) -> Outcome:
    """What: a mem_fraction_static that was not given is multiplied by 0.95 for a multimodal model with a vision tower,
        and by 0.8 to 1.05 for the tower's size: layers x hidden size squared, against 24 x 1024 squared.
    Why: Inferred: the image processor and the tower need memory outside the pool; SGLang only says that it reduces the
        fraction by the tower's size. The product is not rounded or checked.
    Example: gpu=h100 model=qwen2_5_vl_7b -> mem_fraction_static=0.7835956249999999"""
    tower = vision_tower(args, facts)
    if tower is None:
        return None
    layers, hidden_size = tower
    # The order of operations decides the last bit.
    size = layers * (hidden_size**2) / (BASE_LAYERS * (BASE_HIDDEN_SIZE**2))
    factor = 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (size - 1.0)))
    return Change(
        f"a vision tower of {layers} layers x {hidden_size} is {size:.2f} times ViT-L/14: x {factor:.4f}",
        mem_fraction_static=args.mem_fraction_static * factor,
    )
