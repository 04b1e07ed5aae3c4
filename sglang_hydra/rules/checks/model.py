"""Checks that the model's config is readable, and that the model runs on the chosen attention backend."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.facts.config_view import ConfigView, UnreadableOverrides, read_overrides, view_of
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule
from sglang_hydra.text.json_types import Json
from sglang_hydra.text.words import typed

_OVERRIDES = "json_model_override_args"
_LLAMA_4_BACKENDS = ("fa3", "aiter", "triton")
_HINT = 'a JSON object, {"key": value}, of keys of the model\'s config'


def _overrides_problem(args: ServerArgs) -> Refusal | None:
    try:
        read_overrides(args.json_model_override_args)
    except UnreadableOverrides as unreadable:
        return Refusal(str(unreadable), _OVERRIDES, hint=_HINT, offers="json_model_override_args='{}'")
    return None


def _architectures_problem(view: ConfigView | None) -> Refusal | None:
    if view is None:
        return None
    published: object = view.published.get("architectures")
    if published is not None and not _names_one(published):
        return Refusal(
            f"the model's config.json names no architecture: architectures is {typed(published)}, and SGLang reads the "
            "first one before it lays json_model_override_args over the file",
            "model_path",
            hint='a config.json with "architectures": ["LlamaForCausalLM"], or without the key and with an override',
        )
    if _names_one(view.architectures):
        return None
    return Refusal(
        f"the model's config names no architecture: architectures is {typed(view.architectures)}",
        "model_path",
        _OVERRIDES,
        hint="name the model's class in architectures, in its config.json or in json_model_override_args",
    )


def _names_one(architectures: Json) -> bool:
    try:
        return isinstance(architectures[0], str)
    except (TypeError, IndexError, KeyError):
        return False


@rule("MDL001", (500, 506))
def config_is_readable_for_memory(args: ServerArgs, facts: Facts) -> Outcome:
    """What: if mem_fraction_static is unset, a config without architectures is refused, and json_model_override_args
        that are not a JSON object.
    Why: SGLang then looks first whether the model is multimodal. Nothing is refused for a model that is not known.
    Example: json_model_override_args=nope -> refused"""
    if facts.was_given("mem_fraction_static"):
        return None
    problem = _overrides_problem(args)
    if problem is not None:
        return problem
    view = view_of(facts.model, args.json_model_override_args)
    if view is not None and view.architectures == [] and args.enable_multimodal is not None:
        return None  # SGLang only searches the list then, which works for an empty one; MDL003 refuses it
    return _architectures_problem(view)


@rule("MDL002", (2238, 2247))
def overrides_are_an_object(args: ServerArgs, facts: Facts) -> Outcome:
    """What: json_model_override_args that are not a JSON object are refused, also with mem_fraction_static given.
    Why: they replace keys of the model's config. null, 0, "" and [] replace nothing and pass.
    Example: mem_fraction_static=0.8 json_model_override_args='[1]' -> refused"""
    if not facts.was_given("mem_fraction_static"):
        return None  # MDL001 reports it
    return _overrides_problem(args)


@rule("MDL003", (2438, 2440))
def config_names_an_architecture(args: ServerArgs, facts: Facts) -> Outcome:
    """What: a config without architectures is refused, also with mem_fraction_static given.
    Why: the first architecture decides which model class is loaded and which rules below apply.
    Example: mem_fraction_static=0.8 json_model_override_args='{"architectures":[]}' -> refused"""
    view = view_of(facts.model, args.json_model_override_args)
    reported = not facts.was_given("mem_fraction_static") and (args.enable_multimodal is None or view is None)
    return None if reported else _architectures_problem(view)


@rule("MDL012", (2493, 2498))
def llama_4_runs_on_backend(args: ServerArgs, facts: Facts) -> Outcome:
    """What: Llama 4 is refused unless attention_backend is fa3, aiter or triton; SGLang chooses none for it.
    Why: SGLang's assertion names these three and gives no reason. Inferred: its chunked attention is implemented in no
        other.
    Example: gpu=h100 model=llama_4_scout attention_backend=null -> refused"""
    view = view_of(facts.model, args.json_model_override_args)
    if view is None or "Llama4" not in view.architecture:
        return None
    # A set, like upstream's: an unhashable value fails there otherwise than in a tuple.
    if args.attention_backend in set(_LLAMA_4_BACKENDS):
        return None
    return Refusal(
        f"Llama 4 does not run on attention_backend={typed(args.attention_backend)}; it runs on "
        f"{' or '.join(_LLAMA_4_BACKENDS)}",
        "attention_backend",
        hint="use another GPU: device=hpu forces torch_native" if args.device == "hpu" else None,
        offers=[f"attention_backend={name}" for name in _LLAMA_4_BACKENDS],
    )
