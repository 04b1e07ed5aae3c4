"""SGLang's own command line: what it reads, what it refuses, and what is written so that it reads the same back."""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_hydra.arguments.fields import FIELDS, Field, LoRARef, fresh_defaults
from sglang_hydra.arguments.reading import parse_argv, read
from sglang_hydra.arguments.rendering import render
from sglang_hydra.planning.finding_meanings import MEANINGS
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding

DATA = Path(__file__).parents[1] / "data" / "conformance"
CLI = json.loads((DATA / "cli.json").read_text())


def recorded() -> Iterator[tuple[list[str], dict[str, Any]]]:
    for name in ("public.jsonl.gz", "targeted.jsonl.gz"):
        with gzip.open(DATA / name, "rt") as lines:
            for record in map(json.loads, lines):
                if "argv" in record["case"]:
                    yield record["case"]["argv"], record["expected"]


def refusals(*argv: str) -> list[Finding]:
    with pytest.raises(ConfigError) as refused:
        parse_argv(argv)
    return list(refused.value.findings)


def test_every_recorded_line_is_read_or_refused_as_sglang_does() -> None:
    cases = list(recorded())
    assert len(cases) == 174
    for argv, expected in cases:
        if expected.get("stage") == "argparse":
            assert {finding.stage for finding in refusals(*argv)} == {"argparse"}, argv
        else:
            parse_argv(argv)


READ: list[tuple[str, dict[str, Any]]] = [
    ("", {}),
    ("--tp-size 8", {"tp_size": 8}),
    ("--tp 8", {"tp_size": 8}),
    ("--tensor-parallel-size=8", {"tp_size": 8}),
    ("--tp=8", {"tp_size": 8}),
    ("--tp 2 --tp 4", {"tp_size": 4}),
    ("--pp 2 --dp 3 --ep 4", {"pp_size": 2, "dp_size": 3, "ep_size": 4}),
    ("--max-running 5", {"max_running_requests": 5}),
    ("--nccl-init-addr 10.0.0.1:99", {"dist_init_addr": "10.0.0.1:99"}),
    ("--speculative-draft-model d", {"speculative_draft_model_path": "d"}),
    ("--tp-size 1", {"tp_size": 1}),
    ("--chunked-prefill-size -1", {"chunked_prefill_size": -1}),
    ("--chunked-prefill-size=-1", {"chunked_prefill_size": -1}),
    ("--max-total-tokens 1_000", {"max_total_tokens": 1000}),
    (
        "--watchdog-timeout 1e3 --schedule-conservativeness .5",
        {"watchdog_timeout": 1000.0, "schedule_conservativeness": 0.5},
    ),
    ("--schedule-conservativeness -.5", {"schedule_conservativeness": -0.5}),
    ("--schedule-conservativeness=-1e5", {"schedule_conservativeness": -1e5}),
    ("--enable-metrics --tp 2", {"enable_metrics": True, "tp_size": 2}),
    ("--enable-multimodal", {"enable_multimodal": True}),
    ("--hybrid-kvcache-ratio", {"hybrid_kvcache_ratio": 0.5}),
    ("--hybrid-kvcache-ratio --tp 2", {"hybrid_kvcache_ratio": 0.5, "tp_size": 2}),
    ("--hybrid-kvcache-ratio 0.3", {"hybrid_kvcache_ratio": 0.3}),
    ("--cuda-graph-bs 1 2 4 8 --tp 2", {"cuda_graph_bs": [1, 2, 4, 8], "tp_size": 2}),
    ("--cuda-graph-bs=1", {"cuda_graph_bs": [1]}),
    ("--custom-weight-loader", {"custom_weight_loader": []}),
    ("--custom-weight-loader a.b c.d", {"custom_weight_loader": ["a.b", "c.d"]}),
    ("--quantization-param-path None", {"quantization_param_path": None}),
    ("--quantization-param-path=", {"quantization_param_path": None}),
    ("--served-model-name None", {"served_model_name": "None"}),
    ("--served-model-name=", {"served_model_name": ""}),
    ("--served-model-name=a=b", {"served_model_name": "a=b"}),
    ("--served-model-name -", {"served_model_name": "-"}),
    ("--served-model-name=--tp", {"served_model_name": "--tp"}),
    ("--served-model-name=--", {"served_model_name": []}),
    ("--hybrid-kvcache-ratio=--", {"hybrid_kvcache_ratio": 0.5}),
    ("--debug-tensor-dump-inject false", {"debug_tensor_dump_inject": "false"}),
    ("--log-requests-level 3", {"log_requests_level": 3}),
    ("--ep-dispatch-algorithm whatever", {"ep_dispatch_algorithm": "whatever"}),
    ("--prompt-tokens-buckets customer -1 5", {"prompt_tokens_buckets": ["customer", "-1", "5"]}),
    ("--lora-target-modules", {"lora_target_modules": []}),
    ("--lora-target-modules all q_proj", {"lora_target_modules": ["all", "q_proj"]}),
    ("--lora-paths", {"lora_paths": []}),
    ("--lora-paths a=/1 --lora-paths b=/2", {"lora_paths": ["b=/2"]}),
]


