"""A model under given arguments: everything about it that sizes memory, and the names of what is not known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sglang_hydra.architecture.decoder import Decoder
from sglang_hydra.architecture.known import Fields, Missing, text_part
from sglang_hydra.architecture.quantization import element_bytes, scheme_of, stored_quantization
from sglang_hydra.architecture.ranks import Ranks, ranks_of
from sglang_hydra.architecture.reading import architecture_of, read_decoder
from sglang_hydra.architecture.scheme import Scheme
from sglang_hydra.architecture.vision import Tower, has_tower, read_tower
from sglang_hydra.facts.config_view import view_of
from sglang_hydra.facts.defaults import as_read
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.model import ModelFacts

_CONTEXT_KEYS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")
_ASSUMED_CONTEXT = 2048  # hf_transformers_utils.get_context_length, where no field says it

T = TypeVar("T")


@dataclass(slots=True)
class Understanding:
    """What is known of a model. ``context`` is the longest context in tokens that the server will take."""

    ranks: Ranks
    element: int
    context: int
    config: Fields | None = None
    decoder: Decoder | None = None
    scheme: Scheme | None = None
    tower: Tower | None = None
    tower_missing: bool = False
    unknown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def attempt(self, read: Callable[[], T]) -> T | None:
        """What ``read`` returns; None where it lacks a field, whose name is kept."""
        try:
            return read()
        except Missing as missing:
            self.unknown += [name for name in missing.names if name not in self.unknown]
            return None


def config_fields(model: ModelFacts, override_text: Any) -> Fields | None:
    """The config under json_model_override_args; None where nothing is known of the model."""
    view = view_of(as_read(model, ""), override_text)
    if view is None:
        return None
    values = {**view.published, **view.overrides} if view.overrides else view.published
    return Fields(values, model.source)


def understand(values: Mapping[str, Any], gpu: GpuFacts, model: ModelFacts) -> Understanding:
    """Reads ``model`` as the server with ``values`` would. Nothing is raised for what is missing: it is in ``unknown``.

    Raises ConfigError (FIT010) where a field of the config cannot be a size.
    """
    config = config_fields(model, values.get("json_model_override_args", "{}"))
    known = Understanding(ranks_of(values, shares_attention=True), 2, values.get("context_length") or 0, config)
    if config is None:
        known.unknown.append(f"config.json of {values.get('model_path') or 'the model'}")
        return known
    known.element = element_bytes(values, gpu)
    known.context = known.context or context_length(text_part(config))
    architecture = known.attempt(lambda: architecture_of(config))
    if architecture is None:
        return known
    known.decoder = known.attempt(lambda: read_decoder(config, architecture))
    known.scheme = known.attempt(lambda: _scheme(config, values, gpu, model))
    if known.decoder is not None and known.decoder.indexer is not None:
        indexer = known.decoder.indexer._replace(scaled=not gpu.is_sm100)
        known.decoder = known.decoder._replace(indexer=indexer)
    if known.decoder is not None:
        _understand_decoder(known, config, values, known.decoder)
    return known


def _scheme(config: Fields, values: Mapping[str, Any], gpu: GpuFacts, model: ModelFacts) -> Scheme:
    stored = stored_quantization(config)
    if model.gguf and (stored is None or stored.get("quant_method") != "gguf"):
        raise Missing("the GGUF file's tensors (their formats are in its header)")
    return scheme_of(config, values, gpu)


def context_length(text: Fields) -> int:
    """The longest context in tokens as SGLang derives it (hf_transformers_utils.get_context_length)."""
    scaling = text.part("rope_scaling")
    factor = 1.0
    if scaling is not None and scaling.get("rope_type") != "llama3":
        stretch = scaling.number("factor", default=1.0)
        factor = 1.0 if "original_max_position_embeddings" in scaling else stretch
    return int(factor * text.count(*_CONTEXT_KEYS, default=_ASSUMED_CONTEXT))


def _understand_decoder(known: Understanding, config: Fields, values: Mapping[str, Any], decoder: Decoder) -> None:
    known.ranks = ranks_of(values, shares_attention=decoder.shares_attention, architecture=decoder.architecture)
    if has_tower(config, decoder.architecture, values):
        known.tower = known.attempt(lambda: read_tower(config, decoder.architecture, decoder))
        known.tower_missing = known.tower is None
    layers, stages = len(decoder.layers), known.ranks.stages
    if stages < layers and layers % stages:
        each, rest = divmod(layers, stages)
        known.notes.append(
            f"{layers} layers do not divide by pp_size={stages}: the last stage holds {each + rest}, the others {each}"
            ", so that more stages may not need less"
        )
    if not decoder.served:
        known.notes.append(
            f"SGLang 0.5.2 has no class {decoder.architecture}"
            + (
                ": its tensors are read from the fields as those of the usual decoder, to 5 %"
                if decoder.assumed
                else ""
            )
        )
    if values.get("enable_dp_attention") and (values.get("dp_size") or 1) > 1 and not decoder.shares_attention:
        known.notes.append(f"{decoder.architecture} has no DP attention in SGLang 0.5.2: tp_size shards its attention")
