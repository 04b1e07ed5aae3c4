"""The checkpoint of model=tiny, as far as it can be looked at without an engine (tests/real loads it into two)."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sglang_hydra.facts import tiny
from sglang_hydra.text.errors import MachineError

FILES = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.ensure_tiny(tmp_path_factory.mktemp("cache"))


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_it_is_always_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    again = tiny.ensure_tiny(tmp_path)
    assert list(digests(again)) == FILES
    assert digests(again) == digests(folder)


def test_a_cache_that_cannot_be_written_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where the folder should be: what root may not write either")
    with pytest.raises(MachineError) as raised:
        tiny.ensure_tiny(tmp_path / "home" / "cache")
    (finding,) = raised.value.findings
    assert (finding.id, "SGLANG_HYDRA_CACHE" in str(finding.hint)) == ("HUB007", True)


def test_what_is_there_is_not_written_again(folder: Path) -> None:
    times = [path.stat().st_mtime_ns for path in sorted(folder.iterdir())]
    assert tiny.ensure_tiny(folder.parent) == folder
    assert [path.stat().st_mtime_ns for path in sorted(folder.iterdir())] == times


def test_many_at_once_make_one_whole_folder(folder: Path, tmp_path: Path) -> None:
    made: list[Path] = []
    threads = [threading.Thread(target=lambda: made.append(tiny.ensure_tiny(tmp_path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [tiny.tiny_path(tmp_path)] * 4
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    assert digests(made[0]) == digests(folder)


def test_a_failure_leaves_no_half_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(tiny, "_write_weights", full)
    with pytest.raises(MachineError, match="no space"):
        tiny.ensure_tiny(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "expected"), [("/somewhere", "/somewhere"), ("", "{home}/.cache"), ("x", "{home}/.cache")]
)
def test_the_cache_is_where_the_user_has_it(
    value: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.delenv("SGLANG_HYDRA_CACHE")
    assert str(tiny.tiny_path().parent) == expected.format(home=tmp_path) + "/sglang_hydra"


def test_the_weights_are_a_whole_llama(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    end = 0
    for name, tensor in header.items():
        count = 1
        for size in tensor["shape"]:
            count *= size
        assert tensor["data_offsets"] == [end, end + 4 * count], name
        end += 4 * count
    assert len(content) == 8 + length + end
    assert len(header) == 3 + 9 * tiny.TINY_CONFIG["num_hidden_layers"]
    assert 0.7e6 < end / 4 < 0.9e6


def test_the_tokenizer_fills_the_vocabulary_and_every_merge_is_made_of_tokens(folder: Path) -> None:
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    vocabulary = model["vocab"]
    assert sorted(vocabulary.values()) == list(range(tiny.TINY_CONFIG["vocab_size"]))
    for merge in model["merges"]:
        first, second = merge.split(" ")
        assert {first, second, first + second} <= set(vocabulary)


def test_the_special_tokens_are_the_ones_that_the_config_numbers(folder: Path) -> None:
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    named = json.loads((folder / "tokenizer_config.json").read_text())
    for name in ("pad", "bos", "eos"):
        assert vocabulary[named[f"{name}_token"]] == tiny.TINY_CONFIG[f"{name}_token_id"]


def test_the_config_is_the_declared_one(folder: Path) -> None:
    assert json.loads((folder / "config.json").read_text()) == tiny.TINY_CONFIG


def test_making_it_imports_no_library(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys; from sglang_hydra.facts.tiny import ensure_tiny; ensure_tiny(pathlib.Path(sys.argv[1]));"
        "print({'torch', 'transformers', 'tokenizers', 'numpy', 'safetensors'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
