"""Makes the checkpoint of ``model=tiny``: a Llama of 0.8 million random weights, with the standard library alone.

It is for trying things out: every engine loads it in seconds on any machine, and its answers are word salad on purpose.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TINY_VERSION = 1
"""Part of the folder's name: raise it when what is written changes."""

TINY_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 2048,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 8192,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 3,
    "torch_dtype": "float32",
}
"""The config.json that is written; the preset conf/model/tiny.yaml declares the same facts."""

_SPECIAL = ("<|pad|>", "<|begin|>", "<|turn|>", "<|end|>")
_END = 3
_CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "<|turn|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}{{ part['text'] }}{% endfor %}{% endif %}"
    "<|end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
_SEED = 20250912


def tiny_path(cache_dir: Path | None = None) -> Path:
    """Where the checkpoint lies or will lie, in ``default_cache()`` unless ``cache_dir`` is given."""
    return (cache_dir or default_cache()) / f"tiny-{TINY_VERSION}"


def default_cache() -> Path:
    """This package's folder in the user's cache; ``SGLANG_HYDRA_CACHE`` names another."""
    named = os.environ.get("SGLANG_HYDRA_CACHE", "")
    if os.path.isabs(named):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "sglang_hydra"


def ensure_tiny(cache_dir: Path | None = None) -> Path:
    """The folder with the checkpoint, written first if it is not there (3 MB, about 0.1 s, always the same bytes).

    The folder appears whole or not at all, also when several processes make it at once. Raises OSError when it
    cannot be written.
    """
    import shutil
    import tempfile

    folder = tiny_path(cache_dir)
    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        _write(draft)
        draft.chmod(0o755)
        draft.rename(folder)
    except OSError:
        # Another process was faster: its folder has the same content.
        if not (folder / "config.json").is_file():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _write(folder: Path) -> None:
    import json

    generation = {key: TINY_CONFIG[key] for key in ("pad_token_id", "bos_token_id", "eos_token_id")}
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": TINY_CONFIG["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
        "pad_token": _SPECIAL[0],
        "bos_token": _SPECIAL[1],
        "eos_token": _SPECIAL[_END],
        "chat_template": _CHAT_TEMPLATE,
    }
    for name, content in {
        "config.json": TINY_CONFIG,
        "generation_config.json": {**generation, "do_sample": True, "temperature": 1.0},
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": tokenizer_config,
    }.items():
        text = json.dumps(content, indent=1, ensure_ascii=False)
        (folder / name).write_text(text + "\n", encoding="utf-8")
    _write_weights(folder / "model.safetensors")


def _bytes_as_letters() -> list[str]:
    """The printable letter that stands for each byte in a byte-level vocabulary (GPT-2's table)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


def _tokenizer() -> dict[str, Any]:
    """A byte-level BPE that can spell anything; its merges make two-letter syllables and words of two of them."""
    space = _bytes_as_letters()[ord(" ")]
    merges = [(consonant, vowel) for consonant in "bcdfghjklmnprstvwyz" for vowel in "aeiou"]
    syllables = [first + second for first, second in merges]
    merges += [(space, syllable) for syllable in syllables]
    words = TINY_CONFIG["vocab_size"] - len(_SPECIAL) - 256 - len(merges)
    # 3607 and 95 x 95 have no common factor: every step of the walk is another pair.
    pairs = [divmod(index * 3607 % len(syllables) ** 2, len(syllables)) for index in range(words)]
    merges += [(space + syllables[first], syllables[second]) for first, second in pairs]
    tokens = [*_SPECIAL, *_bytes_as_letters(), *(first + second for first, second in merges)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": token, **flags} for index, token in enumerate(_SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [f"{first} {second}" for first, second in merges],
        },
    }


def _shapes() -> dict[str, tuple[int, ...]]:
    hidden, inner = TINY_CONFIG["hidden_size"], TINY_CONFIG["intermediate_size"]
    keys = TINY_CONFIG["num_key_value_heads"] * TINY_CONFIG["head_dim"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (TINY_CONFIG["vocab_size"], hidden)}
    for layer in range(TINY_CONFIG["num_hidden_layers"]):
        for name, shape in {
            "input_layernorm": (hidden,),
            "self_attn.q_proj": (hidden, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, hidden),
            "post_attention_layernorm": (hidden,),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    shapes["model.norm.weight"] = (hidden,)
    shapes["lm_head.weight"] = (TINY_CONFIG["vocab_size"], hidden)
    return shapes


def _tensors() -> Iterator[array[float]]:
    """The weights of ``_shapes``, in its order: evenly spread, scaled so that the input decides the output.

    Dimension 0 of the stream is held at a constant, which makes column 0 of the output matrix a bias: with it
    words are likely, lone bytes (which are no text) are not, and an answer ends after some dozens of words.
    """
    import random

    dice = random.Random(_SEED)
    for name, shape in _shapes().items():
        if len(shape) == 1:
            yield array("f", [1.0]) * shape[0]
            continue
        rows, columns = shape
        integers = array("h", dice.randbytes(2 * rows * columns))
        reach = {"model.embed_tokens.weight": 1.0, "lm_head.weight": 0.4}.get(name, (3 / columns) ** 0.5)
        weights = array("f", [reach / 32768 * integer for integer in integers])
        if name == "model.embed_tokens.weight":
            weights[::columns] = array("f", [8.0]) * rows
        elif name == "lm_head.weight":
            weights[::columns] = array("f", [_bias(token) for token in range(rows)])
        elif name.endswith(("o_proj.weight", "down_proj.weight")):
            weights[:columns] = array("f", [0.0]) * columns
        yield weights


def _bias(token: int) -> float:
    if token == _END:
        return 0.2
    return 0.0 if token >= len(_SPECIAL) + 256 else -2.0


def _write_weights(path: Path) -> None:
    """Writes the safetensors format: the header's length (8 bytes), the header as JSON, the tensors' bytes."""
    import json
    import sys

    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in _shapes().items():
        start, end = end, end + 4 * (shape[0] * shape[1] if len(shape) == 2 else shape[0])
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for weights in _tensors():
            if sys.byteorder == "big":
                weights.byteswap()
            file.write(weights.tobytes())
