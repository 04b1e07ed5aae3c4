"""Sizes from a checkpoint's own files, and what is said of corrupt ones."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra import ConfigError, ModelFacts
from sglang_hydra.fit.checkpoint import INDEX, CheckpointSize, read_checkpoint
from tests.fit.machines import GIB, dense, model, sized

# The small Llama as it is stored: embedding, lm_head, 4 layers, norms.
STORED = 2 * 32000 * 1024 * 2 + 4 * ((8 + 2 * 2 + 8) * 128 + 3 * 4096) * 1024 * 2 + 9 * 1024 * 2


def write_tensors(path: Path, **sizes: int) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, size in sizes.items():
        header[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [begin, begin + size]}
        begin += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)


def write_index(folder: Path, total: Any, weight_map: Any = None) -> None:
    names = {"model.layers.3.x": "a.safetensors"} if weight_map is None else weight_map
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": names}), "utf-8")


def test_an_index_states_the_size(tmp_path: Path) -> None:
    write_index(tmp_path, 12345)
    found = read_checkpoint(tmp_path)
    assert found is not None
    assert (found.total, found.layers, found.loaded(4), found.loaded(2)) == (12345, 4, 12345, None)


def test_headers_state_the_size_of_every_tensor(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.safetensors", **{"model.layers.0.x": 100, "lm_head.weight": 60})
    write_tensors(tmp_path / "b.safetensors", **{"model.layers.1.x": 40})
    write_tensors(tmp_path / "consolidated.safetensors", **{"layers.0.x": 100})
    found = read_checkpoint(str(tmp_path))
    assert found is not None
    assert (found.total, found.layers) == (200, 2)


def test_layers_that_only_a_draft_loads_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 1}', "utf-8")
    write_tensors(tmp_path / "a.safetensors", **{"model.layers.0.x": 100, "model.layers.1.x": 40, "mtp.fc.weight": 2})
    write_index(tmp_path, 142, {"model.layers.0.x": "a.safetensors", "model.layers.1.x": "a.safetensors"})
    found = read_checkpoint(tmp_path)
    assert found is not None
    assert found.loaded(1) == 100


def test_other_files_count_with_their_size(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path) is None
    (tmp_path / "pytorch_model.bin").write_bytes(b"x" * 7)
    found = read_checkpoint(tmp_path)
    assert found is not None
    assert found.total == 7
    (tmp_path / "m.gguf").write_bytes(b"GGUF1234")
    gguf = read_checkpoint(tmp_path / "m.gguf")
    assert gguf is not None
    assert gguf.total == 8


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", ":1:2: this is no JSON"),
        ("[]", "it holds no JSON object"),
        ('{"metadata": {"total_size": 1}}', "weight_map is no object"),
        ('{"metadata": {"total_size": "many"}, "weight_map": {}}', "metadata.total_size is 'many'"),
        ('{"metadata": {"total_size": -1}, "weight_map": {}}', "metadata.total_size is -1"),
        ('{"metadata": {"total_size": true}, "weight_map": {}}', "metadata.total_size is True"),
        ('{"weight_map": {"x": "gone.safetensors"}}', "metadata.total_size is missing"),
        ('{"weight_map": {"x": 1}}', "weight_map is no object"),
    ],
)
def test_a_corrupt_index_names_the_file_and_the_field(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / INDEX).write_text(content, "utf-8")
    with pytest.raises(ConfigError) as caught:
        read_checkpoint(tmp_path)
    (finding,) = caught.value.findings
    assert finding.id == "FIT011"
    assert str(tmp_path / INDEX) in finding.message
    assert said in finding.message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "its header length is 0"),
        (struct.pack("<Q", 10**9) + b"{}", "its header length is 1000000000"),
        (struct.pack("<Q", 4) + b"{...", "its header cannot be read"),
        (struct.pack("<Q", 2) + b"[]", "its header is no JSON object"),
        (struct.pack("<Q", 10) + b'{"x": [1]}', "x.data_offsets is None"),
        (struct.pack("<Q", 31) + b'{"x": {"data_offsets": [9, 1]}}', "x.data_offsets is [9, 1]"),
    ],
)
def test_a_corrupt_header_names_the_file_and_the_tensor(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_checkpoint(tmp_path)
    (finding,) = caught.value.findings
    assert finding.id == "FIT012"
    assert str(tmp_path / "a.safetensors") in finding.message
    assert said in finding.message


def test_files_that_agree_with_the_config_change_nothing() -> None:
    alone = sized("l4", dense()).weights
    checked = sized("l4", dense(), weights=CheckpointSize(STORED, "the index", 4)).weights
    assert checked.total == alone.total
    assert checked.source == "config, checked against the index"


def test_files_that_disagree_count_and_that_is_said() -> None:
    alone = sized("l4", dense()).weights.total
    fitted = sized("l4", dense(), weights=CheckpointSize(STORED * 3 // 2, "the index", 4))
    assert alone is not None
    assert fitted.weights.total == pytest.approx(1.5 * alone)
    assert any("1.500 times what the config says" in note for note in fitted.notes)


def test_a_float32_checkpoint_is_twice_what_is_loaded() -> None:
    alone = sized("l4", dense(torch_dtype="float32")).weights.total
    checked = sized("l4", dense(torch_dtype="float32"), weights=CheckpointSize(2 * STORED, "the index", 4))
    assert checked.weights.total == alone


def test_weights_that_are_quantized_on_the_gpu_are_not_the_files() -> None:
    arguments = {"quantization": "fp8"}
    alone = sized("l4", dense(), arguments).weights.total
    assert sized("l4", dense(), arguments, weights=CheckpointSize(STORED, "the index", 4)).weights.total == alone


def test_the_files_say_what_an_unknown_format_does_not() -> None:
    gguf = ModelFacts(model("qwen3_8b").config, gguf=True)
    fitted = sized("h100", gguf, {"tp_size": 2}, weights=CheckpointSize(8 * GIB, "the file", 0))
    assert fitted.weights.total == 4 * GIB
    assert fitted.weights.error > 0.3 * GIB
    assert (fitted.fits, fitted.unknown) == (True, ())