@pytest.mark.parametrize(("line", "values"), READ)
def test_a_line_is_read_as(line: str, values: dict[str, Any]) -> None:
    assert parse_argv(["--model", "x", *line.split()]) == {"model_path": "x", **values}


@pytest.mark.parametrize(
    ("words", "adapters"),
    [
        ([" a=/l/a "], ["a=/l/a"]),
        ([""], [""]),
        ([' {"lora_name": "a", "lora_path": "/l/a"} '], [{"lora_name": "a", "lora_path": "/l/a"}]),
        (
            ['{"lora_name": "a", "lora_path": "/l/a", "pinned": true}', "b=/l/b"],
            [{"lora_name": "a", "lora_path": "/l/a", "pinned": True}, "b=/l/b"],
        ),
        (["{no closing brace"], ["{no closing brace"]),
    ],
)
def test_adapters_are_paths_or_json(words: list[str], adapters: list[Any]) -> None:
    assert parse_argv(["--model", "x", "--lora-paths", *words])["lora_paths"] == adapters


def test_a_word_with_spaces_is_a_value_even_after_a_dash() -> None:
    line = ["--model", "x", "--constrained-json-whitespace-pattern", "-- [ ]*"]
    assert parse_argv(line)["constrained_json_whitespace_pattern"] == "-- [ ]*"


REFUSED: list[tuple[str, str, str, str | None]] = [
    ("--no-such-flag 3", "ARG010", "no option --no-such-flag", "sglang-hydra --help WORD finds arguments"),
    ("--tp_size 8", "ARG010", "no option --tp_size", "--tp-size 8"),
    ("--trust-remote-cod=1 x", "ARG015", "--trust-remote-code takes no value", "alone turns it on"),
    ("--chunked-prefil-size 5", "ARG010", "no option --chunked-prefil-size", "--chunked-prefill-size 5"),
    ("--quant fp8", "ARG011", "--quant is short for several", "--quantization, --quantization-param-path"),
    ("--tp", "ARG012", "--tp-size has no value", "--tp-size 8"),
    ("--tp --pp 2", "ARG012", "--tp-size has no value", "--tp-size 8"),
    ("--tp -x", "ARG012", "--tp-size has no value", "--tp-size 8"),
    ("--cuda-graph-bs", "ARG012", "--cuda-graph-bs has no value", "--cuda-graph-bs 8"),
    ("--tokenizer-mode", "ARG012", "--tokenizer-mode has no value", "--tokenizer-mode auto"),
    ("--tp 2.0", "ARG013", "--tp-size '2.0': a whole number is wanted", "--tp-size 2"),
    ("--cuda-graph-bs 1,2", "ARG013", "--cuda-graph-bs '1,2': a whole number is wanted", "--cuda-graph-bs 1 2"),
    ("--mem-fraction-static 90%", "ARG013", "'90%': a number is wanted", "--mem-fraction-static 0.9"),
    ("--kv-cache-dtype fp8", "ARG014", "'fp8' is not one of auto, fp8_e5m2, fp8_e4m3", "--kv-cache-dtype fp8_e4m3"),
    (
        "--speculative-algorithm eagle",
        "ARG014",
        "not one of EAGLE, EAGLE3, NEXTN, STANDALONE",
        "--speculative-algorithm EAGLE",
    ),
    ("--log-requests-level 4", "ARG014", "'4' is not one of 0, 1, 2, 3", None),
    ("--lora-target-modules q_proj zzz", "ARG014", "'zzz' is not among its 10 values", "5 more: sglang-hydra --help"),
    ("--enable-metrics=true", "ARG015", "--enable-metrics takes no value", "leave it out to keep it off"),
    ("--enable-metrics true", "ARG016", "'true' belongs to no option", "--enable-metrics takes no value"),
    ("--tp 8 pp_size=2", "ARG016", "'pp_size=2' belongs to no option", "--pp-size 2"),
    ("--tp 8 9", "ARG016", "'9' belongs to no option", "write one value after --tp-size"),
    ("-- x", "ARG016", "-- ends the options", "remove --"),
    ("--", "ARG016", "-- ends the options", "remove --"),
    ("--lora-paths {}", "ARG017", "has no lora_name and no lora_path", '{"lora_name": "sql"'),
    ("--lora-paths {bad}", "ARG017", "is not JSON: Expecting property name", '{"lora_name": "sql"'),
    ("--help", "ARG019", "--help asks for help", "sglang-hydra --help WORD"),
    ("-h", "ARG019", "-h asks for help", "sglang-hydra --help WORD"),
    ("--tp x --help", "ARG019", "--help asks for help", "sglang-hydra --help WORD"),
]


