"""Reads the header of a GGUF file: the model's sizes as config.json fields, and each tensor's format.

gguf.json has the tables. Layout and the sizes of the formats: ggml's docs/gguf.md and ggml-common.h. The weights are
never read."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from typing import BinaryIO, NamedTuple

from sglang_hydra.text.budget import READERS
from sglang_hydra.text.file_text import open_plain
from sglang_hydra.text.json_types import Json, JsonDict, JsonObject, json_beside

# The types of values: struct letters of the plain types, then the two types that contain others.
_PLAIN = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_MOST_ITEMS = READERS["gguf"].items  # tensors, keys, items of a list of texts
_MOST_LAYERS = 10_000
_MOST_NUMBERS = 1 << 24  # in a skipped list

_TABLE: JsonObject = json_beside(__file__)
# The name, the weights and the bytes of a block, by the number of the format.
_BLOCKS = {number: (name, weights, size) for name, (number, weights, size) in _TABLE["blocks"].items()}
BITS_BY_NAME = {name: 8 * size / weights for name, weights, size in _BLOCKS.values()}
"""Bits per weight of each format that, in a file's name, means all tensors; mixtures (Q4_K_M) are not included."""

# general.architecture as transformers 4.56 and SGLang name it.
_ARCHITECTURES: Mapping[Json, tuple[str, str]] = _TABLE["architectures"]
_FIELDS: Mapping[str, str] = _TABLE["fields"]
# A GGUF file's names of a layer's matrices, by the module of SGLang that holds them together.
_MODULES: Mapping[str, Sequence[str]] = _TABLE["modules"]


class UnreadableGguf(ValueError):
    """The file is no readable GGUF file; the message names the problem."""


class Tensor(NamedTuple):
    """A tensor's number of weights, and its size in bytes."""

    weights: int
    size: float


class Header(NamedTuple):
    """A GGUF file's header: its keys and tensors."""

    values: JsonObject
    tensors: Mapping[str, Tensor]


def read_header(path: str) -> Header:
    """Reads the header of ``path``; of long lists it keeps only the length. Raises UnreadableGguf or OSError."""
    with open_plain(path) as file:
        try:
            if file.read(4) != b"GGUF":
                raise UnreadableGguf("it does not begin with GGUF")
            version, tensors, keys = _take(file, "I"), _take(file, "Q"), _take(file, "Q")
            if version not in (2, 3):
                raise UnreadableGguf(f"its version is {version}, 2 and 3 are known")
            if max(tensors, keys) > _MOST_ITEMS:
                raise UnreadableGguf(f"its header counts {tensors} tensors and {keys} keys")
            values = {_text(file): _value(file, _take(file, "I")) for _ in range(keys)}
            return Header(values, dict(_tensor(file) for _ in range(tensors)))
        except (struct.error, UnicodeDecodeError, MemoryError, OverflowError):
            raise UnreadableGguf("its header is cut off or damaged") from None


def config_of(header: Header) -> JsonDict | None:
    """Returns the header's values as config.json fields, with the tensors' formats as a quantization_config; None for
    an architecture that SGLang 0.5.2 cannot read from a GGUF file, or for one part of a split file. Raises
    UnreadableGguf for too many layers."""
    kind = header.values.get("general.architecture")
    if kind not in _ARCHITECTURES or header.values.get("split.count") not in (None, 0, 1):
        return None
    architecture, model_type = _ARCHITECTURES[kind]
    stated = {field: header.values.get(f"{kind}.{key}") for field, key in _FIELDS.items()}
    config = {field: value for field, value in stated.items() if isinstance(value, int) and value > 0}
    if (layers := config.get("num_hidden_layers", 0)) > _MOST_LAYERS:
        raise UnreadableGguf(f"it states {layers} layers; at most {_MOST_LAYERS} are read")
    embedding = header.tensors.get("token_embd.weight")
    if "vocab_size" not in config and embedding is not None and config.get("hidden_size"):
        config["vocab_size"] = embedding.weights // config["hidden_size"]
    return {
        "architectures": [architecture],
        "model_type": model_type,
        **config,
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "quantization_config": {"quant_method": "gguf", "bits": _bits(header, config.get("num_hidden_layers", 0))},
    }


def bits_by_name(path: str) -> float | None:
    """Returns the bits per weight by the file's name (``model-Q8_0.gguf``) where all tensors have that format."""
    words = os.path.basename(path).upper().removesuffix(".GGUF").replace("-", ".").split(".")
    return next((BITS_BY_NAME[word] for word in reversed(words) if word in BITS_BY_NAME), None)


def _bits(header: Header, layers: int) -> dict[str, object]:
    """Returns the average bits per weight of the embedding, lm_head, and each module of each layer (or None)."""

    def average(names: list[str]) -> float | None:
        found = [header.tensors[name] for name in names if name in header.tensors]
        weights = sum(tensor.weights for tensor in found)
        return 8 * sum(tensor.size for tensor in found) / weights if weights else None

    modules = {
        module: [average([f"blk.{layer}.{name}.weight" for name in names]) for layer in range(layers)]
        for module, names in _MODULES.items()
    }
    return {
        "embedding": average(["token_embd.weight"]),
        "lm_head": average(["output.weight"]),
        "modules": {module: bits for module, bits in modules.items() if any(bits)},
    }


def _take(file: BinaryIO, letter: str) -> Json:
    size = struct.calcsize(f"<{letter}")
    return struct.unpack(f"<{letter}", file.read(size))[0]


def _length(file: BinaryIO) -> int:
    """Reads the length of a text in bytes. Raises UnreadableGguf for an implausible one."""
    length: int = _take(file, "Q")
    if length > _MOST_ITEMS:
        raise UnreadableGguf(f"a text of {length} bytes is in its header")
    return length


def _text(file: BinaryIO) -> str:
    length = _length(file)
    data = file.read(length)
    if len(data) < length:
        raise UnreadableGguf("its header is cut off")
    return data.decode("utf-8")


def _value(file: BinaryIO, kind: int) -> Json:
    if kind in _PLAIN:
        return _take(file, _PLAIN[kind])
    if kind == _TEXT:
        return _text(file)
    if kind != _LIST:
        raise UnreadableGguf(f"a value of the unknown type {kind} is in its header")
    inner, number = _take(file, "I"), _take(file, "Q")
    if number > (_MOST_NUMBERS if inner in _PLAIN else _MOST_ITEMS):
        raise UnreadableGguf(f"a list of {number} items is in its header")
    if inner in _PLAIN:
        file.seek(struct.calcsize(f"<{_PLAIN[inner]}") * number, os.SEEK_CUR)
    elif inner == _TEXT:
        for _ in range(number):
            file.seek(_length(file), os.SEEK_CUR)
    else:
        raise UnreadableGguf("a list of lists is in its header")
    return None


def _tensor(file: BinaryIO) -> tuple[str, Tensor]:
    name = _text(file)
    dimensions = _take(file, "I")
    if dimensions > 8:
        raise UnreadableGguf(f"{name} has {dimensions} dimensions")
    weights = 1
    for _ in range(dimensions):
        weights *= _take(file, "Q")
    kind = _take(file, "I")
    _take(file, "Q")  # where its data begins
    if kind not in _BLOCKS:
        raise UnreadableGguf(f"{name} has the unknown format {kind}")
    _, block, size = _BLOCKS[kind]
    return name, Tensor(weights, weights / block * size)
