"""sweep.where: what it computes, what it refuses and at which column, and that nothing in it is executed."""

from __future__ import annotations

import ast
import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_hydra.measure.sweep.where import Uncomputable, check_keys, read_where, value_of
from sglang_hydra.text.errors import ConfigError
from tests.plans import planned

VALUES: dict[str, Any] = {
    "tp_size": 8,
    "pp_size": 2,
    "mem_fraction_static": 0.85,
    "enable_dp_attention": True,
    "model_path": "org/x-FP8",
    "gpu.count": 8,
    "gpu.name": "h100",
    "bench.concurrency": 64,
    "fit.fits": None,
    "quantization": None,
}


def holds(text: str) -> bool:
    return read_where(text).holds(lambda key: VALUES[key])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tp_size * pp_size <= gpu.count", False),
        ("tp_size*pp_size<=gpu.count*2", True),
        ("2 * tp_size // 3 == 5 and tp_size % 3 == 2 and tp_size / 16 == 0.5", True),
        ("tp_size ** 2 == 64 and 2 ** -1 == 0.5", True),
        ("tp_size - 3 > +4 and -tp_size < 0", True),
        ("1 < tp_size <= 8", True),
        ("1 < tp_size < 8", False),
        ("gpu.name == 'h100' or tp_size < 4", True),
        ("not (gpu.name == 'h100')", False),
        ("gpu.name in ['h100', 'b200'] and tp_size not in (1, 2)", True),
        ("'FP8' in model_path", True),
        ("enable_dp_attention and bench.concurrency >= 64", True),
        ("enable_dp_attention == true and quantization == null", True),
        ("quantization != None and quantization > 5", False),
        ("fit.fits == null", True),
        ("tp_size == 8.0", True),
        ("  tp_size\n   == 8 ", True),
        ("false", False),
    ],
)
def test_a_constraint_is_computed(text: str, expected: bool) -> None:
    assert holds(text) is expected


@pytest.mark.parametrize(
    ("text", "column", "said", "hint"),
    [
        ("tp_size = 8", 9, "= is written ==", "=="),
        ("5", 1, "a number is neither true nor false", "tp_size == 8"),
        ("'fa3'", 1, "a text is neither", "tp_size == 8"),
        ("tp_size == 1, tp_size == 2", 1, "a list is neither", "and, or"),
        ("tp_size == 1 or tp_size * 2", 17, "a number is neither", "tp_size == 8"),
        ("not [tp_size]", 5, "a list is neither", "and, or"),
        ("tp_size == 8 && true", 14, "&& is written and", "and"),
        ("tp_size == 8 || true", 14, "|| is written or", "or"),
        ("! enable_dp_attention", 1, "! is written not", "not"),
        ("tp_size & 1", 1, "tp_size & 1 is not part", "and, or"),
        ("tp_size ==", 11, "invalid syntax", "keys like"),
        ("(tp_size == 8", 1, "never closed", "keys like"),
        ("", 1, "", "keys like"),
        ("len(model_path) > 3", 1, "len(model_path) is not part", "keys like"),
        ("tp_size == 8 and __import__('os').system('touch /tmp/x')", 18, "__import__('os').sys", "keys like"),
        ("model_path[0] == 'o'", 1, "model_path[0] is not part", "keys like"),
        ("tp_size if true else 1", 1, "tp_size if true else 1 is not part", "keys like"),
        ("lambda: true", 1, "lambda: true is not part", "keys like"),
        ("[x for x in (1, 2)] == 1", 1, "[x for x in (1, 2)] is not part", "keys like"),
        ("f'{tp_size}' == '8'", 1, "f'{tp_size}' is not part", "keys like"),
        ("(x := 8) == 8", 2, "x := 8 is not part", "keys like"),
        ("~tp_size == 1", 1, "~tp_size is not part", "not"),
        ("tp_size is null", 1, "tp_size is null is not part", "== and !="),
        ("'é' == 'é' and foo() == 1", 16, "foo() is not part", "keys like"),
        ("1j == 1", 1, "is no number", ""),
        ("'x'.upper == 1", 1, "written as gpu.count", "keys like"),
        (f"{'9' * 100} > 1", 1, "too large", ""),
        (f"{'9' * 5000} > 1", 1, "longer than", ""),
        ("(" * 150 + "1" + ")" * 150 + " > 0", 1, "", ""),
        ("not " * 300 + "true", 1, "", ""),
        ("tp_size == 8\0", 1, "", ""),
    ],
)
def test_what_is_no_constraint_is_refused_with_its_column(text: str, column: int, said: str, hint: str) -> None:
    try:
        found = read_where(text)
    except ConfigError as failure:
        (finding,) = failure.findings
        assert (finding.id, finding.fields) == ("SWP005", ("sweep.where",))
        if said:
            assert f"column {column}," in finding.message
            assert said in finding.message
        assert hint in (finding.hint or "")
    else:
        # How deeply Python reads brackets differs between its versions; nothing may break.
        assert text.startswith("(" * 9), text
        assert found.holds(lambda key: VALUES[key])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2 ** 99999999 > 1", "too large a power"),
        ("9 ** 9 ** 9 > 1", "too large a power"),
        ("tp_size ** tp_size ** tp_size > 1", "too large a power"),
        ("2 ** 255 * 2 ** 255 > 1", "no number that can be used"),
        ("(0 - 8) ** 0.5 > 1", "no number"),
        ("1 / 0 > 1", "division by zero"),
        ("1e308 ** 2 > 1", "too large a power"),
        ("model_path * 9 == 1", "needs numbers"),
        ("model_path + 'x' == 1", "needs numbers"),
        ("enable_dp_attention + 1 == 2", "needs numbers"),
        ("quantization + 1 == 2", "not known"),
        ("quantization > 1", "not known"),
        ("model_path < 3", "cannot be compared"),
        ("3 in tp_size", "cannot be compared"),
        ("tp_size and true", "need true or false"),
        ("not tp_size", "need true or false"),
        ("tp_size", "neither true nor false"),
    ],
)
def test_what_has_no_value_for_a_point_says_so(text: str, said: str) -> None:
    with pytest.raises(Uncomputable, match=said):
        holds(text)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="tp_size gpu.count()[]{}<>=!&|*/+-%,'\"0189andorti\\\n", max_size=40))
