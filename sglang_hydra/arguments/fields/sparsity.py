"""Double sparsity: attention over the most important channels and tokens only."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class


@argument_class
class Sparsity:
    """Double sparsity: attention over the most important channels and tokens only."""

    enable_double_sparsity: bool = arg(
        False,
        "Decode with double sparsity: approximate attention, faster for long contexts. Needs ds_channel_config_path.",
    )
    ds_channel_config_path: str | None = arg(
        None,
        "JSON file with the important channels of the model, made offline.",
        none="none; needed with double sparsity",
    )
    ds_heavy_channel_num: int = arg(32, "Channels of a head used to estimate which tokens matter.", unit="channels")
    ds_heavy_token_num: int = arg(256, "Tokens that full attention is then computed over.", unit="tokens")
    ds_heavy_channel_type: str = arg("qk", "Which list of the channel file is used: q, k or qk.")
    ds_sparse_decode_threshold: int = arg(4096, "Shorter contexts are decoded with full attention.", unit="tokens")
