"""GGUF headers: the sizes of the model and the formats of its tensors; files that are damaged or of another kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_hydra import GpuFacts, ModelFacts
from sglang_hydra.facts.gguf import BITS_BY_NAME, UnreadableGguf, bits_by_name, config_of, read_header
from sglang_hydra.facts.hub import read_model
from sglang_hydra.fit.checkpoint import read_checkpoint
from sglang_hydra.fit.sizing import fit
from tests.facts.gguf_files import F16, Q4_0, Q4_K, Q6_K, Q8_0, gguf, llama

GIB = 1 << 30
H100 = GpuFacts("h100", "nvidia", "cuda", 81559, (9, 0), 8, flashinfer=True)
VALUES = {"mem_fraction_static": 0.8, "quantization": "gguf", "load_format": "gguf", "tp_size": 1}


def written(folder: Path, content: bytes, name: str = "model.gguf") -> str:
    file = folder / name
    file.write_bytes(content)
    return str(file)


def facts_of(path: str) -> ModelFacts:
    return read_model(path, env={"HF_HUB_OFFLINE": "1"}).facts


def test_a_header_states_the_config(tmp_path: Path) -> None:
    facts = facts_of(written(tmp_path, llama()))
    config = dict(facts.config or {})
    config.pop("quantization_config")
    assert config == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 4,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "vocab_size": 32000,
        "tie_word_embeddings": False,
    }
    assert facts.gguf


def test_the_weights_are_those_of_the_file_tensor_by_tensor(tmp_path: Path) -> None:
    path = written(tmp_path, llama())
    expected = sum(tensor.size for name, tensor in read_header(path).tensors.items() if "norm" not in name)
    fitted = fit(VALUES, H100, facts_of(path))
    parts = {name: size or 0.0 for name, size in fitted.weights.parts.items()}
    assert sum(parts.values()) - parts["norms"] - parts["rotary tables"] - parts["other"] == pytest.approx(
        expected, rel=1e-3
    )
    assert fitted.unknown == ()


def test_gpus_share_the_tensors_of_a_gguf_file(tmp_path: Path) -> None:
    facts = facts_of(written(tmp_path, llama()))
    one, two = (fit({**VALUES, "tp_size": size}, H100, facts).weights.parts["dense MLP"] or 0.0 for size in (1, 2))
    assert two == pytest.approx(one / 2)


def test_a_file_without_an_output_matrix_ties_it_to_the_embedding(tmp_path: Path) -> None:
    facts = facts_of(written(tmp_path, llama(head=None)))
    assert (facts.config or {})["tie_word_embeddings"] is True
    assert fit(VALUES, H100, facts).weights.parts["lm_head"] == 0.0


@pytest.mark.parametrize(("kind", "bits"), [(F16, 16), (Q4_0, 4.5), (Q8_0, 8.5), (Q4_K, 4.5), (Q6_K, 6.5625)])
def test_formats_have_the_bits_of_their_blocks(tmp_path: Path, kind: int, bits: float) -> None:
    config = config_of(read_header(written(tmp_path, llama(kinds=(kind,), head=kind))))
    assert config is not None
    assert config["quantization_config"]["bits"]["modules"]["mlp.down_proj"] == [bits] * 4


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "does not begin with GGUF"),
        (b"GGUF", "cut off or damaged"),
        (b"GGUF\3\0\0\0" + b"\xff" * 16, "its header counts"),
        (b"GGUF\1\0\0\0" + b"\0" * 16, "its version is 1"),
        (llama()[:200], "cut off"),
        (
            gguf({"tokens": ["ab"]}, {}).replace(b"\2" + b"\0" * 7 + b"ab", b"\xff" * 8 + b"ab"),
            "a text of 1844674407370955",
        ),
        (gguf({"general.architecture": "llama"}, {"x": ((2,), 99)}), "x has the unknown format 99"),
    ],
)
def test_a_damaged_header_says_where_it_breaks(tmp_path: Path, content: bytes, said: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(UnreadableGguf, match=said):
        read_header(path)
    facts, findings = read_model(path, env={"HF_HUB_OFFLINE": "1"})
    assert facts.config is None
    assert said in findings[0].message


@pytest.mark.parametrize(
    "values", [{"general.architecture": "mamba"}, {}, {"general.architecture": "llama", "split.count": 3}]
)
def test_other_kinds_and_parts_of_a_model_are_not_guessed(tmp_path: Path, values: dict[str, object]) -> None:
    assert config_of(read_header(written(tmp_path, gguf(values, {})))) is None


def test_without_a_header_the_name_says_the_format_where_it_says_all(tmp_path: Path) -> None:
    assert bits_by_name("/models/Qwen3-8B-Q8_0.gguf") == BITS_BY_NAME["Q8_0"] == 8.5
    assert bits_by_name("/models/qwen3-8b.f16.gguf") == 16
    assert bits_by_name("/models/Qwen3-8B-Q4_K_M.gguf") is None
    (tmp_path / "config.json").write_text(
        '{"architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,'
        ' "intermediate_size": 4096, "vocab_size": 32000, "max_position_embeddings": 4096}'
    )
    named, mixed = (written(tmp_path, b"GGUF", name) for name in ("m-Q8_0.gguf", "m-Q4_K_M.gguf"))
    assert fit(VALUES, H100, facts_of(named)).weights.total is not None
    unknown = fit(VALUES, H100, facts_of(mixed))
    assert unknown.fits is None
    assert "the GGUF file's tensors (their formats are in its header)" in unknown.unknown


def test_a_gguf_file_is_checked_against_its_own_size(tmp_path: Path) -> None:
    path = written(tmp_path, llama())
    stored = sum(tensor.size for tensor in read_header(path).tensors.values())
    with open(path, "r+b") as file:
        file.truncate(int(stored))  # weights where there were none; a sparse file takes no room
    fitted = fit(VALUES, H100, facts_of(path), weights=read_checkpoint(path))
    assert fitted.weights.source.startswith("config, checked against the size of the files")
