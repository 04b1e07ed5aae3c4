"""ServerArgs as an OmegaConf structured config and in Hydra's ConfigStore."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hydra import compose, initialize
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import ConfigCompositionException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, ValidationError

from sglang_hydra.arguments.fields import FIELDS, ServerArgs, fresh_defaults

ConfigStore.instance().store(name="server_args_under_test", node=ServerArgs)


@pytest.fixture
def hydra() -> Iterator[None]:
    GlobalHydra.instance().clear()
    with initialize(version_base=None, config_path=None):
        yield
    GlobalHydra.instance().clear()


def composed(*overrides: str) -> DictConfig:
    return compose("server_args_under_test", overrides=list(overrides))


def test_all_fields_and_defaults_are_taken_over() -> None:
    config = OmegaConf.structured(ServerArgs)
    assert list(config) == list(FIELDS)
    assert OmegaConf.is_missing(config, "model_path")
    config.model_path = "x"
    assert OmegaConf.to_container(config) == {**fresh_defaults(), "model_path": "x"}


def test_our_sign_for_a_missing_value_is_omegaconfs() -> None:
    assert FIELDS["model_path"].default == MISSING


def test_a_missing_model_path_composes_and_is_known_as_missing(hydra: None) -> None:
    config = composed("tp_size=8")
    assert config.tp_size == 8
    with pytest.raises(MissingMandatoryValue):
        _ = config.model_path


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("override", "name", "value"),
    [
        ("model_path=org/name", "model_path", "org/name"),
        ("tp_size=8", "tp_size", 8),
        ("mem_fraction_static=0.9", "mem_fraction_static", 0.9),
        ("mem_fraction_static=null", "mem_fraction_static", None),
        ("watchdog_timeout=10", "watchdog_timeout", 10.0),
        ("enable_lora=false", "enable_lora", False),
        ("attention_backend=fa3", "attention_backend", "fa3"),
        ("cuda_graph_bs=[1,2,4]", "cuda_graph_bs", [1, 2, 4]),
        ("bucket_inter_token_latency=[1,0.5]", "bucket_inter_token_latency", [1.0, 0.5]),
        ("prompt_tokens_buckets=['tse','1000','2','8']", "prompt_tokens_buckets", ["tse", "1000", "2", "8"]),
        ("lora_paths=['a=/l/a',/l/b]", "lora_paths", ["a=/l/a", "/l/b"]),
        ("lora_paths={a:/l/a}", "lora_paths", {"a": "/l/a"}),
        ("lora_paths=[{lora_name:a,lora_path:/l/a}]", "lora_paths", [{"lora_name": "a", "lora_path": "/l/a"}]),
        ("lora_target_modules=[all]", "lora_target_modules", ["all"]),
        ("max_queued_requests=9223372036854775807", "max_queued_requests", 2**63 - 1),
    ],
)
def test_an_override_of_the_right_type_composes(hydra: None, override: str, name: str, value: Any) -> None:
    config = OmegaConf.to_container(composed(override))
    assert isinstance(config, dict)
    assert config[name] == value


@pytest.mark.parametrize(
    "override",
    [
        "tp_size=x",
        "tp_size=2.5",
        "tp_size=null",
        "enable_metrics=maybe",
        "cuda_graph_bs=[a]",
        "mem_fraction_static=high",
    ],
)
def test_an_override_of_a_wrong_type_is_refused(hydra: None, override: str) -> None:
    with pytest.raises(ConfigCompositionException) as refused:
        composed(override)
    assert isinstance(refused.value.__cause__, ValidationError)


def test_an_unknown_key_is_refused(hydra: None) -> None:
    with pytest.raises(ConfigCompositionException, match="tpsize"):
        composed("tpsize=8")


def test_a_composed_config_becomes_server_args_again(hydra: None) -> None:
    args = OmegaConf.to_object(composed("model_path=x", "tp_size=8", "cuda_graph_bs=[1,2]"))
    assert args == ServerArgs(model_path="x", tp_size=8, cuda_graph_bs=[1, 2])
