"""The size of a checkpoint's weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.facts.weights import weights_bytes

INDEX = "model.safetensors.index.json"


def index(total: Any) -> str:
    return json.dumps({"metadata": {"total_size": total}, "weight_map": {}})


@pytest.mark.parametrize(
    ("files", "size"),
    [
        ({}, None),
        ({"config.json": "{}"}, None),
        ({"model.safetensors": "x" * 10}, 10),
        ({"model-1.safetensors": "x" * 10, "model-2.safetensors": "x" * 5}, 15),
        ({"model.safetensors": "x" * 10, "pytorch_model.bin": "x" * 99}, 10),
        ({"model.safetensors": "x" * 10, "consolidated.safetensors": "x" * 10}, 10),
        ({"consolidated.safetensors": "x" * 10}, 10),
        ({"pytorch_model.bin": "x" * 7, "training_args.bin": "x" * 99}, 7),
        ({"a.gguf": "x" * 3}, 3),
        ({"consolidated.00.pth": "x" * 6, "consolidated.01.pth": "x" * 5}, 11),
        ({"model.pt": "x" * 4, "optimizer.pt": "x" * 99, "rng_state_0.pth": "x" * 99}, 4),
        ({"pytorch_model.bin": "x" * 8, "model.pt": "x" * 99}, 8),
        ({INDEX: index(12345), "model-1.safetensors": "x"}, 12345),
        ({"pytorch_model.bin.index.json": index(54321)}, 54321),
        ({INDEX: index(12345.0)}, 12345),
        ({INDEX: "{", "model-1.safetensors": "x"}, 1),
        ({INDEX: "{}", "model-1.safetensors": "x"}, 1),
        ({INDEX: "[]", "model-1.safetensors": "x"}, 1),
        ({INDEX: index("many"), "model-1.safetensors": "x"}, 1),
        ({INDEX: index(0), "model-1.safetensors": "x"}, 1),
    ],
)
def test_a_folder_has_this_many_bytes_of_weights(tmp_path: Path, files: dict[str, str], size: int | None) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert weights_bytes(tmp_path) == size


def test_a_gguf_file_is_its_own_size(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF1234")
    (tmp_path / "m.txt").write_bytes(b"1234")
    assert weights_bytes(tmp_path / "m.gguf") == 8
    assert weights_bytes(str(tmp_path / "m.txt")) is None


def test_a_folder_of_the_home_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    assert weights_bytes("~") == 4


def test_a_folder_that_is_not_there_is_unknown(tmp_path: Path) -> None:
    assert weights_bytes(tmp_path / "none") is None


def test_a_weight_file_that_was_not_downloaded_makes_the_size_unknown(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "missing-blob")
    assert weights_bytes(tmp_path) is None
