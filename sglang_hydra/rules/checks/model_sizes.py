"""Checks that SGLang can build its ModelConfig, which it needs to see whether the model is multimodal."""

from __future__ import annotations

from collections.abc import Iterator

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.facts.config_view import TEXT_PARTS, ConfigView, is_own_text, text_config, view_of
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule
from sglang_hydra.text.json_types import JsonObject
from sglang_hydra.text.words import typed

_OVERRIDES = "json_model_override_args"
_LATENT = ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV3ForCausalLMNextN", "LongcatFlashForCausalLM")


@rule("MDL016", (500, 506))
def config_states_its_sizes(args: ServerArgs, facts: Facts) -> Outcome:
    """What: if mem_fraction_static is unset, a config is refused whose language model has no hidden_size and
        num_attention_heads that are numbers, or no num_hidden_layers or vocab_size, with its class's defaults; and
        json_model_override_args that replace the nested config of the language model.
    Why: SGLang builds its ModelConfig to see whether the model is multimodal, and that divides the one by the other
        (configs/model_config.py). An override becomes a plain mapping there, without the attributes that it reads.
    Example: model=sizeless -> refused"""
    view = view_of(facts.model, args.json_model_override_args)
    if facts.model.config_class is None or view is None or facts.was_given("mem_fraction_static"):
        return None
    replaced = next((name for name in TEXT_PARTS[:2] if name in view.overrides), None)
    if replaced is not None and not is_own_text(view.published):
        return Refusal(
            f"{_OVERRIDES} replaces {replaced} by a mapping that SGLang cannot read",
            _OVERRIDES,
            hint='a JSON object, {"key": value}, of keys beside it',
        )
    text = text_config(view)
    wrong = next(_unusable(args, view, text), None)
    if wrong is None:
        return None
    return Refusal(
        f"SGLang 0.5.2 cannot use the model's config: its {wrong} is {typed(text.get(wrong))}",
        "model_path",
        hint=f"a config.json that states {wrong}",
    )


def _unusable(args: ServerArgs, view: ConfigView, text: JsonObject) -> Iterator[str]:
    """Yields the fields of the language model that make ModelConfig fail."""
    yield from (name for name in ("hidden_size", "num_attention_heads") if not _is_number(text.get(name)))
    if text["num_attention_heads"] == 0:
        yield "num_attention_heads"
    yield from (name for name in ("num_hidden_layers", "vocab_size") if name not in text)
    if any(name in _LATENT for name in view.architectures or ()):
        yield from (name for name in ("qk_nope_head_dim", "qk_rope_head_dim") if not _is_number(view.get(name)))
    # SGLang chooses the dtype of a model stored in float32 by the model's type.
    if args.dtype == "auto" and text.get("torch_dtype") in (None, "float32") and text.get("model_type", "") is None:
        yield "model_type"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))
