"""Sizes a checkpoint's weights by the files in its folder."""

from __future__ import annotations

import os

from sglang_hydra.text.budget import read_json
from sglang_hydra.text.file_text import open_plain, read_text

_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_OF_THE_TRAINER = ("training_args.", "optimizer.", "scheduler.", "rng_state", "scaler.")


def weights_bytes(folder: str | os.PathLike[str]) -> int | None:
    """Returns the size of a checkpoint's weights in bytes: its index's total, else its weight files; None if unknown.

    ``folder`` may start with ``~`` and may be a GGUF file. Only one kind of file counts, since others are copies:
    safetensors before .bin files, as SGLang loads them; Mistral's ``consolidated`` copy counts only where it is alone.
    """
    path = os.path.expanduser(os.fspath(folder))
    if os.path.isfile(path):
        return os.path.getsize(path) if is_gguf_file(path) else None
    for name in _INDEXES:
        stated = _index_total(os.path.join(path, name))
        if stated:
            return stated
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return None
    for suffix in (".safetensors", ".bin", ".gguf", ".pt", ".pth"):
        files = [name for name in names if name.endswith(suffix) and not name.startswith(_OF_THE_TRAINER)]
        files = [name for name in files if not name.startswith("consolidated")] or files
        if files:
            return _total(path, files)
    return None


def is_gguf_file(path: str) -> bool:
    """Returns whether ``path`` is a local GGUF file, by its extension or its first four bytes."""
    if not os.path.isfile(path):
        return False
    if os.path.splitext(path)[1] == ".gguf":
        return True
    try:
        with open_plain(path) as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False


def _total(folder: str, names: list[str]) -> int | None:
    try:
        return sum(os.path.getsize(os.path.join(folder, name)) for name in names)
    except OSError:
        return None  # a link to a file that was not downloaded


def _index_total(path: str) -> int | None:

    try:
        total = read_json(read_text(path), "record")["metadata"]["total_size"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return int(total) if isinstance(total, (int, float)) else None
