"""Checks arguments against the model's config: the server would refuse them only after it has read the config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.facts.config_view import ConfigView, text_config, view_of, yarn_override
from sglang_hydra.rules.checks.releases import Arguments
from sglang_hydra.rules.rule import Facts, Notice, Outcome, Refusal, rule
from sglang_hydra.text.findings import Remedy
from sglang_hydra.text.json_types import JsonObject, json_beside
from sglang_hydra.text.words import number

LONGER_CONTEXT_VARIABLE = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"

# The config fields that may hold the context length, in SGLang's order of reading
# (0.5.2, hf_transformers_utils.CONTEXT_LENGTH_KEYS).
_CONTEXT_KEYS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")

_TABLE: JsonObject = json_beside(__file__)
# Checkpoint formats that a kernel of another name can run (SGLang 0.5.2, layers/quantization/*).
_CONVERTIBLE: Mapping[str, Sequence[str]] = _TABLE["convertible"]
# The methods for ROCm (SGLang 0.5.2, ModelConfig._verify_quantization); the MX formats need gfx95 there.
_ON_ROCM: Sequence[str] = _TABLE["on_rocm"]
_EXPERT_COUNTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
_MX_FORMATS = ("mxfp4", "quark")
_DTYPES = ("auto", "half", "float16", "bfloat16", "float", "float32")


@rule("CFG001", stage="plan")
def check_context_length(args: ServerArgs, facts: Facts) -> Outcome:
    """What: context_length must not exceed the length that the model's config allows, with rope scaling.
    Why: SGLang refuses it after the server has started to load, unless SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1.
    Upstream: configs/model_config.py 0.5.2, ModelConfig; hf_transformers_utils.get_context_length.
    Example: model=qwen3_8b context_length=1000000 -> refused, 40960 is the model's"""
    view = view_of(facts.model, args.json_model_override_args)
    if view is None or args.context_length is None:
        return None
    longest = derived_context_length(text_config(view))
    if longest is None or args.context_length <= longest:
        return None
    message = f"context_length={args.context_length} is above the model's {longest} tokens"
    for variable in (LONGER_CONTEXT_VARIABLE, "SGLANG_IS_IN_CI"):
        if facts.env.get(variable, "").lower() in ("1", "true"):
            return Notice(f"{message}; {variable} allows it, quality beyond is not known", "context_length")
    return Refusal(
        message,
        "context_length",
        offers=(
            *filter(None, [yarn_override(view.published, args.context_length)]),
            f"context_length={longest}",
            Remedy.typed(f"engine.env.{LONGER_CONTEXT_VARIABLE}=1", when="tries it all the same"),
        ),
    )


@rule("CFG002", stage="plan")
def check_quantization(args: ServerArgs, facts: Facts) -> Outcome:
    """What: quantization must be the checkpoint's own method, or one whose kernels run that format.
    Why: SGLang compares them when it reads the config and stops; leaving it unset takes the checkpoint's.
    Upstream: configs/model_config.py 0.5.2, ModelConfig._verify_quantization.
    Example: model=deepseek_v3 quantization=awq -> refused, the checkpoint is fp8"""
    method = stored_quantization(args, facts)
    if method is None or args.quantization is None:
        return None
    asked = args.quantization.lower()
    if asked == method or asked in _CONVERTIBLE.get(method, ()):
        return None
    fitting = ", ".join((method, *_CONVERTIBLE.get(method, ())))
    return Refusal(
        f"quantization={args.quantization!r}, but the checkpoint is stored as {method!r}; it runs as {fitting}",
        "quantization",
        offers=(
            Remedy.typed("quantization=null", when="takes the checkpoint's own"),
            *(f"quantization={name}" for name in _CONVERTIBLE.get(method, ())),
        ),
    )


@rule("CFG006", stage="plan")
def check_quantization_runs_here(args: ServerArgs, facts: Facts) -> Outcome:
    """What: the quantization, asked for or the checkpoint's own, must be one that SGLang has on this kind of GPU:
        ROCm has some of them, and the MX formats (mxfp4) exist on CUDA and on AMD's gfx95 only. ROCm runs NVFP4 by
        Petit, which has kernels for gfx90a and gfx942 and none for experts.
    Why: SGLang compares it with its lists when it reads the config, and stops; experts without a method fail an
        assertion while the model is built.
    Upstream: configs/model_config.py 0.5.2, ModelConfig._verify_quantization; layers/quantization/__init__.py;
        layers/quantization/petit.py:30-32; layers/moe/fused_moe_triton/layer.py:232.
    Example: gpu=mi300x model=gpt_oss -> refused, mxfp4 needs an MI350 or later"""
    stored = stored_quantization(args, facts)
    method = args.quantization.lower() if args.quantization else stored
    if facts.gpu.is_hip and stored == "modelopt":
        method = "petit_nvfp4"
    if method is None or facts.gpu.is_cuda:
        return None
    kind = f"{facts.gpu.name} ({'ROCm' if facts.gpu.is_hip else facts.gpu.device or 'no accelerator'})"
    view = view_of(facts.model, args.json_model_override_args)
    gfx95 = facts.gpu.is_hip and (facts.gpu.compute_capability or (9, 5)) >= (9, 5)
    release = f"SGLang {facts.release}"
    if method in _MX_FORMATS and not gfx95:
        message = f"{release} has {method} on CUDA and on AMD's gfx95 (MI350) only, not on {kind}"
    elif facts.gpu.is_hip and method not in _ON_ROCM:
        message = f"{release} has no {method} on ROCm; it has {', '.join(_ON_ROCM)}"
    elif method == "petit_nvfp4" and gfx95:
        message = f"{release} runs NVFP4 on AMD's gfx90a and gfx942 (MI300) only, by Petit, not on {kind}"
    elif method == "petit_nvfp4" and view is not None and experts_of(text_config(view)):
        message = f"{release} runs NVFP4 on ROCm by Petit, which has no kernels for experts"
    else:
        return None
    return Refusal(message, "quantization", "model_path", hint="name a checkpoint in another format as model_path")