@pytest.mark.parametrize(("line", "id", "said", "hint"), REFUSED)
def test_a_fault_is_refused_with_what_to_type(line: str, id: str, said: str, hint: str | None) -> None:
    finding = refusals("--model", "x", *line.split())[0]
    assert (finding.level, finding.stage, finding.id) == ("error", "argparse", id)
    assert said in finding.message
    assert (hint is None) == (finding.hint is None)
    assert (hint or "") in (finding.hint or "")


def test_all_faults_of_a_line_are_reported_at_once() -> None:
    found = refusals("--tp", "two", "--kv-cache-dtype", "fp8", "--nope", "3", "stray", "--enable-metrics=1")
    assert [finding.id for finding in found] == ["ARG013", "ARG014", "ARG010", "ARG015", "ARG018"]
    assert [finding.fields for finding in found] == [
        ("tp_size",),
        ("kv_cache_dtype",),
        (),
        ("enable_metrics",),
        ("model_path",),
    ]


def test_every_kind_of_fault_has_a_meaning_and_a_case() -> None:
    assert sorted({id for _, id, _, _ in REFUSED} | {"ARG018"}) == sorted(
        id for id in MEANINGS if id.startswith("ARG01")
    )


@pytest.mark.parametrize("line", ["--model", "--mod x"])
def test_a_model_that_was_meant_is_not_missed_a_second_time(line: str) -> None:
    assert len(refusals(*line.split())) == 1


def test_nothing_is_printed_and_nothing_exits(capfd: pytest.CaptureFixture[str]) -> None:
    for line in ("--help", "--nope", "--tp x", ""):
        assert refusals(*line.split())
    assert capfd.readouterr() == ("", "")


def test_a_line_in_one_string_is_the_callers_mistake() -> None:
    with pytest.raises(TypeError, match="list of words"):
        parse_argv("--model x")


def test_the_place_of_an_argument_is_the_word_that_set_it() -> None:
    line = ["--model", "x", "--tp", "2", "--enable-metrics", "--cuda-graph-bs", "1", "2", "--tp=4"]
    found = read(line, "0.5.2")
    values, places = found.values, found.places
    assert places == {"model_path": 1, "tp_size": 9, "enable_metrics": 5, "cuda_graph_bs": 6}
    assert values.keys() == places.keys()


# --- against argparse itself -------------------------------------------------------------------------------------


