"""Sizes a checkpoint by its own files: the safetensors index, the headers, or the file sizes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from sglang_hydra.text.budget import read_json
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import open_plain, read_text
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import Json

INDEX = "model.safetensors.index.json"
_HEADER_LIMIT = 100_000_000  # bytes; safetensors refuses longer headers
_LAYER = re.compile(r"(?:^|\.)layers\.([0-9]{1,9})\.")


class CheckpointSize(NamedTuple):
    """Bytes of all tensors of a checkpoint, as stored. ``tensors`` maps names to bytes where headers were read;
    ``layers`` is one more than the highest layer number (0: unknown)."""

    total: int
    source: str
    layers: int = 0
    tensors: Mapping[str, int] | None = None

    def loaded(self, layers: int) -> int | None:
        """Returns the bytes that a model with ``layers`` layers loads, without layers that only a draft loads; None
        where the size of such layers is unknown."""
        if self.layers <= layers:
            return self.total
        if self.tensors is None:
            return None
        return sum(size for name, size in self.tensors.items() if _layer(name) < layers and not name.startswith("mtp."))


def read_checkpoint(path: str | os.PathLike[str]) -> CheckpointSize | None:
    """Returns the size of the checkpoint in a folder, or of a GGUF file; None without weights.

    Raises ConfigError for corrupt files: FIT011 an index, FIT012 a safetensors header; the finding names the file and
    the field."""
    folder = os.fspath(path)
    index = os.path.join(folder, INDEX)
    if os.path.isfile(index):
        return _from_index(index, folder)
    files = _weight_files(folder)
    if files:
        return _from_headers(files, f"the headers of {len(files)} safetensors files")
    from sglang_hydra.facts.weights import weights_bytes

    total = weights_bytes(folder)
    return None if total is None else CheckpointSize(total, f"the size of the files in {folder}")


def _from_index(index: str, folder: str) -> CheckpointSize:
    content = _json_of(index)
    if not isinstance(content, dict):
        raise _corrupt(index, "it holds no JSON object")
    names = content.get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(file, str) for file in names.values()):
        raise _corrupt(index, "weight_map is no object of tensor names and files")
    layers = 1 + max((_layer(name) for name in names), default=-1)
    metadata = content.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if total is not None and (
        isinstance(total, bool) or not isinstance(total, (int, float)) or not 0 < total < 1 << 63
    ):
        raise _corrupt(index, f"metadata.total_size is {total!r}, a number of bytes is needed")
    files = sorted({os.path.join(folder, file) for file in names.values()})
    if all(map(os.path.isfile, files)) and (total is None or _has_more_layers(folder, layers)):
        return _from_headers(files, f"the headers of {len(files)} safetensors files")
    if total is None:
        raise _corrupt(index, "metadata.total_size is missing, and so are files that it would be the size of")
    return CheckpointSize(int(total), f"{INDEX}, total_size {int(total)}", layers)


def _has_more_layers(folder: str, layers: int) -> bool:
    """Returns whether the files have more layers than config.json, so that their total is more than a server loads."""
    config = os.path.join(folder, "config.json")
    stated = _json_of(config).get("num_hidden_layers") if os.path.isfile(config) else None
    return isinstance(stated, int) and layers > stated


def _from_headers(files: list[str], source: str) -> CheckpointSize:
    tensors: dict[str, int] = {}
    for file in files:
        tensors.update(_header(file))
    layers = 1 + max((_layer(name) for name in tensors), default=-1)
    return CheckpointSize(sum(tensors.values()), source, layers, tensors)


def _header(file: str) -> dict[str, int]:
    """Returns the bytes of each tensor in a safetensors file. The first eight bytes are the length of the JSON."""
    try:
        size = os.path.getsize(file)
        with open_plain(file) as opened:
            length = int.from_bytes(opened.read(8), "little")
            if not 2 <= length <= min(_HEADER_LIMIT, size - 8):
                raise _broken(file, f"its header length is {length}, the file has {size} bytes")
            header = read_json(opened.read(length), "safetensors")
    except (OSError, ValueError, RecursionError) as failure:
        raise _broken(file, f"its header cannot be read: {failure}") from None
    if not isinstance(header, dict):
        raise _broken(file, "its header is no JSON object")
    return {name: _tensor_bytes(file, name, entry) for name, entry in header.items() if name != "__metadata__"}


def _tensor_bytes(file: str, name: str, entry: object) -> int:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if isinstance(offsets, list) and len(offsets) == 2 and all(type(item) is int for item in offsets):
        begin, end = offsets
        if 0 <= begin <= end:
            return int(end - begin)
    raise _broken(file, f"{name}.data_offsets is {offsets!r}")


def _weight_files(folder: str) -> list[str]:
    """Returns a folder's safetensors files; Mistral's ``consolidated`` copy counts only where it is alone."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))
    except OSError:
        return []
    usual = [name for name in names if not name.startswith("consolidated")] or names
    return [os.path.join(folder, name) for name in usual]


def _layer(name: str) -> int:
    found = _LAYER.search(name)
    return int(found.group(1)) if found else -1


def _json_of(path: str) -> Json:
    try:
        return read_json(read_text(path), "record")
    except json.JSONDecodeError as wrong:
        place, problem = f"{path}:{wrong.lineno}:{wrong.colno}", wrong.msg.removesuffix(" at")
        raise _corrupt(place, f"this is no JSON: {problem}") from None
    except (OSError, ValueError, RecursionError) as wrong:
        raise _corrupt(path, f"it cannot be read: {wrong}") from None


def _corrupt(place: str, what: str) -> ConfigError:
    return ConfigError(Finding("error", "FIT011", f"{place}: {what}", ("model_path",), "download the checkpoint again"))


def _broken(file: str, what: str) -> ConfigError:
    return ConfigError(Finding("error", "FIT012", f"{file}: {what}", ("model_path",), "download the checkpoint again"))
