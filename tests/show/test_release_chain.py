"""The chain of changes that a release's own code made to an argument, as people and programs read it."""

from __future__ import annotations

import pytest

from sglang_hydra.arguments.tables.table import release
from sglang_hydra.releases import asking
from sglang_hydra.releases.reasons import Quote
from sglang_hydra.releases.recorded import recorded_answer
from sglang_hydra.rules.answer import Answer, Change, Condition, Step
from sglang_hydra.show import argument as release_chain
from tests.commands import Run, runner, valid
from tests.for_0_5_2 import plans_are_for_0_5_2 as plans_are_for_0_5_2

FILE = "sglang/srt/server_args.py"
SET = Step(
    FILE,
    20,
    "settle",
    {"free": 0.9},
    (Condition(FILE, 18, True, {"self.fraction": None}), Condition(FILE, 10, False, {"is_cpu()": False})),
    (Step(FILE, 15, "room", {}),),
)
VALUES = {name: each.default for name, each in release("0.5.18").arguments.items()}
CHANGES = (Change("mem_fraction_static", None, 0.9, SET), Change("tp_size", 1, 2, None))
ANSWER = Answer(True, {**VALUES, "mem_fraction_static": 0.9, "tp_size": 2}, changes=CHANGES)
REFUSAL = Answer(False, stage="check", error="ValueError: no", check=SET)
PLAN = ("engine.version=0.5.18", "gpu=h200", "model=llama_3_1_8b")


@pytest.fixture(autouse=True)
def answer(monkeypatch: pytest.MonkeyPatch) -> list[Answer]:
    """What the release answers; a wheel that is not here to be quoted."""
    found = [ANSWER]
    monkeypatch.setattr(asking, "recorded_answer", lambda record, case, why: found[-1])
    monkeypatch.setattr(release_chain, "quote", lambda version, step: None)
    return found


@pytest.fixture
def unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "recorded_answer", lambda record, case, why: None)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def chain(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line]
    return lines[next(at for at, line in enumerate(lines) if line.startswith("By the code of")) :]


def test_each_change_has_its_place_its_conditions_and_their_operands(run: Run) -> None:
    assert chain(run("explain", "mem_fraction_static", *PLAN).out) == [
        "By the code of SGLang 0.5.18",
        "  null -> 0.9",
        f"    {FILE}:20  settle",
        "      with free = 0.9",
        "      if line 18: self.fraction = null",
        "      not if line 10: is_cpu() = false",
        "      the value comes from",
        f"        {FILE}:15  room",
        "  reasons are recorded in part; sglang-hydra release fetch 0.5.18 for every statement",
    ]


@pytest.mark.parametrize("is_here", [True, False])
def test_recorded_reasons_are_complete_only_with_the_wheel(
    is_here: bool, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ANSWER._replace(changes=(*CHANGES, Change("mem_fraction_static", 0.9, 0.8, SET)))
    monkeypatch.setattr(release_chain, "with_all_reasons", lambda answer, *_: more if is_here else answer)
    record = valid("explain", run("explain", "mem_fraction_static", *PLAN, "--json").out)["release"]
    assert (record["complete"], len(record["changes"])) == (is_here, 1 + is_here)
    assert ("recorded in part" in run("explain", "mem_fraction_static", *PLAN).out) is not is_here


def test_the_wheels_own_words_are_quoted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    quoted = Quote(("self.fraction is None", "is_cpu()"), "self.fraction = free", "Most of it.")
    monkeypatch.setattr(release_chain, "quote", lambda version, step: quoted if step is SET else None)
    text = run("explain", "mem_fraction_static", *PLAN).out
    assert "      self.fraction = free\n" in text
    assert "      if self.fraction is None (line 18): self.fraction = null\n" in text
    assert "      not if is_cpu() (line 10): is_cpu() = false\n" in text
    assert '      "Most of it."\n' in text


def test_a_refusal_shows_its_check(run: Run, answer: list[Answer]) -> None:
    answer.append(REFUSAL)
    lines = chain(run("explain", "tp_size", *PLAN).out)
    assert lines[1:3] == ["  it refuses: ValueError: no", f"    {FILE}:20  settle"]


@pytest.mark.parametrize(
    ("name", "told"),
    [("tp_size", "by an unobserved statement"), ("host", "it changes nothing: the value was given")],
)
def test_what_has_no_reason_says_so(name: str, told: str, run: Run) -> None:
    assert told in run("explain", name, *PLAN).out


@pytest.mark.usefixtures("unanswered")
def test_without_the_wheel_it_says_how_to_get_it(run: Run) -> None:
    text = " ".join(run("explain", "tp_size", "engine.version=0.5.19", *PLAN[1:]).out.split())
    assert "not asked: its wheel is not here (" in text
    assert "release fetch 0.5.19" in text


@pytest.mark.usefixtures("unanswered")
@pytest.mark.parametrize("name", ["mem_fraction_static", "attention_backend", "page_size"])
def test_a_value_that_nobody_was_asked_for_is_unknown(name: str, run: Run) -> None:
    text = run("explain", name, *PLAN).out
    assert text.startswith(f"{name}: unknown, SGLang 0.5.18 decides\n")
    assert valid("explain", run("explain", name, *PLAN, "--json").out)["value"] is None


def test_an_old_name_shows_what_became_of_it(run: Run) -> None:
    text = run("explain", "cuda_graph_max_bs", "engine.version=0.5.23", *PLAN[1:]).out
    assert "it is cuda_graph_max_bs_decode there" in text


LATER = (
    (("dcp_size",), "dcp_size\n", "--decode-context-parallel-size"),
    (("--dcp-size",), "--dcp-size on SGLang's command line is the argument dcp_size\n", "default  1"),
    (("dcp_size=2", "engine.version=0.5.18", *PLAN[1:]), "dcp_size", "cli     2  argument 2"),
    (("attention_backend", "engine.version=0.5.23"), "attention_backend", "cutedsl_mla"),
)


@pytest.mark.parametrize(("words", "first", "part"), LATER, ids=lambda item: str(item)[:40])
def test_an_argument_is_shown_as_its_release_has_it(words: tuple[str, ...], first: str, part: str, run: Run) -> None:
    done = run("explain", *words)
    assert done.out.startswith(first)
    assert part in done.out


def test_an_argument_that_the_release_does_not_have(run: Run) -> None:
    done = run("explain", "dcp_size", "gpu=h200")
    assert done.code == 2
    assert "dcp_size is an argument of SGLang 0.5.15, and 0.5.2 does not have it" in done.out + done.err
    assert "explain dcp_size engine.version=0.5.15" in done.out + done.err


def test_the_recorded_answer_has_the_reasons_without_a_wheel(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "recorded_answer", recorded_answer)
    text = run("explain", "mem_fraction_static", *PLAN).out
    assert text.startswith("mem_fraction_static = 0.903\n")
    assert "server_args.py:4979  _handle_gpu_memory_settings\n      with gpu_mem = 143771.0" in text


def test_0_5_2_keeps_its_own_pages(run: Run) -> None:
    assert "By the code of" not in run("explain", "mem_fraction_static", *PLAN[1:]).out


@pytest.mark.parametrize("given", [ANSWER, REFUSAL])
def test_the_record_is_as_its_schema_says(given: Answer, run: Run, answer: list[Answer]) -> None:
    answer.append(given)
    record = valid("explain", run("explain", "mem_fraction_static", *PLAN, "--json").out)
    assert record["release"]["version"] == "0.5.18"
    assert (record["release"]["check"] or record["release"]["changes"][0]["step"])["place"] == f"{FILE}:20"
