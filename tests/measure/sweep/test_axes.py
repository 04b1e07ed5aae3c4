"""Which values a word stands for: Hydra's override grammar, lists from files, keys that vary together."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_hydra.compose.overrides import KEPT, Request
from sglang_hydra.measure.sweep.axes import (
    MOST_OF_FILES,
    MOST_POINTS,
    Axis,
    axis_of,
    axis_of_params,
    check_points,
    combinations,
    zipped,
)
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from tests.plans import composer


def axis(word: str) -> Axis | None:
    return axis_of(Request(word, "argument 1"), composer().options)


def words(found: Axis | None) -> list[str]:
    assert found is not None
    return [" ".join(request.text for request in requests) for requests in found.values()]


def refused(word: str) -> Finding:
    with pytest.raises(ConfigError) as failure:
        axis(word)
    return failure.value.findings[0]


VARIED = [
    ("tp_size=1,2,4", ["tp_size=1", "tp_size=2", "tp_size=4"]),
    ("tp_size= 1, 2", ["tp_size=1", "tp_size=2"]),
    ("tp_size=choice(1,2)", ["tp_size=1", "tp_size=2"]),
    ("tp_size=range(1,4)", ["tp_size=1", "tp_size=2", "tp_size=3"]),
    ("tp_size=range(4,0,-2)", ["tp_size=4", "tp_size=2"]),
    ("mem_fraction_static=range(0.7,0.85,0.05)", [f"mem_fraction_static={value}" for value in ("0.7", "0.75", "0.8")]),
    ("mem_fraction_static=range(0.9,0.7,-0.1)", ["mem_fraction_static=0.9", "mem_fraction_static=0.8"]),
    ("tp_size=sort(4,1,2)", ["tp_size=1", "tp_size=2", "tp_size=4"]),
    ("tp_size=sort(1,2,reverse=true)", ["tp_size=2", "tp_size=1"]),
    ("tp_size=tag(fast,choice(1,2))", ["tp_size=1", "tp_size=2"]),
    ("gpu=h100,h200", ["gpu=h100", "gpu=h200"]),
    ("model=glob(gpt_oss_*)", ["model=gpt_oss_120b", "model=gpt_oss_20b"]),
    ("model=glob([grok*,mixtral*],exclude=grok_1)", ["model=grok_2", "model=mixtral_8x22b", "model=mixtral_8x7b"]),
    ("recipe=glob(grok_2-*)", [f"recipe={id}" for id in composer().options("recipe") if id.startswith("grok_2-")]),
    ("model=qwen3_8b,org/name,./folder", ["model=qwen3_8b", "model=org/name", "model=./folder"]),
    ("+experiment=a,b", ["+experiment=a", "+experiment=b"]),
    ("bench.concurrency=1,8", ["bench.concurrency=1", "bench.concurrency=8"]),
    ("bench/workload=1k1k,8k1k", ["bench/workload=1k1k", "bench/workload=8k1k"]),
    ("served_model_name=a,'b,c'", ["served_model_name=a", "served_model_name='b,c'"]),
    ("served_model_name=choice('a b','it')", ["served_model_name=a b", "served_model_name=it"]),
    ("served_model_name=choice('a,b','it\\'s')", ["served_model_name='a,b'", "served_model_name='it\\'s'"]),
    ("served_model_name=choice('null','5','x/y')", [f"served_model_name={name}" for name in ("'null'", "5", "x/y")]),
    ("chat_template={{a}},{{b}}", ["chat_template={{a}}", "chat_template={{b}}"]),
    ("cuda_graph_bs=[1,2],[4]", ["cuda_graph_bs=[1,2]", "cuda_graph_bs=[4]"]),
    ("engine.env={A:1},{A:2}", ["engine.env={A:1}", "engine.env={A:2}"]),
    ("enable_dp_attention=true,false", ["enable_dp_attention=true", "enable_dp_attention=false"]),
    ("revision=null,main", ["revision=null", "revision=main"]),
]


@pytest.mark.parametrize(("word", "expected"), VARIED, ids=[word for word, _ in VARIED])
def test_a_list_of_values_is_taken_apart(word: str, expected: list[str]) -> None:
    assert words(axis(word)) == expected


SINGLE = [
    *("tp_size=1", "served_model_name='a,b'", "cuda_graph_bs=[1,2]", "lora_paths={a:b}", "chat_template={{x}}"),
    *("ignore=FIT001,FIT002", "sweep.where=tp_size in (1,2)", "sweep.zip=[[a,b]]", "hydra/launcher=joblib,basic"),
    *("hydra.launcher.n_jobs=1,2", "plan", "--strict", "~experiment", "host=${oc.env:A,b}"),
]


@pytest.mark.parametrize("word", SINGLE)
def test_a_word_with_one_value_is_no_axis(word: str) -> None:
    assert axis(word) is None


@pytest.mark.parametrize(
    ("word", "id", "said", "hint"),
    [
        ("mem_fraction_static=interval(0.5,0.9)", "SWP002", "is an interval", "A,B"),
        ("tp_size=choice()", "SWP001", "gives no value", "tp_size=A,B"),
        ("tp_size=range(1,5,0)", "SWP002", "cannot be listed", "A,B,C"),
        ("mem_fraction_static=range(0.1,0.5,0.0)", "SWP002", "never ends", "A,B,C"),
        ("tp_size=range(5,1)", "SWP001", "gives no value", "tp_size=A,B"),
        ("model=glob(nothing*)", "SWP001", "gives no value", "model=A,B"),
    ],
)
def test_values_that_are_no_list_are_refused(word: str, id: str, said: str, hint: str) -> None:
    finding = refused(word)
    assert (finding.id, said in finding.message, hint in (finding.hint or "")) == (id, True, True)


@pytest.mark.parametrize(
    ("word", "size"),
    [
        ("tp_size=range(1,9,2)", 4),
        ("tp_size=range(9,1,-2)", 4),
        ("mem_fraction_static=range(0.7,0.9,0.05)", 4),
        ("tp_size=1,2", None),
        ("model=glob(qwen*)", None),
    ],
)
def test_a_range_is_counted_without_making_its_values(word: str, size: int | None) -> None:
    found = axis(word)
    assert found is not None
    assert (found.size, len(words(found))) == (size, size or len(words(found)))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(st.integers(-99, 99), st.sampled_from(["a", "b-c", "'d e'", "null", "1.5", "[1,2]"])), min_size=2
    )
)
def test_a_simple_list_has_the_values_that_hydra_reads(values: list[Any]) -> None:
    word = f"x={','.join(map(str, values))}"
    parser = OverridesParser.create()
    expected = list(parser.parse_override(word).sweep_iterator())
    found = [parser.parse_override(one)._value for one in words(axis(word))]
    assert found == expected


def test_a_shuffled_list_keeps_its_order_for_the_whole_sweep() -> None:
    shuffled = axis("tp_size=shuffle(range(0,200))")
    assert words(shuffled) == words(shuffled)
    assert sorted(words(shuffled)) == sorted(f"tp_size={value}" for value in range(200))


def test_a_range_without_end_in_sight_is_not_listed() -> None:
    found = axis("tp_size=range(1,1000000000000)")
    assert found is not None
    assert [requests[0].text for requests in itertools.islice(found.values(), 2)] == ["tp_size=1", "tp_size=2"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], ["1", "2"]),
        ("1,2", ["1", "2"]),
        ("range(1,3)", ["1", "2"]),
        (7, ["7"]),
        (["fa3", "triton"], ["'fa3'", "'triton'"]),
        ([True, None, 0.5], ["true", "null", "0.5"]),
        ([[1, 2], [4]], ["[1,2]", "[4]"]),
        (["a,b"], ["'a,b'"]),
    ],
)
def test_a_file_lists_values_as_yaml_has_them(values: Any, expected: list[str]) -> None:
    assert words(axis_of_params("x", values, "sweep.params", composer().options)) == [f"x={item}" for item in expected]


@pytest.mark.parametrize(("values", "id"), [([], "SWP001"), ({}, "SWP004"), ([{"odd key": 1}], "SWP004")])
def test_a_list_in_a_file_that_is_none_is_refused(values: Any, id: str) -> None:
    with pytest.raises(ConfigError) as failure:
        axis_of_params("x", values, "sweep.params", composer().options)
    assert failure.value.findings[0].id == id


def axes(*all_of_them: str) -> list[Axis]:
    return [found for word in all_of_them if (found := axis(word)) is not None]


def test_every_combination_is_made_the_last_key_first() -> None:
    made = [" ".join(request.text for request in point) for point in combinations(axes("tp_size=1,2", "dp_size=1,2"))]
    assert made == ["tp_size=1 dp_size=1", "tp_size=1 dp_size=2", "tp_size=2 dp_size=1", "tp_size=2 dp_size=2"]
    assert list(combinations([])) == [()]


def test_keys_that_vary_together_take_their_values_in_step() -> None:
    made = zipped(
        axes("tp_size=1,2", "page_size=1,16", "mem_fraction_static=0.7,0.8"), [["tp_size", "mem_fraction_static"]]
    )
    assert [found.keys for found in made] == [("page_size",), ("tp_size", "mem_fraction_static")]
    assert words(made[1]) == ["tp_size=1 mem_fraction_static=0.7", "tp_size=2 mem_fraction_static=0.8"]
    assert words(zipped(axes("tp_size=1,2", "dp_size=4,5"), ["tp_size", "dp_size"])[0])[0] == "tp_size=1 dp_size=4"


@pytest.mark.parametrize(
    ("together", "said"),
    [
        ([["tp_size", "port"]], "port, which does not vary"),
        ([["tp_size", "page_siz"]], "page_siz, which does not vary"),
        ([["tp_size", "page_size"]], "tp_size has 2, page_size has 3"),
        ([["tp_size", "tp_size"]], "tp_size twice"),
        ([["tp_size", "dp_size"], "page_size"], "'page_size', which is no list of keys"),
        ([["tp_size", 3]], "which is no list of keys"),
        ([["tp_size", "dp_size"], ["dp_size", "page_size"]], "dp_size twice"),
    ],
)
def test_keys_that_cannot_vary_together_are_refused(together: list[list[str]], said: str) -> None:
    with pytest.raises(ConfigError) as failure:
        zipped(axes("tp_size=1,2", "dp_size=1,2", "page_size=1,2,3"), together)
    (finding,) = failure.value.findings
    assert (finding.id, said in finding.message) == ("SWP003", True)


def test_an_empty_group_of_keys_changes_nothing() -> None:
    assert [found.keys for found in zipped(axes("tp_size=1,2"), [[]])] == [("tp_size",)]


@pytest.mark.parametrize(
    ("word", "client"),
    [
        ("bench.concurrency=1,2", True),
        ("bench/workload=1k1k,8k1k", True),
        ("tp_size=1,2", False),
        ("benchy=1,2", False),
    ],
)
def test_the_load_is_told_from_the_server(word: str, client: bool) -> None:
    (found,) = axes(word)
    assert found.is_client is client


@pytest.mark.parametrize(
    "typed",
    [
        [f"port=range(0,{MOST_POINTS + 1})"],
        ["port=range(0,1000000000)", "tp_size=1,2"],
        ["port=shuffle(range(0,1000000000))"],
        ["port=range(0,1000)", "dist_timeout=range(0,1000)", "tp_size=1,2"],
        ["tp_size=shuffle(range(0,2000000))"],
    ],
)
def test_no_sweep_lists_more_points_than_the_limit(typed: list[str]) -> None:
    axes = [found for word in typed if (found := axis(word)) is not None]
    with pytest.raises(ConfigError) as failure:
        check_points(axes)
    assert failure.value.findings[0].id == "SWP002"
    assert typed[0] in failure.value.findings[0].message


@pytest.mark.parametrize("place", ["sweep.params", "sweep=wide", "hydra.sweeper.params"])
def test_a_file_gives_fewer_points_than_typed_lists(place: str) -> None:
    of_file = axis_of(Request(f"port=range(0,{MOST_OF_FILES})", place, KEPT), lambda group: ())
    one_more = axis_of(Request(f"port=range(0,{MOST_OF_FILES + 1})", place, KEPT), lambda group: ())
    assert of_file is not None
    assert one_more is not None
    check_points([of_file, axis("tp_size=1,2")])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=f"more than {MOST_OF_FILES:,} points of a file"):
        check_points([one_more])


def test_the_last_point_of_the_limit_is_listed() -> None:
    found = axis(f"port=range(0,{MOST_POINTS})")
    assert found is not None
    check_points([found])
    with pytest.raises(ConfigError):
        zipped([axis("port=range(0,1000000000)"), axis("tp_size=1,2")], [["port", "tp_size"]])  # type: ignore[list-item]
