"""Makes the checkpoint of ``model=tiny``: a Llama of 0.8 million random weights, with the standard library alone.

It is for experiments: every engine loads it in seconds on any machine. Its answers are meaningless on purpose.
tiny.json has its small files."""

from __future__ import annotations

import json
import os
import random
import sys
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict, JsonObject, json_beside
from sglang_hydra.text.private import make_private, require_private

TINY_VERSION = 1
"""Part of the folder's name: raise it when the written files change."""

_FILES: JsonObject = json_beside(__file__)
TINY_CONFIG: JsonDict = _FILES["config.json"]
"""The written config.json; the preset conf/model/tiny.yaml declares the same facts."""

_SPECIAL: Sequence[str] = _FILES["special_tokens"]
_END = 3
_SEED = 20250912


def tiny_path(cache_dir: Path | None = None) -> Path:
    """Returns the folder of the checkpoint, made or not, in ``default_cache()`` unless ``cache_dir`` is given."""
    return (cache_dir or default_cache()) / f"tiny-{TINY_VERSION}"


def default_cache() -> Path:
    """Returns this package's folder in the user's cache; an absolute ``SGLANG_HYDRA_CACHE`` replaces it."""
    named = os.environ.get("SGLANG_HYDRA_CACHE", "")
    if os.path.isabs(named):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "sglang_hydra"


def ensure_tiny(cache_dir: Path | None = None) -> Path:
    """Returns the folder with the checkpoint, and writes it first if it is missing (3 MB, about 0.1 s, always the same
    bytes).

    The folder appears whole or not at all, also when several processes make it at once. Raises MachineError: HUB007
    where it is not writable (a read-only home, a full disk), REL015 where other users can write it."""
    folder = tiny_path(cache_dir)
    require_private(folder)
    if not (folder / "config.json").is_file():
        try:
            _make(folder)
        except OSError as failure:
            message = f"the checkpoint of model=tiny cannot be written to {folder}: {failure.strerror or failure}"
            hint = "export SGLANG_HYDRA_CACHE=/tmp/sglang_hydra, or another folder that you may write"
            raise MachineError(Finding("error", "HUB007", message, ("model",), hint)) from failure
    return folder


def make_if_tiny(model_path: object) -> None:
    """Makes the checkpoint if ``model_path`` is that of ``model=tiny``. Raises MachineError like ``ensure_tiny``."""
    if model_path == str(tiny_path()):
        ensure_tiny()


def _make(folder: Path) -> None:
    import shutil
    import tempfile

    make_private(folder.parent)
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


def _write(folder: Path) -> None:
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        content = _tokenizer() if name == "tokenizer.json" else _FILES[name]
        text = json.dumps(content, indent=1, ensure_ascii=False)
        (folder / name).write_text(text + "\n", encoding="utf-8")
    _write_weights(folder / "model.safetensors")


def _bytes_as_letters() -> list[str]:
    """Returns the printable letter for each byte of a byte-level vocabulary (GPT-2's table)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


def _tokenizer() -> JsonDict:
    """Makes a byte-level BPE tokenizer that can spell any text; its merges are syllables and words of two syllables."""
    space = _bytes_as_letters()[ord(" ")]
    merges = [(consonant, vowel) for consonant in "bcdfghjklmnprstvwyz" for vowel in "aeiou"]
    syllables = [first + second for first, second in merges]
    merges += [(space, syllable) for syllable in syllables]
    words = TINY_CONFIG["vocab_size"] - len(_SPECIAL) - 256 - len(merges)
    # 3607 and 95 x 95 have no common factor, so every step yields another pair.
    pairs = [divmod(index * 3607 % len(syllables) ** 2, len(syllables)) for index in range(words)]
    merges += [(space + syllables[first], syllables[second]) for first, second in pairs]
    tokens = [*_SPECIAL, *_bytes_as_letters(), *(first + second for first, second in merges)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    written = _FILES["tokenizer.json"]
    return {
        **written,
        "added_tokens": [{"id": index, "content": token, **flags} for index, token in enumerate(_SPECIAL)],
        "model": {
            **written["model"],
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
    """Yields the weights of ``_shapes``, in its order: evenly spread, scaled so that the input decides the output.

    Dimension 0 of the hidden stream is constant, which makes column 0 of the output matrix a bias: words become likely,
    single bytes (which are not text) unlikely, and an answer ends after some dozens of words."""
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
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
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
