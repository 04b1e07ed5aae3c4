"""Speculative decoding: a draft proposes tokens, the model verifies them."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class


@argument_class
class Speculative:
    """Speculative decoding: a draft proposes tokens, the model verifies them."""

    speculative_algorithm: str | None = arg(
        None,
        "Kind of draft: EAGLE or EAGLE3 heads, NEXTN (the model's own prediction layers, as DeepSeek has; runs as "
        "EAGLE) or STANDALONE (a smaller model). Lowers latency at small batches.",
        none="no speculation",
        choices=("EAGLE", "EAGLE3", "NEXTN", "STANDALONE"),
    )
    speculative_draft_model_path: str | None = arg(
        None,
        "Checkpoint of the draft; for DeepSeek V3 and GLM 4.5 MoE the model itself serves as one.",
        none="model_path where the model has prediction layers, else refused by the server",
        flags=("--speculative-draft-model-path", "--speculative-draft-model"),
    )
    speculative_draft_model_revision: str | None = arg(
        None, "Branch, tag or commit of the draft's repository.", none="its main branch"
    )
    speculative_num_steps: int | None = arg(
        None,
        "Tokens that the draft runs ahead; more pay off while most of them are accepted.",
        unit="steps",
        none="chosen by the architecture together with topk and draft tokens: 5, 4, 8 or 3, 1, 4",
    )
    speculative_eagle_topk: int | None = arg(
        None,
        "Branches that the draft follows at each step; above 1 needs page_size=1 or the flashinfer backend.",
        unit="branches",
        none="chosen with speculative_num_steps; must be set where that is set",
    )
    speculative_num_draft_tokens: int | None = arg(
        None,
        "Draft tokens that one pass verifies; with topk 1 always speculative_num_steps + 1.",
        unit="tokens",
        none="chosen with speculative_num_steps; must be set where that is set",
    )
    speculative_accept_threshold_single: float = arg(
        1.0,
        "Accept a draft token outright once the model gives it this probability; below 1 trades fidelity for speed.",
        unit="probability",
    )
    speculative_accept_threshold_acc: float = arg(
        1.0,
        "Divide the model's probability of a draft token by this when deciding on it; below 1 accepts more.",
        unit="probability",
    )
    speculative_token_map: str | None = arg(
        None,
        "File with the frequent tokens that the draft's output head is cut down to (FR-Spec).",
        none="the whole vocabulary",
    )
    speculative_attention_mode: str = arg(
        "prefill",
        "Which attention kernels verify drafts, where prefill and decode have different ones.",
        choices=("prefill", "decode"),
    )