class _Adapters(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        read = [
            json.loads(word) if word.strip()[:1] == "{" and word.strip()[-1:] == "}" else word.strip()
            for word in values
        ]
        if any(isinstance(item, dict) and not {"lora_name", "lora_path"} <= item.keys() for item in read):
            raise ValueError("not an adapter")
        setattr(namespace, self.dest, read)


@cache
def reference_parser() -> argparse.ArgumentParser:
    types = {
        "str": str,
        "int": int,
        "float": float,
        "nullable_str": lambda word: word if word not in ("", "None") else None,
    }
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    for option in CLI["options"]:
        how: dict[str, Any] = {"dest": option["dest"], "required": option["required"]}
        if option["action"] == "_StoreTrueAction":
            how["action"] = "store_true"
            how["default"] = argparse.SUPPRESS
        else:
            how.update(nargs=option["nargs"], const=option["const"], choices=option["choices"])
            how["type"] = types[option["type"]]
            if option["action"] == "LoRAPathAction":
                how["action"] = _Adapters
        parser.add_argument(*option["option_strings"], **how)
    return parser


def reference(argv: list[str]) -> dict[str, Any] | None:
    """What Python's own argparse makes of ``argv``; None for a refusal of any kind."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            namespace = vars(reference_parser().parse_args(argv))
        except (SystemExit, ValueError):
            return None
    return {CLI["dest_to_field"].get(name, name): value for name, value in namespace.items()}


FLAGS = [flag for field in FIELDS.values() for flag in field.flags]
WORDS = ["8", "0.5", "auto", "x", "", "all", "fa3", "None", "a=b", "-1", "-.5", "- x", "--tp 8", "-", '{"lora_name":1}']
# Python's versions agree about all words but these, which are tried on the version that the cases were recorded with.
if sys.version_info[:2] == (3, 11):
    WORDS += ["--", "-1e5", "-x", "-hx", "--=x", "-1_0", "--nope", "--nope=a b", "-a=b c"]


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    line = ["--model", "x"] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 3))):
        flag = draw(st.sampled_from(FLAGS))
        flag = flag[: draw(st.integers(3, len(flag)))] if draw(st.booleans()) else flag
        words = draw(st.lists(st.sampled_from(WORDS), max_size=3))
        line += [f"{flag}={words[0]}", *words[1:]] if words and draw(st.booleans()) else [flag, *words]
    return line


@settings(max_examples=300, deadline=None)
@given(lines())
def test_any_line_is_read_as_argparse_reads_it(line: list[str]) -> None:
    expected = reference(line)
    if expected is None:
        assert refusals(*line)
    else:
        assert repr(parse_argv(line)) == repr({name: expected[name] for name in parse_argv(line)})
        assert parse_argv(line).keys() == expected.keys()


# --- writing -----------------------------------------------------------------------------------------------------

WRITTEN: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    (fresh_defaults(), []),
    ({"watchdog_timeout": 300.0}, []),
    ({"tp_size": 8, "model_path": "org/name"}, ["--model-path", "org/name", "--tp-size", "8"]),
    ({"pp_size": 2, "dp_size": 3, "ep_size": 4}, ["--pp-size", "2", "--dp-size", "3", "--ep-size", "4"]),
    ({"dist_init_addr": "a:1"}, ["--dist-init-addr", "a:1"]),
    ({"speculative_draft_model_path": "d"}, ["--speculative-draft-model-path", "d"]),
    ({"enable_metrics": True, "log_requests": False}, ["--enable-metrics"]),
    ({"chunked_prefill_size": -1}, ["--chunked-prefill-size", "-1"]),
    ({"schedule_conservativeness": -1e-7}, ["--schedule-conservativeness=-1e-07"]),
    ({"served_model_name": "--x"}, ["--served-model-name=--x"]),
    ({"served_model_name": ""}, ["--served-model-name", ""]),
    ({"watchdog_timeout": 5}, ["--watchdog-timeout", "5"]),
    ({"hybrid_kvcache_ratio": 0.5}, ["--hybrid-kvcache-ratio", "0.5"]),
    ({"cuda_graph_bs": [1, 2]}, ["--cuda-graph-bs", "1", "2"]),
    ({"custom_weight_loader": []}, ["--custom-weight-loader"]),
    ({"custom_weight_loader": ["-x"]}, ["--custom-weight-loader=-x"]),
    ({"lora_target_modules": {"v_proj", "q_proj"}}, ["--lora-target-modules", "q_proj", "v_proj"]),
    ({"lora_paths": ["a=/l/a", "/l/b"]}, ["--lora-paths", "a=/l/a", "/l/b"]),
    (
        {"lora_paths": {"a": "/l/a", "b=c": "/l/b"}},
        ["--lora-paths", "a=/l/a", '{"lora_name": "b=c", "lora_path": "/l/b"}'],
    ),
    (
        {"lora_paths": [LoRARef("a", "/l/a", True)]},
        ["--lora-paths", '{"lora_name": "a", "lora_path": "/l/a", "pinned": true}'],
    ),
    ({"debug_tensor_dump_inject": True}, ["--debug-tensor-dump-inject", "true"]),
    ({"debug_tensor_dump_inject": "false"}, ["--debug-tensor-dump-inject", "false"]),
]


@pytest.mark.parametrize(("values", "line"), WRITTEN)
def test_values_are_written_as_the_shortest_line(values: dict[str, Any], line: list[str]) -> None:
    assert render(values) == line


UNSAYABLE: list[tuple[str, Any]] = [
    ("enable_lora", False),
    ("enable_multimodal", False),
    ("enable_metrics", None),
    ("enable_metrics", 1),
    ("max_queued_requests", None),
    ("disaggregation_prefill_pp", None),
    ("tp_size", None),
    ("tp_size", True),
    ("tp_size", 2.0),
    ("tp_size", "8"),
    ("tp_size", [8]),
    ("mem_fraction_static", "0.9"),
    ("served_model_name", 5),
    ("served_model_name", "--"),
    ("tokenizer_mode", "quick"),
    ("quantization_param_path", ""),
    ("quantization_param_path", "None"),
    ("cuda_graph_bs", []),
    ("cuda_graph_bs", 8),
    ("cuda_graph_bs", [1, None]),
    ("custom_weight_loader", ["a", "--b"]),
    ("lora_target_modules", "all"),
    ("lora_target_modules", ["zzz"]),
    ("lora_paths", "a=/l/a"),
    ("lora_paths", [" a"]),
    ("lora_paths", ["{a}"]),
    ("lora_paths", [5]),
    ("lora_paths", [{"lora_name": "a"}]),
    ("lora_paths", [{"lora_name": "a", "lora_path": {1}}]),
    ("debug_tensor_dump_inject", None),
    ("tpsize", 8),
]


@pytest.mark.parametrize(("name", "value"), UNSAYABLE)
def test_what_no_line_can_say_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        render({name: value})


def test_a_secret_is_not_in_the_refusal() -> None:
    with pytest.raises(ValueError, match=r"api_key=\*\*\*"):
        render({"api_key": ["hunter2"]})


def test_every_recorded_line_is_written_back() -> None:
    for argv, expected in recorded():
        if expected.get("stage") != "argparse":
            values = parse_argv(argv)
            wanted = {name: value for name, value in values.items() if value != FIELDS[name].default}
            assert parse_argv(render(values)) == wanted


TEXT = st.text(max_size=8) | st.sampled_from(["-1", "--tp", "--x y", "-", "--", "-1e5", "=", "None", "--tp=2"])


def value_of(field: Field) -> st.SearchStrategy[Any]:
    if field.arg.parser == "lora":
        adapter = st.fixed_dictionaries({"lora_name": TEXT, "lora_path": TEXT}, optional={"pinned": st.booleans()})
        return st.lists(TEXT | adapter, max_size=3)
    if field.arg.parser == "text":
        return TEXT
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.just(True),
        "int": st.integers(),
        "float": st.floats(allow_nan=False),
        "str": TEXT,
    }
    one = st.sampled_from(list(field.arg.choices)) if field.arg.choices else kinds[field.kind.replace("Any", "str")]
    return st.lists(one, max_size=3) if field.arg.nargs in ("*", "+") else one


@st.composite
def typed_values(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from([name for name in FIELDS if name != "model_path"]), unique=True, max_size=4))
    return {"model_path": "x", **{name: draw(value_of(FIELDS[name])) for name in names}}


@settings(max_examples=300, deadline=None)
@given(typed_values())
def test_what_is_written_is_read_back(values: dict[str, Any]) -> None:
    sayable = {}
    for name, value in values.items():
        with contextlib.suppress(ValueError):
            render({name: value})
            sayable[name] = value
    wanted = {name: value for name, value in sayable.items() if value != FIELDS[name].default}
    words = render(sayable)
    assert parse_argv(words) == {"model_path": "x", **wanted}
    expected = reference(words) or {}
    assert {name: expected[name] for name in wanted} == wanted


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([field for field in FIELDS.values() if field.kind in ("int", "float", "str")]), st.data())
def test_a_plain_value_can_nearly_always_be_said(field: Field, data: st.DataObject) -> None:
    value = data.draw(value_of(field))
    odd_words = {"--", "", "None"} if isinstance(value, str) else set()
    if not isinstance(value, list) and value not in odd_words:
        line = render({"model_path": "x"} | {field.name: value})
        assert parse_argv(line).get(field.name, FIELDS[field.name].default) == value
