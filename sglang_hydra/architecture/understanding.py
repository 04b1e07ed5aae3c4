"""Reads a model under given arguments: all facts that size its memory, and the names of the unknown ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from sglang_hydra.architecture.decoder import Decoder
from sglang_hydra.architecture.formats import Scheme
from sglang_hydra.architecture.known import Fields, Missing, text_part
from sglang_hydra.architecture.quantization import SPECIFIED, caches_fp8, element_bytes, scheme_of, stored_quantization
from sglang_hydra.architecture.ranks import Ranks, ranks_of
from sglang_hydra.architecture.reading import architecture_of, read_decoder
from sglang_hydra.architecture.reading_layers import traits_of
from sglang_hydra.architecture.vision import Tower, has_tower, read_tower
from sglang_hydra.arguments.layout import Layout, layout_of
from sglang_hydra.arguments.tables.order import FIRST_NUMBERED, at_least, release_key
from sglang_hydra.arguments.tables.table import has_class
from sglang_hydra.facts.config_view import view_of
from sglang_hydra.facts.defaults import as_read
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.text.json_types import JsonObject

_CONTEXT_KEYS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")
LATEST = "0.5.23"
_ASSUMED_CONTEXT = 2048  # hf_transformers_utils.get_context_length, where no field says it

T = TypeVar("T")


@dataclass(slots=True, repr=False, eq=False)
class Understanding:
    """The facts of a model. ``context`` is the longest context in tokens that the server accepts, ``cached`` the bytes
    of a cached element under kv_cache_dtype=auto. ``release`` is SGLang's: without a named release, 0.5.2 for its own
    classes and the last known one for others. ``named``: a release was named, and the values are those it resolved."""

    layout: Layout
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
    release: str = SPECIFIED
    cached: int = 2
    named: bool = False

    def attempt(self, read: Callable[[], T]) -> T | None:
        """Returns the result of ``read``, or None where a field is missing; then adds its name to ``unknown``."""
        try:
            return read()
        except Missing as missing:
            self.unknown += [name for name in missing.names if name not in self.unknown]
            return None


def config_fields(model: ModelFacts, override_text: object) -> Fields | None:
    """Returns the config with json_model_override_args applied, or None for an unknown model."""
    view = view_of(as_read(model, ""), override_text)
    if view is None:
        return None
    values = {**view.published, **view.overrides} if view.overrides else view.published
    return Fields(values, model.source)


def understand(
    values: JsonObject, gpu: GpuFacts, model: ModelFacts, release: str | None = None, layout: Layout | None = None
) -> Understanding:
    """Reads ``model`` as a server with ``values``, and their ``layout`` if it was made, would, one of ``release`` if
    that is named. Missing fields go to ``unknown`` and raise nothing.

    Raises ConfigError (FIT010) where a field of the config cannot be a size."""
    config = config_fields(model, values.get("json_model_override_args", "{}"))
    layout = layout or layout_of(values, release or SPECIFIED)
    ranks = ranks_of(layout, shares_attention=True)
    known = Understanding(layout, ranks, 2, values.get("context_length") or 0, config)
    if config is None:
        known.unknown.append(f"config.json of {values.get('model_path') or 'the model'}")
        return known
    known.element = known.cached = element_bytes(values, gpu)
    known.context = known.context or context_length(text_part(config))
    architecture = known.attempt(lambda: architecture_of(config))
    if architecture is None:
        return known
    own_build = release is not None and (release_key(release) or ((0,), 0, 0)) < FIRST_NUMBERED
    known.release = LATEST if own_build else release or (SPECIFIED if traits_of(architecture)[1] else LATEST)
    known.named = release is not None
    if LATEST == known.release != release:
        why = f"{release} is no release" if own_build else f"{SPECIFIED} has no class {architecture}"
        known.notes.append(f"sized as SGLang {LATEST} does it, the last release that was read: {why}")
    if known.release != SPECIFIED and caches_fp8(config):
        known.cached = 1
    known.decoder = known.attempt(lambda: _decoder(config, architecture))
    known.scheme = known.attempt(lambda: _scheme(config, values, gpu, model, known.release))
    if known.decoder is not None and known.decoder.indexer is not None:
        indexer = known.decoder.indexer._replace(scaled=not gpu.is_sm100)
        known.decoder = known.decoder._replace(indexer=indexer)
    if known.decoder is not None:
        _understand_decoder(known, config, values, known.decoder)
    return known


def _decoder(config: Fields, architecture: str) -> Decoder:
    """Returns the decoder of ``config`` and caches the last four, because most plans repeat a model."""
    for values, name, kept in _LAST:
        if name == architecture and values == config.values:
            return kept
    made = read_decoder(config, architecture)
    _LAST.append((config.values, architecture, made))
    return made


_LAST: deque[tuple[Mapping[str, object], str, Decoder]] = deque(maxlen=4)


def _scheme(config: Fields, values: Mapping[str, object], gpu: GpuFacts, model: ModelFacts, release: str) -> Scheme:
    stored = stored_quantization(config)
    if model.gguf and (stored is None or stored.get("quant_method") != "gguf"):
        raise Missing("the GGUF file's tensors (their formats are in its header)")
    return scheme_of(config, values, gpu, release)


def context_length(text: Fields) -> int:
    """Returns the longest context in tokens as SGLang derives it (hf_transformers_utils.get_context_length)."""
    scaling = text.part("rope_scaling")
    factor = 1.0
    if scaling is not None and scaling.get("rope_type") != "llama3":
        stretch = scaling.number("factor", default=1.0)
        factor = 1.0 if "original_max_position_embeddings" in scaling else stretch
    return int(factor * text.count(*_CONTEXT_KEYS, default=_ASSUMED_CONTEXT))


def _understand_decoder(known: Understanding, config: Fields, values: Mapping[str, object], decoder: Decoder) -> None:
    later, name = known.release != SPECIFIED, decoder.architecture
    known.ranks = ranks_of(known.layout, shares_attention=decoder.shares_attention, architecture=name, later=later)
    if decoder.compressed is not None and not at_least(known.release, "0.5.15"):
        known.decoder = decoder._replace(positions=decoder.positions // 2)  # one table for each base
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
    if has_class(known.release, (decoder.architecture,)) is False if later else not decoder.served:
        known.notes.append(f"SGLang {known.release} has no class {decoder.architecture}")
    if decoder.assumed:
        known.notes.append(f"{decoder.architecture}: its tensors are read as those of the usual decoder, to 5 %")
    if known.layout.attention_groups > 1 and not decoder.shares_attention:
        known.notes.append(f"{decoder.architecture} has no DP attention in SGLang 0.5.2: tp_size shards its attention")
