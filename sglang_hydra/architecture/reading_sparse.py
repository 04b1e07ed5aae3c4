"""Reading attention that caches less than keys and values of every head: latent, sparse and compressed attention.

Fields: SGLang 0.5.23 configs/model_config.py:188-245 (is_deepseek_dsa), 446-523 (layers with an indexer, MiniMax-M3's
sparse layers), 1385-1512 (sizes of latent and compressed attention).
"""

from __future__ import annotations

from collections.abc import Callable

from sglang_hydra.architecture.decoder import Compressed, Indexer, Latent
from sglang_hydra.architecture.known import Fields, Missing


def read_latent(text: Fields, architecture: str) -> Latent | None:
    """Returns multi-head latent attention; None where keys and values have heads of their own."""
    if "kv_lora_rank" not in text or not text.flag("use_mla", default=True):
        return None
    if "q_lora_rank" not in text.values:
        raise Missing(f"{text.prefix}q_lora_rank")
    value = text.size("v_head_dim")
    gates = {"head_wise": 1, "element_wise": value}
    gated = gates.get(str(text.get("gated_attention_proj_granularity_type")), 0)
    return Latent(
        query_rank=text.count("q_lora_rank", default=0),
        kv_rank=text.size("kv_lora_rank"),
        nope=text.size("qk_nope_head_dim"),
        rope=0 if text.flag("use_mla_nope") and architecture.startswith("Bailing") else text.count("qk_rope_head_dim"),
        value=value,
        gate=value if text.flag("mla_use_output_gate") else gated,
    )


def read_indexer(text: Fields, latent: Latent | None) -> Indexer | None:
    """Returns the indexer of sparse attention: DeepSeek's beside a latent cache, or MiniMax-M3's beside KV heads."""
    sparse = text.part("sparse_attention_config")
    if sparse is not None and sparse.flag("use_sparse_attention", default=True):
        return Indexer(sparse.size("sparse_num_index_heads"), sparse.size("sparse_index_dim"), 0)
    if latent is None or "index_n_heads" not in text:
        return None
    pool = text.size("index_kpool", default=1)
    return Indexer(text.size("index_n_heads"), text.size("index_head_dim"), latent.query_rank, pool=pool)


def read_compressed(text: Fields) -> Compressed | None:
    """Returns DeepSeek-V4's attention; None for other models."""
    if "compress_ratios" not in text:
        return None
    if "kv_source_layer_ids" in text:  # DeepSeek-V4.1: ratios 1 and 2, tables of n-grams
        raise Missing(f"{text.prefix}kv_source_layer_ids (layers that share a compressed cache are not modelled)")
    return Compressed(
        query_rank=text.size("q_lora_rank"),
        dim=text.size("head_dim"),
        rope=text.size("qk_rope_head_dim"),
        groups=text.size("o_groups"),
        rank=text.size("o_lora_rank"),
        window=text.size("sliding_window"),
        streams=text.size("hc_mult", default=1),
        index_heads=text.size("index_n_heads"),
        index_dim=text.size("index_head_dim"),
        listed=len(text.numbers("compress_ratios")),
    )


def layer_kinds(text: Fields, number: int) -> tuple[int, ...]:
    """Returns what tells apart layers of sparse or compressed attention (``Layer.kind``), in order."""
    if "compress_ratios" in text:
        ratios = text.numbers("compress_ratios")
        if len(ratios) < number or not set(ratios) <= {0, 4, 128}:
            raise text.wrong("compress_ratios", text.get("compress_ratios"), f"{number} ratios of 0, 4 or 128")
        return ratios[:number]
    sparse = text.part("sparse_attention_config")
    if sparse is not None:
        marks = sparse.numbers("sparse_attention_freq")
        return tuple(0 if i < len(marks) and marks[i] else 1 for i in range(number))
    if "index_n_heads" not in text:
        return (0,) * number
    shares = _shares_index(text)
    return tuple(int(shares(i)) for i in range(number))


def _shares_index(text: Fields) -> Callable[[int], bool]:
    """Returns which layers reuse the choice of the one before and have no indexer (0.5.23 dsa_layer_skips_topk)."""
    named = text.words("indexer_types")
    if named:
        return lambda i: i < len(named) and named[i] == "shared"
    pattern = text.get("index_topk_pattern")
    if isinstance(pattern, str):
        return lambda i: i < len(pattern) and pattern[i] == "S"
    every = text.size("index_topk_freq", default=1)
    offset = text.size("index_skip_topk_offset", default=2)
    return lambda i: max(i - offset + 1, 0) % every != 0
