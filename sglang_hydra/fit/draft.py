"""Draft models for speculative decoding: what they add to the target (SGLang 0.5.2, models/*_eagle*.py, *_nextn.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sglang_hydra.architecture.decoder import FULL, Decoder, Layer
from sglang_hydra.architecture.known import Fields, Missing, text_part
from sglang_hydra.architecture.quantization import scheme_of
from sglang_hydra.architecture.ranks import kv_share, padded_vocabulary, ranks_of, share
from sglang_hydra.architecture.reading import architecture_of, read_decoder
from sglang_hydra.arguments.layout import Layout
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.fit.weights import decoder_weights

WITHOUT_MODEL = ("NGRAM", "LOOKAHEAD")
_EAGLE = "Eagle"
_EAGLE3 = "Eagle3"
_TARGETS = {"MiMoMTP": "MiMoForCausalLM"}
_WHILE_LOADING = ("fp8", "w8a8_fp8")
_NUMBERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers")


class Draft(NamedTuple):
    """Bytes of the draft's weights on one GPU, its decoder for the KV cache, and the bytes of the embedding and head
    that it is built with and that the target's replace: after the pools were sized (0.5.14 to 0.5.23
    speculative/eagle_worker_v2.py, init_lm_head in alloc_memory_pool)."""

    weights: float
    decoder: Decoder
    replaced: float = 0.0


def draft_of(
    config: Fields,
    values: Mapping[str, object],
    layout: Layout,
    gpu: GpuFacts,
    target: Decoder,
    own: bool,
    release: str = "0.5.2",
) -> Draft:
    """Returns the draft model that ``config`` describes. ``own``: it is the target's config, so its next-token layers
    draft; so do those of a checkpoint that holds nothing else (DeepSeek-V3-NextN).

    Embedding and lm_head are the target's (eagle_worker.py), but for an EAGLE-3 draft's own lm_head and for a model
    that drafts on its own (STANDALONE). Raises Missing.
    """
    algorithm = str(values.get("speculative_algorithm"))
    named = architecture_of(config)
    architecture = _TARGETS.get(named) or named.removesuffix("NextN").removesuffix("MTP")
    decoder = read_decoder(config, architecture)
    standalone = algorithm == "STANDALONE"
    brings_layers = named != architecture or config.count("num_nextn_predict_layers", default=0) > 0
    if own or (brings_layers and not standalone):
        return _next_token_layers(config, decoder, values, layout, gpu, release)
    ranks = ranks_of(layout._replace(stages=1), shares_attention=target.shares_attention)
    # The draft is loaded with the same argument (configs/model_config.from_server_args): only what quantizes while
    # loading can meet a draft, whose checkpoint has no format of its own.
    asked = values.get("quantization")
    scheme = scheme_of(config, {**values, "quantization": asked if asked in _WHILE_LOADING else None}, gpu, release)
    eagle3 = _EAGLE3 in architecture or algorithm == "EAGLE3"
    if standalone or not (eagle3 or _EAGLE in architecture or algorithm == "EAGLE"):
        return Draft(decoder_weights(decoder, scheme, ranks, None)[0].total, decoder)
    bare = decoder._replace(embedding_rows=0, head_rows=0, positions=0)
    weights = decoder_weights(bare, scheme, ranks, None)[0].total
    inputs = 3 * config.size("target_hidden_size", default=target.hidden) if eagle3 else 2 * decoder.hidden
    weights += inputs * decoder.hidden * scheme.element
    row = decoder.hidden * scheme.element
    replaced = share(padded_vocabulary(decoder.embedding_rows), ranks.embedding) * row
    head = 0 if decoder.tied else share(padded_vocabulary(decoder.head_rows), ranks.head) * row
    if not eagle3:
        return Draft(weights, decoder, replaced + head)
    heads = share(decoder.heads, ranks.attention) + 2 * kv_share(decoder.kv_heads, ranks.attention)
    weights += heads * decoder.head_dim * decoder.hidden * scheme.element
    weights += share(padded_vocabulary(decoder.head_rows), ranks.head) * decoder.hidden * scheme.element
    return Draft(weights, decoder, replaced)


def _next_token_layers(
    config: Fields, decoder: Decoder, values: Mapping[str, object], layout: Layout, gpu: GpuFacts, release: str
) -> Draft:
    """Returns the layers that a model brings for predicting further tokens: its last kind of layer with full attention,
    and a projection of two hidden states into one. NVFP4 checkpoints of DeepSeek have them in 16 bits
    (deepseek_nextn.py), ModelOpt's of Qwen3.5 too (0.5.20 models/qwen3_5_mtp.py, _mtp_quant_config)."""
    default = 1 if decoder.architecture.startswith(("Qwen3Next", "MiMo", "Ernie4_5")) else None
    text = text_part(config)
    if text.count(*_NUMBERS, default=default) == 0:
        raise Missing("num_nextn_predict_layers (0: this checkpoint has no layer that drafts)")
    number = text.size(*_NUMBERS, default=default, most=len(decoder.layers))
    last = decoder.layers[-1]
    bare = decoder._replace(
        layers=(Layer(FULL, last.dense, last.experts),) * number, embedding_rows=0, head_rows=0, tied=False, positions=0
    )
    scheme = scheme_of(config, values, gpu, release)
    modelopt = scheme.name.startswith("modelopt") and decoder.architecture.startswith("Qwen3_5")
    if modelopt or (scheme.linear.name == "nvfp4" and decoder.latent is not None):
        scheme = scheme._replace(linear=scheme.plain, experts=scheme.plain, head=scheme.plain, groups=())
    whole = layout._replace(stages=1)
    ranks = ranks_of(whole, shares_attention=decoder.shares_attention, architecture=decoder.architecture)
    weights = decoder_weights(bare, scheme, ranks, None)[0].total
    own = bare._replace(embedding_rows=decoder.embedding_rows, head_rows=decoder.head_rows, tied=decoder.tied)
    replaced = decoder_weights(own, scheme, ranks, None)[0].total - weights
    return Draft(weights + 2 * decoder.hidden * decoder.hidden * scheme.element * number, bare, replaced)
