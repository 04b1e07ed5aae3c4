"""What a config.json leaves to transformers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sglang_hydra.facts.defaults import fill_defaults, left_out
from sglang_hydra.facts.model import ModelFacts

FULL = dict.fromkeys(
    ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "max_position_embeddings"), 1
)


@pytest.mark.parametrize(
    ("config", "missing"),
    [
        (FULL, ()),
        ({**FULL, "vision_config": {"num_hidden_layers": 1, "hidden_size": 1}}, ()),
        ({**FULL, "vision_config": {"depth": 32}}, ()),
        ({**FULL, "vision_config": {"hidden_size": 1}}, ("vision_config.num_hidden_layers",)),
        ({**FULL, "architectures": ["Llama4ForConditionalGeneration"]}, ("vision_config",)),
        ({**FULL, "architectures": 5}, ()),
        ({key: 1 for key in FULL if key != "vocab_size"}, ("vocab_size",)),
        ({"text_config": {key: 1 for key in FULL if key != "vocab_size"}}, ("text_config.vocab_size",)),
        ({"text_config": {key: 1 for key in FULL if key != "vocab_size"}, "vocab_size": 1}, ()),
        ({"text_config": None}, tuple(f"text_config.{key}" for key in FULL)),
    ],
)
def test_these_fields_are_left_out(config: Mapping[str, Any], missing: tuple[str, ...]) -> None:
    assert left_out(config) == missing


def transformers(full: dict[str, Any] | Exception) -> ModuleType:
    module: Any = ModuleType("transformers")

    def load(folder: str, **options: Any) -> Any:
        assert options == {"trust_remote_code": False, "local_files_only": True}
        if isinstance(full, Exception):
            raise full
        return SimpleNamespace(to_dict=lambda: full)

    module.__version__ = "4.56.1"
    module.AutoConfig = SimpleNamespace(from_pretrained=load)
    result: ModuleType = module
    return result


def test_defaults_fill_only_what_the_file_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    full = {"hidden_size": 9, "vocab_size": 2, "vision_config": {"hidden_size": 768, "num_hidden_layers": 34}}
    monkeypatch.setitem(sys.modules, "transformers", transformers(full))
    facts = ModelFacts({"hidden_size": 1, "vision_config": {"hidden_size": 1408}}, source="x")
    filled = fill_defaults(facts, "/folder")
    assert filled.config == {
        "hidden_size": 1,
        "vocab_size": 2,
        "vision_config": {"hidden_size": 1408, "num_hidden_layers": 34},
    }
    assert "defaults of transformers 4.56.1" in filled.extra["note"]


@pytest.mark.parametrize("failure", [OSError("no config\nlong story"), KeyError("kimi_k2"), ValueError("code needed")])
def test_a_config_that_transformers_cannot_read_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", transformers(failure))
    facts = ModelFacts({"hidden_size": 1}, extra={"note": "plain JSON"})
    filled = fill_defaults(facts, "/folder")
    assert filled.config == {"hidden_size": 1}
    assert filled.extra["note"].startswith("plain JSON; transformers filled in nothing (")
    assert "long story" not in filled.extra["note"]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"num_hidden_layers": 10**30}, "num_hidden_layers"),
        ({"num_labels": 10**9}, "num_labels"),
        ({"text_config": {"num_hidden_layers": 1e18}}, "text_config.num_hidden_layers"),
        ({"vision_config": {"depth": 10**7}}, "vision_config.depth"),
    ],
)
def test_a_config_class_is_not_asked_to_count_for_ever(
    config: dict[str, Any], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", transformers({"hidden_size": 9}))
    filled = fill_defaults(ModelFacts(config, extra={"note": "plain JSON"}), "/folder")
    assert filled.config == config
    assert filled.extra["note"] == f"plain JSON; transformers was not asked: {field} is too large"


def test_without_transformers_nothing_is_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    filled = fill_defaults(ModelFacts({"hidden_size": 1}), "/folder")
    assert filled.config == {"hidden_size": 1}


def test_unknown_facts_stay_unknown() -> None:
    facts = ModelFacts(None)
    assert fill_defaults(facts, "/folder") is facts
