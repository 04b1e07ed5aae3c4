"""Which Python values fit which argument, and what is said about those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_hydra.arguments.fields import FIELDS, LoRARef, fresh_defaults
from sglang_hydra.arguments.fields.check import check_json, check_value

FITTING: list[tuple[str, Any]] = [
    ("tp_size", 8),
    ("tp_size", -1),
    ("context_length", None),
    ("mem_fraction_static", 0.9),
    ("mem_fraction_static", 1),
    ("mem_fraction_static", 10**308),
    ("watchdog_timeout", float("nan")),
    ("watchdog_timeout", float("inf")),
    ("enable_lora", None),
    ("enable_lora", False),
    ("attention_backend", "fa3"),
    ("attention_backend", None),
    ("log_requests_level", 3),
    ("model_path", "org/name"),
    ("log_level", "anything"),
    ("cuda_graph_bs", [1, 2, 4]),
    ("cuda_graph_bs", []),
    ("cuda_graph_bs", (1, 2)),
    ("bucket_inter_token_latency", [1, 0.5]),
    ("prompt_tokens_buckets", ["tse", "1000", "2", "8"]),
    ("lora_target_modules", ["q_proj", "all"]),
    ("lora_target_modules", {"q_proj"}),
    ("lora_paths", []),
    ("lora_paths", ["/l/a", "b=/l/b"]),
    ("lora_paths", [{"lora_name": "a", "lora_path": "/l/a", "pinned": True}]),
    ("lora_paths", {"a": "/l/a"}),
    ("lora_paths", [LoRARef("a", "/l/a")]),
]

REFUSED: list[tuple[str, Any, str]] = [
    ("tp_size", "x", "tp_size='x' is not an int"),
    ("tp_size", 2.0, "tp_size=2.0 is not an int"),
    ("tp_size", True, "tp_size=true is not an int"),
    ("tp_size", None, "tp_size=null: tp_size cannot be null, it is an int"),
    ("tp_size", [8], "tp_size=[8] is not an int"),
    ("mem_fraction_static", "0.9", "mem_fraction_static='0.9' is not a float"),
    ("mem_fraction_static", False, "mem_fraction_static=false is not a float"),
    ("mem_fraction_static", 10**309, "is not a float"),
    ("mem_fraction_static", -(10**309), "is not a float"),
    ("bucket_inter_token_latency", [0.5, 10**309], "is not a float"),
    ("enable_metrics", 1, "enable_metrics=1 is not a bool"),
    ("enable_metrics", "true", "enable_metrics='true' is not a bool"),
    ("served_model_name", True, "served_model_name=true is not a str"),
    ("served_model_name", 5, "served_model_name=5 is not a str"),
    ("api_key", 12345, "api_key=*** is not a str"),
    ("tokenizer_mode", "quick", "tokenizer_mode='quick' is not one of auto, slow"),
    ("log_requests_level", 4, "log_requests_level=4 is not one of 0, 1, 2, 3"),
    ("ep_dispatch_algorithm", "best", "ep_dispatch_algorithm='best' is not one of static, dynamic, fake"),
    ("cuda_graph_bs", 8, "cuda_graph_bs=8 is not a list of ints"),
    ("cuda_graph_bs", "1,2", "cuda_graph_bs='1,2' is not a list of ints"),
    ("cuda_graph_bs", [1, "2"], "cuda_graph_bs='2' is not an int"),
    ("prompt_tokens_buckets", ["tse", 1000], "prompt_tokens_buckets=1000 is not a str"),
    ("lora_target_modules", "all", "lora_target_modules='all' is not a list of module names"),
    ("lora_target_modules", ["zzz"], "lora_target_modules='zzz' is not among its 10 values"),
    ("lora_target_modules", [1], "lora_target_modules=1 is not a str"),
    ("lora_paths", "a=/l/a", "lora_paths='a=/l/a' is neither a list of adapters nor a mapping"),
    ("lora_paths", [5], "lora_paths: 5 is no str"),
    ("lora_paths", {"a": 5}, "lora_paths: 'a' -> 5 must map a name to a path"),
    ("lora_paths", [{"lora_name": "a"}], "lora_paths: {'lora_name': 'a'} needs lora_path, a str"),
    ("lora_paths", [{"lora_name": "a", "lora_path": "p", "pinned": 1}], "lora_paths: pinned=1 is not a bool"),
    ("lora_paths", [{"lora_name": "a", "lora_path": "p", "pined": True}], "'pined' is not one of lora_name"),
    (
        "json_model_override_args",
        {"rope_theta": 1},
        "is not a str: write it as JSON text, json_model_override_args='{\"rope_theta\": 1}'",
    ),
    ("json_model_override_args", {"x": object()}, "write it as JSON text"),
]


@pytest.mark.parametrize(("name", "value"), FITTING)
def test_a_fitting_value_is_let_through(name: str, value: Any) -> None:
    assert check_value(name, value) is None


@pytest.mark.parametrize(("name", "value", "said"), REFUSED)
def test_a_value_that_does_not_fit_is_named_with_what_would(name: str, value: Any, said: str) -> None:
    assert said in (check_value(name, value) or "")


@pytest.mark.parametrize("name", FIELDS)
def test_every_default_fits_and_every_field_refuses_a_stranger(name: str) -> None:
    default = fresh_defaults()[name]
    assert FIELDS[name].required or check_value(name, default) is None
    assert (check_value(name, None) is None) == FIELDS[name].optional
    assert check_value(name, object())


def test_a_long_value_is_cut_short_in_the_message() -> None:
    said = check_value("tp_size", "x" * 10_000)
    assert said is not None
    assert len(said) < 150


def test_an_unknown_name_is_the_callers_mistake() -> None:
    with pytest.raises(KeyError):
        check_value("tpsize", 8)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1}', None),
        ("{}", None),
        ("{oops", "json_model_override_args is not JSON: Expecting property name enclosed in double quotes at line 1"),
        ('{"a":\n  1,\n x}', "at line 3, column 2, near 'x}'"),
        ("", "at line 1, column 1, near ''"),
        ("[1]", "must be a JSON object like {...}, not '[1]'"),
        ("[" * 200_000, "json_model_override_args is not JSON that can be read: it is nested more than 50"),
        (
            '{"a": ' + "9" * 5_000 + "}",
            "json_model_override_args is not JSON that can be read: a number in it has",
        ),
    ],
)
def test_bad_json_is_refused_with_its_place(text: str, said: str | None) -> None:
    found = check_json("json_model_override_args", text)
    assert found is None if said is None else said in (found or "")
