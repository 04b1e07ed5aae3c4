"""Which kernels compute attention, sampling and grammars."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class
from sglang_hydra.arguments.fields.choices import ATTENTION_BACKEND_CHOICES, GRAMMAR_BACKEND_CHOICES


@argument_class
class Kernels:
    """Which kernels compute attention, sampling and grammars."""

    attention_backend: str | None = arg(
        None,
        "Attention kernels; set it when a model or a GPU has a known best one. Some set the page size too.",
        none="by the architecture for some models, else chosen by the server from GPU and model at start",
        choices=ATTENTION_BACKEND_CHOICES,
    )
    decode_attention_backend: str | None = arg(
        None,
        "Attention kernels of decoding, where they shall differ from those of prefill.",
        none="the same as attention_backend",
        choices=ATTENTION_BACKEND_CHOICES,
    )
    prefill_attention_backend: str | None = arg(
        None,
        "Attention kernels of prefill, where they shall differ from those of decoding.",
        none="the same as attention_backend",
        choices=ATTENTION_BACKEND_CHOICES,
    )
    sampling_backend: str | None = arg(
        None,
        "Sampling kernels; pytorch is the slow and sure one.",
        none="flashinfer where it is installed, else pytorch",
        choices=("flashinfer", "pytorch"),
    )
    grammar_backend: str | None = arg(
        None,
        "Library that constrains output to a JSON schema, a regular expression or a grammar.",
        none="xgrammar",
        choices=GRAMMAR_BACKEND_CHOICES,
    )
    mm_attention_backend: str | None = arg(
        None,
        "Attention kernels of the vision encoder.",
        none="chosen by the server from the GPU",
        choices=("sdpa", "fa3", "triton_attn"),
    )
    disable_outlines_disk_cache: bool = arg(
        False, "Keep outlines' compiled grammars in memory only; where its disk cache crashes under concurrency."
    )
    triton_attention_reduce_in_fp32: bool = arg(
        False, "Accumulate attention in float32 in the Triton kernels; against overflows of float16."
    )
    triton_attention_num_kv_splits: int = arg(
        8,
        "Parts that Triton decoding splits a request's KV cache into; raise it for long contexts. AMD always gets 16.",
    )
    flashinfer_mla_disable_ragged: bool = arg(
        False, "Prefill FlashInfer MLA through its paged kernel and not the ragged one; where the latter misbehaves."
    )
    disable_chunked_prefix_cache: bool = arg(
        False, "DeepSeek: do not process a cached prefix in chunks; saves some overhead when prompts are short."
    )
