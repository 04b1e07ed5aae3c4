"""Draft models: found by their names, in a folder, or as layers of a model of the catalog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.recipes import recipes
from sglang_hydra.facts import hub
from sglang_hydra.facts.declared import known_draft
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.text.locations import conf_dir
from tests.commands import must_follow
from tests.plans import composer

DRAFTS: dict[str, dict[str, Any]] = json.loads((conf_dir() / "drafts.json").read_text("utf-8"))["drafts"]
EAGLE = ("speculative_algorithm=EAGLE", "speculative_num_steps=3", "speculative_eagle_topk=1")
EAGLE = (*EAGLE, "speculative_num_draft_tokens=4")


def plan(*words: str) -> Plan:
    asked = [Request(word, f"argument {number}") for number, word in enumerate(words, 1)]
    return make_plan(composer(), asked, seed=42, env={"HF_HUB_OFFLINE": "1"})


@pytest.mark.parametrize("name", DRAFTS)
def test_a_published_draft_has_a_source_and_shapes_of_its_own_or_of_another_entry(name: str) -> None:
    entry = DRAFTS[name]
    assert entry["source"]
    assert len({"config", "like", "layers_of", "unknown"} & set(entry)) == 1
    assert "config" in DRAFTS[entry["like"]] if "like" in entry else True
    facts = known_draft(name, composer().model_presets())
    if "unknown" in entry:
        assert facts is None
    else:
        assert facts is not None
        assert facts.config


def test_a_published_draft_is_counted_by_its_name() -> None:
    found = plan(
        *("gpu=h100", "model=llama_3_1_8b", *EAGLE),
        "speculative_draft_model_path=lmsys/sglang-EAGLE-LLaMA3-Instruct-8B",
    )
    assert found.fit is not None
    assert found.fit.unknown == ()
    assert found.fit.draft is not None
    # One layer of Llama 3 8B and its projection of embedding and hidden state, in 16 bits.
    layer = (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096 + 2 * 4096 * 4096) * 2
    cache = 2 * 8 * 128 * 2 * (found.fit.kv_tokens or 0)
    assert found.fit.draft.mid == pytest.approx(layer + cache, rel=0.01)


@pytest.mark.parametrize("name", ["lmsys/DeepSeek-V3-NextN", "deepseek-ai/DeepSeek-V3"])
def test_next_token_layers_of_their_own_checkpoint_are_those_of_the_model(name: str) -> None:
    words = ("gpu=h200", "model=deepseek_v3", "tp_size=8", *EAGLE)
    own, named = plan(*words), plan(*words, f"speculative_draft_model_path={name}")
    assert own.fit is not None
    assert named.fit is not None
    assert own.fit.draft == named.fit.draft
    assert named.fit.unknown == ()


def test_a_model_of_the_catalog_drafts_on_its_own() -> None:
    found = plan(
        *("gpu=h100", "model=qwen3_32b", "speculative_algorithm=STANDALONE", *EAGLE[1:]),
        "speculative_draft_model_path=Qwen/Qwen3-0.6B",
    )
    assert found.fit is not None
    assert found.fit.unknown == ()
    assert found.fit.draft is not None
    assert found.fit.draft.mid > 0.5e9 * 2


def test_a_draft_in_a_folder_is_read_and_written_down(tmp_path: Path) -> None:
    config = {**DRAFTS["yuhuili/EAGLE-LLaMA3-Instruct-8B"]["config"], "max_position_embeddings": 131072}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    found = plan("gpu=h100", "model=llama_3_1_8b", *EAGLE, f"speculative_draft_model_path={tmp_path}")
    assert found.fit is not None
    assert found.fit.unknown == ()
    assert found.launchable
    record = json.loads(json.dumps(found.to_json()))
    must_follow(record, "plan")
    assert record["model"]["draft"]["config"]["hidden_size"] == 4096


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "config.json"),
        (json.dumps({"architectures": ["LlamaForCausalLMEagle"], "hidden_size": "many"}), "hidden_size is 'many'"),
    ],
)
def test_a_corrupt_draft_names_its_file_and_field(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "config.json").write_text(content, encoding="utf-8")
    found = plan("gpu=h100", "model=llama_3_1_8b", *EAGLE, f"speculative_draft_model_path={tmp_path}")
    assert not found.launchable
    messages = [finding.message for finding in found.errors]
    assert any(said in message and str(tmp_path) in message for message in messages), messages


def test_an_unknown_draft_is_a_warning_and_leaves_the_verdict_open() -> None:
    found = plan("gpu=h100", "model=llama_3_1_8b", *EAGLE, "speculative_draft_model_path=org/draft")
    warning = next(finding for finding in found.findings if finding.id == "HUB004")
    assert warning.level == "warning"
    assert warning.message.startswith("the draft model: org/draft")
    assert warning.fields == ("speculative_draft_model_path",)
    assert found.fit is not None
    assert found.fit.fits is None


def test_a_draft_without_an_algorithm_is_not_read() -> None:
    found = plan("gpu=h100", "model=llama_3_1_8b", "speculative_draft_model_path=org/draft")
    assert "HUB004" not in [finding.id for finding in found.findings]


@pytest.mark.parametrize("name", [name for name, entry in DRAFTS.items() if "unknown" in entry])
def test_a_draft_without_published_shapes_says_so_and_is_read_where_it_was_downloaded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned(**env: str) -> Plan:
        words = ("gpu=h100", "model=llama_3_1_8b", *EAGLE, f"speculative_draft_model_path={name}")
        asked = [Request(word, f"argument {number}") for number, word in enumerate(words, 1)]
        return make_plan(composer(), asked, seed=42, env={"HF_HUB_CACHE": str(tmp_path), **env})

    monkeypatch.setattr(hub, "_download", _refuse)
    warning = next(finding for finding in planned().findings if finding.id == "HUB004")
    assert "no public file with its shapes was found" in warning.message
    assert f"hf download {name} config.json" in str(warning.hint)
    folder = tmp_path / f"models--{name.replace('/', '--')}"
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    shapes = DRAFTS["yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"]["config"]
    (folder / "snapshots" / "abc" / "config.json").write_text(json.dumps(shapes))
    found = planned()
    assert "HUB004" not in [finding.id for finding in found.findings]
    assert found.model.draft is not None
    assert {**(found.model.draft.config or {}), **shapes} == found.model.draft.config


def _refuse(*words: object) -> None:
    raise AssertionError(f"the hub was asked: {words}")


def test_every_recipe_is_planned_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_download", _refuse)
    names = list(recipes())
    assert len(names) == 171
    for name in names:
        asked = [Request(f"recipe={name}", "argument 1")]
        assert make_plan(composer(), asked, seed=42, env={"HF_HUB_CACHE": str(tmp_path)}).model.known, name
