"""GGUF files for tests: a header as ggml's docs/gguf.md lays it out, without weights."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

F32, F16, Q4_0, Q8_0, Q4_K, Q6_K = 0, 1, 2, 8, 12, 14


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(item: Any) -> bytes:
    if isinstance(item, str):
        return struct.pack("<I", 8) + text(item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, list) and isinstance(item[0], str):
        return struct.pack("<IIQ", 9, 8, len(item)) + b"".join(map(text, item))
    if isinstance(item, list):
        return struct.pack(f"<IIQ{len(item)}i", 9, 5, len(item), *item)
    return struct.pack("<II", 4, item)


def gguf(values: Mapping[str, Any], tensors: Mapping[str, tuple[tuple[int, ...], int]], version: int = 3) -> bytes:
    """The bytes of a header with these keys and tensors (name to shape and format)."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    keys = b"".join(text(key) + value(item) for key, item in values.items())
    infos = b"".join(
        text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, 0)
        for name, (shape, kind) in tensors.items()
    )
    return head + keys + infos


def llama(layers: int = 4, kinds: tuple[int, ...] = (Q4_K, Q6_K), head: int | None = Q6_K) -> bytes:
    """A small Llama: hidden 1024, 8 heads, 2 KV heads, MLP 4096. Values and the second matrix of each MLP have the
    second format in every other layer, as a mixture does."""
    values = {
        "general.architecture": "llama",
        "llama.block_count": layers,
        "llama.embedding_length": 1024,
        "llama.feed_forward_length": 4096,
        "llama.attention.head_count": 8,
        "llama.attention.head_count_kv": 2,
        "llama.context_length": 4096,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.tokens": ["a", "bc", "d"],
        "tokenizer.ggml.token_type": [1, 1, 1],
    }
    usual, better = kinds[0], kinds[-1]
    tensors: dict[str, tuple[tuple[int, ...], int]] = {"token_embd.weight": ((1024, 32000), usual)}
    if head is not None:
        tensors["output.weight"] = ((1024, 32000), head)
    for layer in range(layers):
        other = better if layer % 2 == 0 else usual
        tensors |= {
            f"blk.{layer}.attn_q.weight": ((1024, 1024), usual),
            f"blk.{layer}.attn_k.weight": ((1024, 256), usual),
            f"blk.{layer}.attn_v.weight": ((1024, 256), other),
            f"blk.{layer}.attn_output.weight": ((1024, 1024), usual),
            f"blk.{layer}.ffn_gate.weight": ((1024, 4096), usual),
            f"blk.{layer}.ffn_up.weight": ((1024, 4096), usual),
            f"blk.{layer}.ffn_down.weight": ((4096, 1024), other),
            f"blk.{layer}.attn_norm.weight": ((1024,), F32),
        }
    return gguf(values, tensors)
