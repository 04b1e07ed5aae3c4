"""How GPU memory is divided, and the shape of the KV cache in it."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class


@argument_class
class Memory:
    """How GPU memory is divided, and the shape of the KV cache in it."""

    mem_fraction_static: float | None = arg(
        None,
        "Share of GPU memory for weights and KV cache, the rest is for activations and CUDA graphs; lower it by 0.02 "
        "to 0.05 after an out-of-memory.",
        unit="fraction of GPU memory",
        none="computed from the GPU's memory, the parallel sizes, speculative decoding and vision",
    )
    max_total_tokens: int | None = arg(
        None,
        "Upper bound of the KV cache's size; for debugging and for leaving memory to others. Never raises the size.",
        unit="tokens",
        none="what fits into mem_fraction_static",
    )
    page_size: int | None = arg(
        None,
        "Tokens of one KV cache page; some attention backends force their own (FlashMLA 64, Cutlass MLA 128).",
        unit="tokens",
        none="1, or what the attention backend needs",
    )
    hybrid_kvcache_ratio: float | None = arg(
        None,
        "Llama 4 only: how far local-attention layers get a smaller cache, from 0 (all layers alike) to 1 (only what "
        "the local window needs). The flag alone means 0.5.",
        none="all layers alike",
        nargs="?",
        const=0.5,
    )
    swa_full_tokens_ratio: float = arg(
        0.8,
        "Tokens held by a sliding-window layer for each token of a full-attention layer, from 0 to 1; lower it to hold "
        "more long requests.",
    )
    disable_hybrid_swa_memory: bool = arg(
        False, "Give sliding-window layers as much KV cache as full-attention ones; where the split causes trouble."
    )
    disable_radix_cache: bool = arg(
        False, "Do not reuse the KV cache of shared prefixes; for benchmarks that must not profit from it."
    )
    max_mamba_cache_size: int | None = arg(
        None,
        "Requests that the state cache of Mamba-like layers holds; bounds the running requests of such models.",
        unit="requests",
        none="max_running_requests, else 512; divided by dp_size under DP attention",
    )
    mamba_ssm_dtype: str = arg(
        "float32",
        "Type of the states of Mamba-like layers; bfloat16 halves their memory.",
        choices=("float32", "bfloat16"),
    )
    enable_memory_saver: bool = arg(
        False,
        "Allow releasing and resuming GPU memory by request (release_memory_occupation), as RL training loops do.",
    )
