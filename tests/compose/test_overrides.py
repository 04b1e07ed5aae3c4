"""What was typed: every trap of the override grammar is caught, says what is wrong, and says what to type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.compose.grammar import as_override, literal, quoted, unescaped
from sglang_hydra.compose.overrides import Request, read_requests
from sglang_hydra.text.words import nearest, number
from tests.plans import H200, composed, composer, planned, refused

# What is typed after a valid plan; the id of its only finding; what the message and the hint say.
TRAPS = [
    # no key=value
    ("plan", "CLI004", "'plan' is a verb, and the verb comes first", "sglang-hydra plan"),
    ("enable_dp_attention", "CLI004", "'enable_dp_attention' has no value", "enable_dp_attention=true"),
    ("tp_size", "CLI004", "'tp_size' has no value", "tp_size=1"),
    ("deepseek_v3", "CLI004", "'deepseek_v3' is no key=value", "model=deepseek_v3"),
    ("h100", "CLI004", "'h100' is no key=value", "gpu=h100"),
    ("gibberish", "CLI004", "'gibberish' is no key=value", "--help"),
    ("=8", "CLI004", "'=8' has no key", "without spaces"),
    ("=", "CLI004", "'=' has no key", "without spaces"),
    ("gpu", "CLI004", "'gpu' has no value", "gpu=h100"),
    ("engine", "CLI004", "'engine' has no value", "engine=auto"),
    ("gpu:h100", "CLI004", "'gpu:h100' is no key=value", "gpu=h100"),
    ("tp_size:8", "CLI004", "'tp_size:8' is no key=value", "tp_size=8"),
    ("--gpu=h100", "CLI004", "--gpu: arguments are typed", "gpu=h100;"),
    ("--model=gpt_oss", "CLI004", "--model: arguments are typed", "model=gpt_oss;"),
    ("--model=org/name", "CLI004", "--model: arguments are typed", "model_path=org/name;"),
    ("config.yaml", "CLI004", "'config.yaml' is no key=value", "sglang-hydra check config.yaml"),
    ("dtype=fp16", "CLI002", "dtype='fp16' is not one of auto,", "dtype=float16"),
    ("tp size=8", "CLI004", "'tp size' cannot be a key", "tp_size=8"),
    # dashes
    ("--tp-size=8", "CLI004", "without dashes", "tp_size=8; or SGLang's own flags go after a bare --"),
    ("--tp-size", "CLI004", "without dashes", "tp_size=1"),
    ("--tp=8", "CLI004", "without dashes", "tp_size=8"),
    ("--tensor-parallel-size=8", "CLI004", "without dashes", "tp_size=8"),
    ("--trust-remote-code", "CLI004", "without dashes", "trust_remote_code=true"),
    ("served_model_name=a\0b", "CLI002", "has a zero byte in it", None),
    ("model=~\ud800/x\0", "CLI002", "model_path has a zero byte", None),
    ("gpu.name=a\0b", "CLI002", "gpu.name='a\\x00b' is not text", None),
    ("-0\0$", "CLI004", "without dashes", None),
    ("--../conf=x", "CLI004", "--../conf: arguments are typed", None),
    ("--jsn", "CLI004", "--jsn is no flag", "--json"),
    ("-x", "CLI004", "without dashes", "bare --"),
    ("--api-key=sekret", "CLI004", "--api-key: arguments are typed", "api_key=VALUE"),
    # deleting
    ("~tp_size", "CLI005", "~tp_size: an argument cannot be deleted", "leave tp_size out, or type SGLang's default"),
    ("~gpu.count", "CLI005", "cannot be deleted", "gpu.count=null"),
    ("~tpsize", "CLI001", "'tpsize' is neither an argument of SGLang nor", "did you mean tp_size?"),
    # unknown names
    ("tpsize=8", "CLI001", "'tpsize' is neither an argument of SGLang nor", "tp_size=8"),
    ("+tpsize=8", "CLI001", "+ would add a key that nothing reads", "tp_size=8"),
    ("TP_SIZE=8", "CLI001", "'TP_SIZE'", "tp_size=8"),
    ("tp-size=8", "CLI001", "'tp-size'", "tp_size=8"),
    ("gpus=h100", "CLI001", "'gpus'", "gpu=h100"),
    ("tp_size.x=8", "CLI001", "'tp_size.x'", "tp_size"),
    ("zzzzzz=8", "CLI001", "'zzzzzz'", "--help WORD"),
    ("gpu.counts=4", "CLI001", "gpu has no key 'counts'", "gpu.count=4; or gpu has count, "),
    ("gpu={count: 3, foo: 4}", "CLI001", "gpu has no key 'foo'", None),
    ("launch.force.x=1", "CLI001", "launch.force is true or false and has no key 'x'", "launch.force=..."),
    ("tp_size@x=3", "CLI006", "'tp_size' is not a config group", "--help"),
    ("experiment=mine", "CLI006", "there is no config group experiment", "--config-dir FOLDER experiment=NAME"),
    ("+experiment=mine", "CLI006", "there is no config group experiment", "--config-dir"),
    # unknown options
    ("gpu=h1000", "CLI006", "gpu=h1000 does not exist", "gpu=h100; or gpu can be: h100, "),
    ("gpu=H100", "CLI006", "does not exist", "gpu=h100; or gpu can be: "),
    ("model=deepseek", "CLI006", "does not exist", "model=deepseek_r1; or model=deepseek_v3"),
    ("model=nothing_like_it", "CLI006", "does not exist", "model=org/name, model=./folder"),
    ("engine=vllm", "CLI006", "engine=vllm does not exist", "engine can be: auto, sglang, transformers"),
    ("gpu=[h100]", "CLI006", "gpu=[h100] does not exist", "gpu=h100"),
    # several values for one
    ("tp_size=1,2,4", "CLI007", "tp_size takes one value, and several were given", "bench -m ... tp_size=1,2,4"),
    ("tp_size=choice(1,2)", "CLI007", "several were given", "bench -m"),
    ("tp_size=range(1,4)", "CLI007", "several were given", "bench -m"),
    ("attention_backend=fa3,triton", "CLI007", "several were given", "bench -m"),
    ("gpu=glob(h*)", "CLI007", "gpu takes one option, and several were given", "bench -m ... gpu=glob(h*)"),
    ("gpu=h100,h2000", "CLI006", "gpu=h100,h2000 does not exist", "h100"),
    ("gpu=h100,h200", "CLI007", "gpu takes one option, and several were given", "bench -m ... gpu=h100,h200"),
    ("cuda_graph_bs=1,2,4", "CLI007", "a list needs brackets", "cuda_graph_bs=[1,2,4]"),
    ("launch.stop_timeout=1,2", "CLI007", "several were given", "bench -m"),
    # wrong types
    ("tp_size=x", "CLI002", "tp_size='x' is not an int", "tp_size=1"),
    ("tp_size=8.0", "CLI002", "tp_size=8.0 is not an int", None),
    ("tp_size='8'", "CLI002", "tp_size='8' is not an int", None),
    ("tp_size=true", "CLI002", "tp_size=true is not an int", None),
    ("tp_size=", "CLI002", "tp_size='' is not an int", None),
    ("tp_size=null", "CLI002", "tp_size=null: it cannot be null, it is int", "leave it out for SGLang's default, 1"),
    ("mem_fraction_static=lots", "CLI002", "mem_fraction_static='lots' is not a float", "mem_fraction_static=0.8"),
    ("trust_remote_code=yes", "CLI002", "trust_remote_code='yes' is not a bool", "trust_remote_code=true"),
    ("trust_remote_code=0", "CLI002", "trust_remote_code=0 is not a bool", "trust_remote_code=false"),
    (
        "attention_backend=fa9",
        "CLI002",
        "attention_backend='fa9' is not among its ",
        "attention_backend takes fa4, fa3, ",
    ),
    ("cuda_graph_bs=[1,x]", "CLI002", "cuda_graph_bs='x' is not an int", None),
    ("cuda_graph_bs_decode=8", "CLI002", "cuda_graph_bs_decode=8 is not", "cuda_graph_bs_decode="),
    ("gpu.count=many", "CLI002", "gpu.count='many' is not an int", None),
    ("launch.force=maybe", "CLI002", "launch.force='maybe' is not true or false", None),
    ("ignore=[1,null]", "CLI002", "ignore=null: it must be text", None),
    ("gpu={count: x}", "CLI002", "gpu.count='x' is not an int", None),
    ("launch.ready_timeout=null", "CLI002", "launch.ready_timeout=null: it must be a number", None),
    # JSON
    ('json_model_override_args={"a" 1}', "CLI002", "is not JSON: Expecting ':' delimiter at line 1, column 6", None),
    ("json_model_override_args={a: 1}", "CLI002", "Expecting property name", None),
    ("json_model_override_args=" + "9" * 5000, "CLI002", "is not JSON that can be read", None),
    ("json_model_override_args=[1]", "CLI002", "must be a JSON object", None),
    # what the grammar cannot read
    ("lora_paths=[a=b]", "CLI003", "the value cannot be read", "lora_paths=['sql=/adapters/sql']"),
    ("cuda_graph_bs=[1", "CLI003", "a closing bracket is missing", "'cuda_graph_bs=[1]'"),
    ("model_path=a${b", "CLI003", "the value cannot be read", "a literal ${ is written \\${"),
    ("cuda_graph_bs=" + "[" * 3000 + "]" * 3000, "CLI003", "it is nested too deeply", None),
    ("port=" + "9" * 5000, "CLI003", "the value cannot be read", None),
    # what only composing can tell
    ("tp_size=${nope}", "CLI008", "argument 3: tp_size: Interpolation key 'nope' not found", None),
    ("tp_size=${tp_size}", "CLI008", "argument 3: tp_size: Recursive interpolation", None),
    ("tp_size=${oc.env:NOT_SET_ANYWHERE}", "CLI008", "Environment variable 'NOT_SET_ANYWHERE' not found", None),
    ("attention_backend=${gpu.name}", "CLI002", "argument 3: attention_backend=${gpu.name}: ", None),
    ("tp_size=${gpu.name}", "CLI008", "argument 3: tp_size: ", None),
    # facts that no GPU has
    ("gpu.compute_capability=nine", "FCT002", "gpu.compute_capability='nine' is not MAJOR.MINOR", "9.0"),
    ("gpu.memory_mib=-1", "FCT002", "gpu.memory_mib=-1.0 is no size", None),
    ("gpu.memory_mib=nan", "FCT002", "gpu.memory_mib=nan is no size", None),
    ("gpu.vendor=nvdia", "FCT002", "gpu.vendor='nvdia' is not one of nvidia, amd,", "gpu.vendor=nvidia"),
    ("gpu.device=gpu", "FCT002", "gpu.device='gpu' is not one of cuda,", None),
    ("gpu.count=-1", "FCT002", "gpu.count=-1 is no number of GPUs", None),
    (r"model.args=\${x}", "CLI002", "argument 3: model.args='${x}' is not a mapping", None),
    ("gpu.args=${gpu.name}", "CLI002", "argument 3: gpu.args='h200' is not a mapping", None),
    ("gpu.count=${gpu.name}", "CLI008", "argument 3: gpu.count: ", None),
    ("engine.env={A-B: x}", "CLI020", "engine.env.A-B cannot be set", None),
]


@pytest.mark.parametrize(("typed", "id", "message", "hint"), TRAPS, ids=lambda value: str(value)[:50])
def test_a_trap_is_caught_with_what_to_type(typed: str, id: str, message: str, hint: str | None) -> None:
    findings = refused(*H200, typed)
    assert [finding.id for finding in findings] == [id]
    assert findings[0].level == "error"
    assert message in findings[0].message
    assert hint is None or hint in (findings[0].hint or "")
    assert len(findings[0].message) < 1000


# What looks odd and is fine: the arguments that it sets, beside the model.
FINE: list[tuple[str, dict[str, Any]]] = [
    ("served_model_name=a=b=c", {"served_model_name": "a=b=c"}),
    ("served_model_name={{x}}", {"served_model_name": "{{x}}"}),
    ("served_model_name=a,b", {"served_model_name": "a,b"}),
    ("served_model_name=off", {"served_model_name": "off"}),
    ("served_model_name=8", {"served_model_name": "8"}),
    ("served_model_name=choice(a,b)", {"served_model_name": "choice(a,b)"}),
    ("served_model_name= padded ", {"served_model_name": " padded "}),
    ("served_model_name='null'", {"served_model_name": "null"}),
    ("served_model_name=null", {"served_model_name": None}),
    ("served_model_name=it's", {"served_model_name": "it's"}),
    ("served_model_name=", {"served_model_name": ""}),
    ("served_model_name=(((", {"served_model_name": "((("}),
    ("served_model_name=~\ud800", {"served_model_name": "~\ud800"}),
    ("tokenizer_path=~\ud800/x", {"tokenizer_path": "~\ud800/x"}),
    ("served_model_name=a\nb", {"served_model_name": "a\nb"}),
    ("served_model_name=C:\\models\\", {"served_model_name": "C:\\models\\"}),
    (r"served_model_name='a\${b}'", {"served_model_name": "a${b}"}),
    ('json_model_override_args={"a": [1, {"b": null}]}', {"json_model_override_args": '{"a": [1, {"b": null}]}'}),
    ("+tp_size=2", {"tp_size": 2}),
    ("++tp_size=2", {"tp_size": 2}),
    ("tp_size=${gpu.count}", {"tp_size": 8}),
    ("tp_size=${dp_size}", {"tp_size": 1}),
    ("mem_fraction_static=1", {"mem_fraction_static": 1}),
    ("cuda_graph_bs=[]", {"cuda_graph_bs": []}),
    ("lora_paths=['a=b']", {"lora_paths": ["a=b"]}),
    ("lora_paths={a: b}", {"lora_paths": {"a": "b"}}),
    ("model.args.tp_size=2", {"tp_size": 2}),
    ("model.args={tp_size: 2}", {"tp_size": 2}),
    ("gpu.args={tp_size: 2}", {"tp_size": 2}),
]


@pytest.mark.parametrize(("typed", "sets"), FINE, ids=lambda value: str(value)[:50])
def test_text_is_taken_as_it_was_typed(typed: str, sets: dict[str, Any]) -> None:
    assert composed(*H200, typed).intent == {"model_path": "Qwen/Qwen3-8B", **sets}


@pytest.mark.parametrize(
    ("typed", "group", "choice"),
    [
        ("gpu=null", "gpu", "none"),
        ("gpu=", "gpu", "none"),
        ("model=null", "model", "unset"),
        ("engine=null", "engine", "auto"),
        ("launch=null", "launch", "local"),
        ("gpu='h100'", "gpu", "h100"),
        ("gpu={count: 3}", "gpu", "h200"),
    ],
)
def test_no_choice_of_a_group_is_no_riddle(typed: str, group: str, choice: str) -> None:
    assert composed(*H200, typed).choices[group] == choice


@pytest.mark.parametrize(
    ("typed", "node", "key", "value"),
    [
        ("gpu={count: 3}", "gpu", "count", 3),
        ("gpu.count=3", "gpu", "count", 3),
        ("+gpu.count=3", "gpu", "count", 3),
        ("gpu.compute_capability=9.0", "gpu", "compute_capability", "9.0"),
        ("model.config.hidden_size=3", "model", "config", 3),
        ("engine.env.A=1", "engine", "env", {"A": "1"}),
        ("engine.env={A: 1, B: x}", "engine", "env", {"A": "1", "B": "x"}),
        ("engine.python=/a b/python", "engine", "python", "/a b/python"),
    ],
)
def test_the_keys_of_a_node_take_what_its_schema_says(typed: str, node: str, key: str, value: Any) -> None:
    found = composed(*H200, typed).nodes.plain[node][key]
    assert (found["hidden_size"] if key == "config" else found) == value


@pytest.mark.parametrize(
    "typed", ["ignore=CFG004", "ignore=[CFG004]", "ignore=CFG004,GPU001", "ignore=[CFG004,GPU001]"]
)
def test_ignore_takes_one_id_or_a_list(typed: str) -> None:
    assert composed(*H200, typed).nodes.ignore[0] == "CFG004"


def test_a_model_can_be_a_hub_id_or_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weights ${x}").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    cases = {
        "model=org/name": "org/name",
        "model=./weights ${x}": None,
        "model='org/name'": "org/name",
        "model=~/mine": f"{tmp_path}/mine",
        "model=s3://bucket/name": "s3://bucket/name",
        "model_path=~/mine": f"{tmp_path}/mine",
    }
    for typed, path in cases.items():
        if path is not None:
            assert composed("gpu=h200", typed).intent["model_path"] == path, typed
    (tmp_path / "plain").mkdir()
    assert composed("gpu=h200", "model=plain").intent["model_path"] == "plain"


@pytest.mark.parametrize("typed", ["disaggregation_mode=null", "disaggregation_mode='null'"])
def test_null_is_a_word_where_it_is_a_choice(typed: str) -> None:
    assert composed(*H200, typed).intent["disaggregation_mode"] == "null"


@pytest.mark.parametrize("prefix", ["+", "++"])
def test_a_group_that_is_added_once_more_is_told_how_to_choose(prefix: str) -> None:
    (finding,) = refused(f"{prefix}gpu=h200", "model=gpt_oss")
    assert finding.hint == f"without the {prefix}: gpu=h200"


def test_a_flag_and_the_word_after_it_are_one_mistake() -> None:
    findings = refused(*H200, "--tp-size", "8", "--api-key", "sekret", "--dp", "--pp", "2")
    assert [finding.hint.partition(";")[0] for finding in findings if finding.hint] == [
        "tp_size=8",
        "api_key=VALUE",
        "such as dp_size=1",
        "pp_size=2",
    ]
    assert "sekret" not in repr(findings)


def test_all_mistakes_of_a_line_are_reported_together() -> None:
    findings = refused("gpu=h1000", "model=nope", "tpsize=8", "tp_size=x", "plan", "~page_size", "cuda_graph_bs=[1")
    assert [finding.id for finding in findings] == [
        "CLI006",
        "CLI006",
        "CLI001",
        "CLI002",
        "CLI004",
        "CLI005",
        "CLI003",
    ]


def test_the_later_of_two_wins() -> None:
    assert composed(*H200, "tp_size=2", "tp_size=4").intent["tp_size"] == 4
    assert composed(*H200, "gpu=h100").choices["gpu"] == "h100"


def test_overrides_of_hydra_itself_are_left_to_hydra() -> None:
    assert composed(*H200, "hydra.run.dir=/nowhere", "+hydra.job.env_set.A=1", "hydra/launcher=joblib").intent == {
        "model_path": "Qwen/Qwen3-8B"
    }


def test_a_key_is_never_shown() -> None:
    for typed in ("api_key=sekret", "+api_key=sekret", "api_key='sekret'", "model.args.api_key=sekret"):
        made = composed(*H200, typed)
        assert made.secrets == {"api_key": "sekret"}
        assert "sekret" not in repr(made)
        assert "sekret" not in repr(composer().canonical([Request(t, "") for t in (*H200, typed)]))
    assert composed(*H200, "api_key=${oc.env:HOME}").secrets["api_key"] != "${oc.env:HOME}"
    assert composed(*H200, "api_key=null").intent["api_key"] is None
    assert "sekret" not in repr(refused(*H200, "api_key=sekret", "tp_size=x"))


def test_one_word_instead_of_a_list_is_told_apart() -> None:
    import sglang_hydra

    with pytest.raises(TypeError, match="list of words"):
        sglang_hydra.plan("gpu=h200")


# Quoting

TEXT = st.text(
    st.sampled_from("\\'\"${}=,:()[] \n\tabé日\x1b:@#%!?*~`&;|<>") | st.characters(min_codepoint=1), max_size=12
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.from_regex(r"[a-zA-Z_]\w{0,5}", fullmatch=True).filter(str.isascii), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(TEXT)
@settings(max_examples=400, deadline=None)
def test_quoted_text_comes_back_as_it_was(text: str) -> None:
    if "${" not in text:
        assert OverridesParser.create().parse_override(f"key={quoted(text)}").value() == text


@given(VALUES)
@settings(max_examples=300, deadline=None)
def test_any_value_survives_the_override_grammar_and_interpolation(value: Any) -> None:
    try:
        text = as_override("key", value)
    except ValueError:  # a mapping's key that reads as another type
        assert isinstance(value, (dict, list))
        return
    parsed = OverridesParser.create().parse_override(text)
    assert parsed.key_or_group == "key"
    assert OmegaConf.to_container(OmegaConf.create({"key": parsed.value()}), resolve=True) == {"key": value}


@given(VALUES)
@settings(max_examples=300, deadline=None)
def test_a_literal_value_is_never_interpolated(value: Any) -> None:
    assert OmegaConf.to_container(OmegaConf.create({"key": literal(value)}), resolve=True) == {"key": value}
    assert unescaped(literal(value)) == value


@given(TEXT)
@settings(max_examples=200, deadline=None)
def test_a_typed_value_reaches_the_plan_as_it_is(text: str) -> None:
    request = Request.typed("served_model_name", text, "argument 1 after --")
    made = composer().compose([Request("gpu=h200", "argument 1"), request])
    assert made.intent["served_model_name"] == text
    assert made.origins["served_model_name"][-1].value == text


def test_a_typed_value_of_every_field_is_judged_like_typed_text() -> None:
    for name in FIELDS:
        findings = read_requests([Request.typed(name, object, "place")], group_options=lambda group: ())[1]
        assert [finding.id for finding in findings] == ["CLI002"], name


# Small words


@pytest.mark.parametrize(
    ("typed", "names", "meant"),
    [
        ("TpSize", ["tp_size", "dp_size"], "tp_size"),
        ("tp-size", ["tp_size", "dp_size"], "tp_size"),
        ("tp_sise", ["tp_size", "page_size"], "tp_size"),
        ("zzz", ["tp_size"], None),
        ("", ["tp_size"], None),
    ],
)
def test_the_nearest_name_ignores_case_and_separators(typed: str, names: list[str], meant: str | None) -> None:
    assert nearest(typed, names) == meant


@pytest.mark.parametrize(
    ("value", "shown"), [(143771.0, "143771"), (0.5, "0.5"), (8, "8"), (None, "None"), (float("nan"), "nan")]
)
def test_a_whole_float_is_written_without_its_point(value: Any, shown: str) -> None:
    assert number(value) == shown


def test_planning_is_deterministic_and_the_order_of_overrides_does_not_matter() -> None:
    typed = ["gpu=h100", "model=llama_3_1_8b", "tp_size=2", "enable_dp_attention=true", "dp_size=2", "gpu.count=4"]
    first = planned(*typed)
    assert planned(*reversed(typed)).values == first.values
    assert planned(*typed).to_json() == first.to_json()