@rule("CFG003", stage="plan")
def check_dtype(args: ServerArgs, facts: Facts) -> Outcome:
    """What: dtype must be one that SGLang knows.
    Why: the constructor takes any word, and the model's config refuses it later.
    Upstream: configs/model_config.py 0.5.2, _get_and_verify_dtype.
    Example: dtype=fp16 -> refused, float16 is meant"""
    if isinstance(args.dtype, str) and args.dtype.lower() in _DTYPES:
        return None
    return Refusal(f"dtype={args.dtype!r} is not one of {', '.join(_DTYPES)}", "dtype", offers="dtype=auto")


@rule("CFG004", stage="plan")
def check_heads(args: Arguments, facts: Facts) -> Outcome:
    """What: the attention heads must divide evenly over the ranks that share an attention layer: tp_size, less where
        DP attention or context parallelism divides it.
    Why: each rank takes whole heads; the model's layers assert it while they are built, minutes after the start.
    Upstream: the attention classes of 0.5.2, as models/llama.py:126-135; KV heads may be repeated, query heads not.
    Example: model=qwen2_5_vl_7b tp_size=8 -> refused, 28 heads"""
    view = view_of(facts.model, args.json_model_override_args)
    layout = args.layout
    ranks, copies = layout.attention, layout.attention_groups * layout.attention_contexts
    if view is None or ranks <= 1 or layout.tp % copies:
        return None
    text = text_config(view)
    heads, kv_heads = text.get("num_attention_heads"), text.get("num_key_value_heads")
    if not isinstance(heads, int):
        heads = 0
    shared = kv_heads if isinstance(kv_heads, int) and kv_heads > 0 else None
    if heads % ranks == 0 and (shared is None or _divides_or_repeats(shared, ranks)):
        return None
    sizes = [
        size * copies
        for size in range(1, min(heads, 64) + 1)
        if heads % size == 0 and (shared is None or _divides_or_repeats(shared, size))
    ]
    offers = [f"tp_size={size}" for size in sorted(sizes, key=lambda size: (abs(size - layout.tp), -size))]
    fitting = f"; tp_size may be {', '.join(map(str, sizes))}" if sizes else ""
    if heads % ranks:
        message = f"{heads} attention heads do not divide by {ranks} ranks"
    else:
        message = f"{shared} KV heads can be neither divided over {ranks} ranks nor repeated on them"
    return Refusal(message + fitting, "tp_size", offers=offers)


def _divides_or_repeats(kv_heads: int, ranks: int) -> bool:
    return kv_heads % ranks == 0 or ranks % kv_heads == 0


@rule("CFG005", stage="plan")
def check_mem_fraction(args: ServerArgs, facts: Facts) -> Outcome:
    """What: mem_fraction_static must lie between 0 and 1.
    Why: SGLang's own arithmetic can leave that range (small GPUs, large vision towers) and nothing in it checks
        (server_args.py lines 452-506 and 2513-2549). Inferred: the server then fails when it allocates the KV cache.
    Upstream: none.
    Example: mem_fraction_static=85 -> refused, 0.85 is meant"""
    given = args.mem_fraction_static
    fraction = given if given is None else float(given)  # a release's answer holds nan as text
    if fraction is None or 0 < fraction < 1:
        return None
    return Refusal(
        f"mem_fraction_static={number(fraction)} is not between 0 and 1",
        "mem_fraction_static",
        offers=_fractions(fraction),
    )


def _fractions(fraction: float) -> tuple[str, ...]:
    """Returns the likely meanings of a fraction: 85 as a percentage; then a usual value, and SGLang's own choice."""
    percent = [f"mem_fraction_static={number(fraction / 100)}"] if 1 < fraction < 100 else []
    return (*percent, "mem_fraction_static=0.8", "mem_fraction_static=null")


def experts_of(text: JsonObject) -> int:
    """Returns the number of routed experts of a layer, 0 without experts."""
    return int(next((text[name] for name in _EXPERT_COUNTS if isinstance(text.get(name), int)), 0))


def derived_context_length(text_config: Mapping[str, object]) -> int | None:
    """Returns the longest context in tokens that a config allows, as SGLang derives it; None if no field states it."""
    scaling = text_config.get("rope_scaling")
    factor = 1.0
    if isinstance(scaling, Mapping):
        stretched = "original_max_position_embeddings" not in scaling and scaling.get("rope_type") != "llama3"
        factor = float(scaling.get("factor", 1)) if stretched else 1.0
    for key in _CONTEXT_KEYS:
        length = text_config.get(key)
        if isinstance(length, int):
            return int(factor * length)
    return None


def stored_quantization(args: ServerArgs | Arguments, facts: Facts) -> str | None:
    """Returns the checkpoint's own method in lower case; None where its config names none or is unknown."""
    stored = stored_config(view_of(facts.model, args.json_model_override_args))
    method = stored.get("quant_method", args.quantization) if stored else None
    return str(method).lower() if method else None


def stored_config(view: ConfigView | None) -> Mapping[str, object]:
    """Returns the quantization part of a checkpoint's config; empty where it has none."""
    stored = (view.get("quantization_config") or view.get("compression_config")) if view is not None else None
    return stored if isinstance(stored, Mapping) else {}
