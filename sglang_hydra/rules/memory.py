"""Rules for the share of the GPU's memory for weights and KV cache, and for the size of its pages."""

from __future__ import annotations

from typing import Any, NamedTuple

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.arguments.memory_classes import class_of
from sglang_hydra.facts.config_view import view_of
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule
from sglang_hydra.text.words import number

# The tower of ViT-L/14: the reference for others, and the assumed size of a tower that states none.
BASE_LAYERS, BASE_HIDDEN_SIZE = 24, 1024

_MAIN = ("attention_backend",)
_MAIN_AND_DECODE = ("attention_backend", "decode_attention_backend")
_ALL = ("attention_backend", "decode_attention_backend", "prefill_attention_backend")


class PagedBackend(NamedTuple):
    """A backend, the arguments where SGLang looks for it, the page sizes (tokens) it accepts, and its page size
    otherwise.

    ``taken`` is empty where SGLang ignores the given page size."""

    name: str
    slots: tuple[str, ...]
    taken: tuple[int, ...]
    otherwise: int

    def is_used(self, args: ServerArgs) -> bool:
        return any(getattr(args, slot) == self.name for slot in self.slots)


ASCEND = PagedBackend("ascend", _MAIN, (), 128)
FLASHMLA = PagedBackend("flashmla", _MAIN_AND_DECODE, (), 64)
CUTLASS_MLA = PagedBackend("cutlass_mla", _MAIN_AND_DECODE, (), 128)
TRTLLM_MLA = PagedBackend("trtllm_mla", _MAIN_AND_DECODE, (32, 64), 64)
TRTLLM_MHA = PagedBackend("trtllm_mha", _ALL, (16, 32, 64), 64)


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


def _fit(backend: PagedBackend, args: ServerArgs) -> Outcome:
    if not backend.is_used(args):
        return None
    given: object = args.page_size
    if given in backend.taken:
        return None
    taken = " or ".join(map(str, backend.taken or (backend.otherwise,)))
    return Change(f"{backend.name} takes pages of {taken} tokens", page_size=backend.otherwise)


@rule("PAG001", (554, 558))
def page_size_of_ascend(args: ServerArgs, facts: Facts) -> Outcome:
    """What: attention_backend=ascend sets page_size to 128 tokens.
    Why: its kernels are written for this size only.
    Example: attention_backend=ascend -> page_size=128"""
    return _fit(ASCEND, args)


@rule("PAG002", (560, 567))
def page_size_of_flashmla(args: ServerArgs, facts: Facts) -> Outcome:
    """What: flashmla as attention_backend or decode_attention_backend sets page_size to 64 tokens.
    Why: its kernels are written for this size only. SGLang does not check prefill_attention_backend here.
    Example: decode_attention_backend=flashmla page_size=16 -> page_size=64"""
    return _fit(FLASHMLA, args)


@rule("PAG003", (569, 576))
def page_size_of_cutlass_mla(args: ServerArgs, facts: Facts) -> Outcome:
    """What: cutlass_mla as attention_backend or decode_attention_backend sets page_size to 128 tokens.
    Why: its kernels are written for this size only. SGLang does not check prefill_attention_backend here.
    Example: attention_backend=cutlass_mla -> page_size=128"""
    return _fit(CUTLASS_MLA, args)


@rule("PAG004", (587, 591))
def page_size_of_trtllm_mla(args: ServerArgs, facts: Facts) -> Outcome:
    """What: trtllm_mla as attention_backend or decode_attention_backend makes page_size 64 tokens, if it is not 32 or
        64.
    Why: its kernels are written for these two sizes.
    Example: gpu=b200 attention_backend=trtllm_mla page_size=16 -> page_size=64"""
    return _fit(TRTLLM_MLA, args)


@rule("PAG005", (608, 612))
def page_size_of_trtllm_mha(args: ServerArgs, facts: Facts) -> Outcome:
    """What: trtllm_mha as any of the three attention backends makes page_size 64 tokens, if it is not 16, 32 or 64.
    Why: its kernels are written for these three sizes.
    Example: gpu=b200 prefill_attention_backend=trtllm_mha -> page_size=64"""
    return _fit(TRTLLM_MHA, args)