def test_any_text_is_computed_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError, Uncomputable, KeyError):
        holds(text)


NUMBERS = st.recursive(
    st.one_of(st.integers(-9, 9).map(str), st.sampled_from(["tp_size", "pp_size", "gpu.count"])),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(" ".join).map("({})".format),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(NUMBERS, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), NUMBERS)
def test_arithmetic_is_pythons(left: str, sign: str, right: str) -> None:
    text = f"{left} {sign} {right}"
    names = {"tp_size": 8, "pp_size": 2, "gpu": type("gpu", (), {"count": 8})}
    try:
        expected = eval(compile(ast.parse(text, mode="eval"), "where", "eval"), {"__builtins__": {}}, names)
    except ZeroDivisionError:
        with pytest.raises(Uncomputable):
            holds(text)
    else:
        assert holds(text) is expected


# The keys


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("tpsize", "did you mean tp_size?"),
        ("gpus.count", "did you mean gpu?"),
        ("gpu.cont", "did you mean gpu.count?"),
        ("gpu", "gpu.name"),
        ("bench.concurency", "did you mean bench.concurrency?"),
        ("bench.slo", "bench.slo.ttft_ms"),
        ("fit.fit", "did you mean fit.fits?"),
        ("sweep.name", None),
        ("fa3", "'fa3' in quotes"),
        ("tp_size.real", "tp_size"),
        ("replicas.more", "replicas"),
        ("engine.version.major", "version"),
    ],
)
def test_a_key_that_no_plan_has_is_refused(key: str, hint: str | None) -> None:
    with pytest.raises(ConfigError) as failure:
        check_keys(read_where(f"tp_size == 8 and {key} == 1"))
    (finding,) = failure.value.findings
    assert "column 18," in finding.message
    assert hint is None or hint in str(finding.hint)


def test_a_constraint_sees_what_was_planned() -> None:
    made = planned("gpu=h200", "model=qwen3_8b", "tp_size=2", "bench.concurrency=4")
    bench = made.nodes.plain["bench"]
    expected = {
        "tp_size": 2,
        "sampling_backend": "flashinfer",
        "chunked_prefill_size": 8192,
        "gpu.count": 8,
        "gpu.name": "h200",
        "gpu.memory_mib": 143771,
        "gpu.compute_capability": 9.0,
        "gpu.memory_bandwidth_gbps": 4800,
        "model.config.num_hidden_layers": 36,
        "model.config.nothing": None,
        "model.name": "qwen3_8b",
        "engine.name": "auto",
        "fit.fits": True,
        "fit.reserved_gib": 0.0,
        "fit.gpus": 2,
        "bench.concurrency": 4,
        "bench.slo.ttft_ms": None,
        "quantization": None,
        "replicas": None,
    }
    check_keys(read_where(" and ".join(f"{key} == 1" for key in expected)))
    assert {key: value_of(key, made, bench) for key in expected} == expected
    assert value_of("fit.kv_tokens", made, bench) > 10**5
    for key in ("fit.weights_gib", "fit.left_gib", "fit.error_gib", "fit.mem_fraction_low", "fit.mem_fraction_high"):
        assert isinstance(value_of(key, made, bench), float)


def test_what_the_fit_does_not_know_is_not_known() -> None:
    made = planned("gpu=none", "model=qwen3_8b")
    assert value_of("fit.fits", made, made.nodes.plain["bench"]) is None
    assert value_of("gpu.compute_capability", made, made.nodes.plain["bench"]) is None
