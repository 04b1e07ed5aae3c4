"""Fields that no reader asked for and that speak of states, experts or attention: their model is not sized."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sglang_hydra.architecture.known import Fields
from sglang_hydra.architecture.reading_states import is_state

_SPEAKS = re.compile(
    r"linear|sparse|window|swa_|sliding|mamba|ssm|conv_|_conv|diffusion|recurrent|lightning|delta|kda|rwkv|engram|hash"
    r"|compress|index_|indexer|expert|chunk|cross_|hc_|mhc|share_kv|kv_shar|per_layer|loop|block_length|mask_token"
    r"|layer_pattern|attn_pattern|hybrid"
)
_HARMLESS = re.compile(
    r"router|per_tok|group|norm|bias|loss|aux|drop|theta|_dtype|scor|scal|capacity|jitter|rope|init|_act|fp32|logits"
    r"|cache|shared_experts?$|max_window_layers|use_|_type$|nonlinear|audio|image|video|vision|chunk_size_feed_forward|_gemm|_mm$"
)
_DIFFUSION = ("LLaDA", "SDAR")
"""Classes that write a block of tokens at once (SGLang 0.5.23 dllm/config.py): what they keep for it is not known."""
_ATTENTION = ("full", "sliding", "chunked", "attention", "global", "local")


def unread(text: Fields, architecture: str) -> Iterator[str]:
    """The fields of ``text`` that speak of what sizes memory and were not read, and kinds of layers that nothing here
    knows; what is off, 0 or empty says nothing. Of a class that writes by diffusion, that it does."""
    if architecture.startswith(_DIFFUSION):
        yield "its decoding by diffusion"
    for name, value in text.values.items():
        if name not in text.read and value and _SPEAKS.search(name) and not _HARMLESS.search(name):
            yield f"{text.prefix}{name}"
    for kind in dict.fromkeys(text.words("layer_types")):
        if not kind.startswith(_ATTENTION) and not is_state(kind):
            yield f"{text.prefix}layer_types={kind}"
