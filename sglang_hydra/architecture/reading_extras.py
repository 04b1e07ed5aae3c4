"""Reading what only one family has: matrices beside its layers, and heads of another shape in some of them.

Sources: SGLang 0.5.2 models/gemma3n_causal.py; for families of later releases their models/gemma4_causal.py, mimo_v2.py
and step3p5.py.
"""

from __future__ import annotations

from sglang_hydra.architecture.decoder import Extra, Heads
from sglang_hydra.architecture.known import Fields

_ENCODERS = ("Bert", "XLMRoberta")


def read_extras(text: Fields, architecture: str, hidden: int, layers: int) -> tuple[Extra, ...]:
    """Returns the matrices of Gemma 3n and Gemma 4 that feed each layer an embedding of its own, Gemma 3n's side
    streams, an encoder's last layer. ``small``: never quantized."""
    width = text.count("hidden_size_per_layer_input", default=0)
    extras: list[Extra] = []
    if width and architecture.startswith(("Gemma3n", "Gemma4")):
        split = architecture.startswith("Gemma3n")  # Gemma 4 repeats its projections on every GPU
        extras += [
            Extra("embed_tokens_per_layer", text.size("vocab_size_per_layer_input"), layers * width, False, False),
            Extra("per_layer_model_projection", layers * width, hidden, split, False),
            Extra("per_layer_input_gate", width, hidden, split, True),
            Extra("per_layer_projection", hidden, width, split, True),
        ]
    streams = text.count("altup_num_inputs", default=0)
    if streams:
        rank = text.size("laurel_rank")
        extras += [
            Extra("altup_projections", 2 * (streams - 1) * hidden, hidden, True, False),
            Extra("small.modality_router", streams, hidden, False, True),
            Extra("laurel.linear_left", rank, hidden, True, True),
            Extra("laurel.linear_right", hidden, rank, True, True),
            Extra("small.norms", 4, hidden, False, True),  # of the router, of both side streams, and a scale
        ]
    if text.flag("use_head_wise_attn_gate"):
        extras.append(Extra("self_attn.g_proj", text.size("num_attention_heads"), hidden, True, True))
    if architecture.startswith("Afmoe"):  # transformers, modeling_afmoe.py: attention is gated by number
        size = text.size("num_attention_heads") * text.size("head_dim")
        extras.append(Extra("self_attn.gate_proj", size, hidden, True, True))
    if architecture.startswith(_ENCODERS):
        biases = 5 * hidden + text.size("intermediate_size")
        extras += [
            Extra("pooler.dense", hidden, hidden, False, False),
            Extra("small.biases", 1, biases, False, True),
        ]
    return tuple(extras)


def read_windowed(text: Fields, usual: Heads) -> Heads | None:
    """Returns the heads of layers with a sliding window where they are stated apart; None if they are as the others."""
    other = text.part("attention_other_setting")
    if other is not None:
        number, kv = other.size("num_attention_heads"), other.size("num_attention_groups")
        size = other.size("head_dim", "true_head_dim", default=usual.key)
        return Heads(number, kv, size, size)
    if "swa_num_key_value_heads" not in text and "swa_num_attention_heads" not in text:
        return None
    key = text.size("swa_head_dim", default=usual.key)
    return Heads(
        number=text.size("swa_num_attention_heads", default=usual.number),
        kv=text.size("swa_num_key_value_heads", default=usual.kv),
        key=key,
        value=text.size("swa_v_head_dim", default=usual.value if key == usual.key else key),
    )


def read_heads(text: Fields, architecture: str, heads: int, kv_heads: int, size: int) -> tuple[Heads, Heads | None]:
    """Returns the heads of layers with full attention, and of those with a window where they differ. Gemma 4 states the
    latter under the usual names and those with full attention as global ones."""
    if architecture.startswith("Gemma4"):
        usual = Heads(heads, kv_heads, size, size)
        wide = text.size("global_head_dim", default=size)
        few = text.size("num_global_key_value_heads", default=kv_heads) if text.flag("attention_k_eq_v") else kv_heads
        full = Heads(heads, few, wide, wide)
        return full, None if full == usual else usual
    value = text.size("v_head_dim", default=size) if architecture.startswith("MiMoV2") else size
    usual = Heads(heads, kv_heads, size, value)
    return usual, read_windowed(text, usual)
