"""Prefill and decoding on different servers, or in different streams of one GPU."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class
from sglang_hydra.arguments.fields.choices import DISAGG_TRANSFER_BACKEND_CHOICES


@argument_class
class Disaggregation:
    """Prefill and decoding on different servers, or in different streams of one GPU."""

    disaggregation_mode: str = arg(
        "null",
        "The part of this server: prefill only, decode only, or both (the word null).",
        choices=("null", "prefill", "decode"),
    )
    disaggregation_transfer_backend: str = arg(
        "mooncake",
        "Library that moves the KV cache from prefill to decode servers; fake for tests.",
        choices=DISAGG_TRANSFER_BACKEND_CHOICES,
    )
    disaggregation_bootstrap_port: int = arg(
        8998, "TCP port where the prefill server meets decode servers; one for each prefill server of a machine."
    )
    disaggregation_decode_tp: int | None = arg(
        None,
        "tp_size of the decode servers, set on prefill servers only; one must be a multiple of the other.",
        unit="GPUs",
        none="the same as tp_size",
    )
    disaggregation_decode_dp: int | None = arg(
        None,
        "dp_size of the decode servers, set on prefill servers only.",
        unit="replicas",
        none="the same as dp_size",
    )
    disaggregation_prefill_pp: int | None = arg(
        1,
        "pp_size of the prefill servers, set on decode servers; a prefill server takes its own.",
        unit="stages",
        none="not meaningful: leave the default of 1",
    )
    disaggregation_ib_device: str | None = arg(
        None,
        "InfiniBand devices for the transfer, separated by commas (mlx5_0,mlx5_1).",
        none="found by the transfer library",
    )
    num_reserved_decode_tokens: int = arg(
        512,
        "KV cache kept free for each running request's answer when a decode server admits a new one.",
        unit="tokens",
    )
    prefill_round_robin_balance: bool = arg(
        False,
        "Says that prefill replicas are dealt requests in turn, so that decode servers know which has which; needed on "
        "decode servers with dp_size above 1.",
    )
    enable_pdmux: bool = arg(
        False,
        "Prefill and decoding side by side on one GPU. SGLang 0.5.2 only makes a second tensor parallel group for it.",
    )
    sm_group_num: int = arg(
        3, "Ways to divide the multiprocessors for enable_pdmux. SGLang 0.5.2 accepts it and reads it nowhere."
    )
