"""Why a release has a value: the changes that its code makes, their places, conditions and operands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.releases import answers, reasons, release, wheels
from sglang_hydra.releases.case import Case
from sglang_hydra.releases.process import end_children
from sglang_hydra.releases.release import ask_release
from sglang_hydra.rules.answer import Answer, Change, step_of
from tests.releases.fake import FILES, VERSION, unpacked_release
from tests.releases.test_child import CONFIG, H200

DECIDES = """
import argparse
import dataclasses
import functools

import torch
from sgl_kernel import fast_op


@dataclasses.dataclass
class ServerArgs:
    model_path: str
    api_key: str = None
    tp_size: int = 1
    backend: str = None
    page_size: int = None
    fraction: float = None
    chunk: int = None
    batches: list = None
    graph: dict = None
    kept: int = 3
    doubled: int = None

    def __post_init__(self):
        self._resolved_overrides = []
        gpu_mem = memory()
        if self.fraction is None:
            # Leave room for what is not the model.
            reserved = 1024 * self.tp_size
            if is_big():
                reserved += 512
            self.fraction = round((gpu_mem - reserved) / gpu_mem, 3)
            self.chunk = 8192
        if self.api_key and gpu_mem:
            self.kept = 4
        self._backends()
        if self.tp_size == 3:
            return
        for name in ("page_size",):
            setattr(self, name, 64 if self.backend == "slow" else 1)
        self.batches = list(range(20))
        if self.tp_size == 4:
            declare(self, doubled=twice(self.kept))
        run_pass(self, decide_graph)

    def _backends(self):
        if self.backend is not None:
            return
        self.backend = choose(
            self,
            fast_op,
        )

    def check_server_args(self):
        if self.tp_size > 2:
            assert (
                self.tp_size % 2 == 0
            ), "an odd number"
        if self.kept == 4:
            verify(self)


def verify(args):
    # Only one of the two.
    if args.api_key == "sk-1" and args.tp_size > 1:
        raise ValueError("not both")


def choose(args, kernel):
    if torch.cuda.get_device_capability()[0] >= 10:
        return "fast"
    return "slow"


@functools.lru_cache
def is_big():
    return memory() > 1000


def memory():
    return torch.cuda.mem_get_info()[1] / 2**20


def decide_graph(args):
    declared = {}
    if args.tp_size == 2:
        declared["graph"] = {"decode": {"size": 8, "on": True}, "prefill": None}
    elif args.page_size:
        declared["graph"] = {"decode": {"size": 4, "on": True}, "prefill": None}
    return declared


def run_pass(args, decide):
    declared = decide(args)
    if declared:
        args._resolved_overrides.append((decide.__name__, dict(declared)))
        for field, value in declared.items():
            setattr(args, field, value)


def twice(number):
    return 2 * number


def declare(args, **declared):
    run_pass(args, lambda _: declared)


def prepare_server_args(argv):
    parser = argparse.ArgumentParser()
    for flag, kind in (("--model-path", str), ("--api-key", str), ("--tp-size", int), ("--backend", str)):
        parser.add_argument(flag, type=kind, default=argparse.SUPPRESS)
    return ServerArgs(**vars(parser.parse_args(argv)))
"""
LINES = DECIDES.splitlines()
FILE = "sglang/srt/server_args.py"
Ask = Callable[..., Answer]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    patch = pytest.MonkeyPatch()
    unpacked_release(tmp_path_factory.mktemp("release"), patch, {**FILES, FILE: DECIDES})

    def of(*words: str, why: bool = True, **facts: Any) -> Answer:
        case = Case(("--model-path", "org/name", *words), {**H200, **facts}, {"org/name": CONFIG})
        return ask_release(VERSION, [case], why=why)[0]

    yield of
    end_children()
    patch.undo()


def changes(answer: Answer) -> dict[str, Change]:
    assert answer.ok is not None, answer.unanswered
    return {change.field: change for change in answer.changes}


def line_of(text: str) -> int:
    (found,) = [number for number, line in enumerate(LINES, 1) if text in line]
    return found


def test_a_change_has_its_place_and_what_it_read(ask: Ask) -> None:
    change = changes(ask())["fraction"]
    assert (change.before, change.after) == (None, 0.989)
    assert change.step is not None
    assert change.step.place == f"{FILE}:{line_of('self.fraction = ')}"
    assert change.step.function == "__post_init__"
    assert change.step.inputs == {"gpu_mem": 143771.0, "reserved": 1536}
    (condition,) = change.step.conditions
    assert (condition.line, condition.holds) == (line_of("if self.fraction is None"), True)


def test_a_statement_that_still_runs_shows_what_its_calls_have_answered(ask: Ask) -> None:
    step = changes(ask("--tp-size", "4"))["doubled"].step
    assert step is not None
    assert step.place == f"{FILE}:{line_of('declare(self, doubled=')}"
    assert step.inputs == {"twice(self.kept)": 6, "self.kept": 3}


def test_a_condition_has_the_operands_of_its_time(ask: Ask) -> None:
    made = changes(ask())
    assert made["chunk"].step is not None
    assert made["chunk"].step.conditions[0].operands == {"self.fraction": None}, "it is 0.989 when chunk is set"


def test_a_value_leads_back_to_the_function_that_made_it(ask: Ask) -> None:
    for capability, after, holds in (([9, 0], "slow", False), ([10, 0], "fast", True)):
        change = changes(ask(capability=capability))["backend"]
        assert change.after == after
        assert change.step is not None
        assert change.step.line == line_of("self.backend = choose(")
        assert [(each.holds, each.operands) for each in change.step.conditions] == [(False, {"self.backend": None})]
        (step,) = change.step.via
        assert (step.function, step.line) == ("choose", line_of(f'return "{after}"'))
        assert [each.holds for each in step.conditions] == [holds]


def test_a_change_in_a_loop_over_names_and_a_declared_one_have_places(ask: Ask) -> None:
    made = changes(ask())
    assert made["page_size"].step is not None
    assert made["page_size"].step.line == line_of("setattr(self, name")
    graph = made["graph"]
    assert graph.step is not None
    assert (graph.step.function, graph.step.line) == ("decide_graph", line_of('"size": 4'))
    assert [(each.holds, each.operands) for each in graph.step.conditions] == [
        (True, {"args.page_size": 64}),
        (False, {"args.tp_size": 1}),
    ]
    twice = changes(ask("--tp-size", "2"))["graph"]
    assert twice.step is not None
    assert twice.step.line == line_of('"size": 8')


def test_only_what_changed_is_named_in_the_order_it_happened(ask: Ask) -> None:
    assert [change.field for change in ask("--backend", "mine").changes] == [
        *("fraction", "chunk", "page_size", "batches", "graph"),
    ]


def test_long_values_are_cut(ask: Ask) -> None:
    assert changes(ask())["batches"].after == [0, 1, 2, 3, 4, 5, 6, 7, "… 20 in all"]


def test_a_secret_is_nowhere(ask: Ask) -> None:
    answer = ask("--api-key", "sk-longer")
    assert changes(answer)["kept"].step is not None
    assert "'self.api_key': '***'" in str(answer.changes)
    assert "sk-longer" not in str(answer.changes)
    assert "***" not in str(changes(ask("--api-key", "1"))["chunk"]), "a number is no secret"


@pytest.mark.parametrize(
    ("words", "text", "function", "operands"),
    [
        (("--api-key", "sk-1", "--tp-size", "2"), "raise V", "verify", {"args.api_key": "***", "args.tp_size": 2}),
        (("--tp-size", "3"), "assert (", "check_server_args", {"self.tp_size": 3}),
    ],
)  # fmt: skip
def test_a_refusal_has_its_check(ask: Ask, words: tuple[str, ...], text: str, function: str, operands: Any) -> None:
    answer = ask(*words)
    assert answer.ok is False
    assert answer.check is not None
    assert (answer.check.function, answer.check.line) == (function, line_of(text))
    assert answer.check.conditions[0].operands == operands


def test_the_values_are_the_same_with_and_without(ask: Ask) -> None:
    for words in ((), ("--tp-size", "3"), ("--tp-size", "2"), ("--nonsense",)):
        plain, why = ask(*words, why=False), ask(*words)
        assert (plain.ok, plain.values, plain.error) == (why.ok, why.values, why.error)
        assert plain.changes == ()
        assert plain.check is None


def test_each_changed_value_is_explained(ask: Ask) -> None:
    answer = ask()
    given = {"model_path": "org/name", "api_key": None, "tp_size": 1, "kept": 3}
    assert {name for name, value in answer.values.items() if given.get(name) != value} == set(changes(answer))


def test_kept_answers_keep_the_reasons(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ask()
    monkeypatch.setattr(release, "_asked", lambda *_: pytest.fail("it was kept"))
    assert ask() == first
    assert first.changes


def test_what_is_kept_has_no_text_of_the_source(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(answers, "keep_answer", lambda _, answer: kept.append(json.dumps(answer)))
    ask("--tp-size", "16")
    assert kept
    assert "Leave room" not in kept[0]
    assert "is None" not in kept[0]


def test_the_wheel_is_quoted(ask: Ask) -> None:
    made = changes(ask())
    assert made["fraction"].step is not None
    quoted = reasons.quote(VERSION, made["fraction"].step)
    assert quoted is not None
    assert quoted.conditions == ("self.fraction is None",)
    assert quoted.statement == "self.fraction = round((gpu_mem - reserved) / gpu_mem, 3)"
    refused = ask("--api-key", "sk-1", "--tp-size", "2")
    assert refused.check is not None
    check = reasons.quote(VERSION, refused.check)
    assert check is not None
    assert check.comment == "Only one of the two."
    assert check.conditions == ("args.api_key == 'sk-1' and args.tp_size > 1",)


def test_nothing_is_quoted_without_the_wheel(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    step = changes(ask())["fraction"].step
    assert step is not None
    monkeypatch.setattr(wheels, "place_of", lambda wheel: None)
    assert reasons.quote(VERSION, step) is None


def test_a_kept_place_outside_of_the_wheel_is_not_read(ask: Ask, tmp_path: Path) -> None:
    other = tmp_path / "x.py"
    other.write_text("a = 1\n", encoding="utf-8")
    row = {"file": f"../../../../../../../../../../..{other}", "line": 1, "function": "f", "inputs": {}}
    assert reasons.quote(VERSION, step_of({**row, "conditions": [], "via": []})) is None


SUMS = DECIDES.replace(
    "        self.chunk = 8192\n",
    "        self.chunk = 8192\n            halve(self)\n            self.fraction = share(self, gpu_mem)\n",
).replace(
    "def decide_graph",
    """def halve(args):
    declare(args, chunk=args.chunk // 2)
    args.kept += 4


def share(args, gpu_mem):
    kept = 100
    for name in ("tp_size", "chunk"):
        kept += getattr(args, name)
    kept += graphs(args)
    return round((gpu_mem - kept) / gpu_mem, 3)


def graphs(args):
    size = 10.0
    if len(args.model_path) > 3:
        size += args.tp_size * 2
    return size


def declare(args, **values):
    for name, value in values.items():
        setattr(args, name, value)


def decide_graph""",
)


def test_a_statement_that_reads_what_it_sets_shows_the_value_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked_release(tmp_path, monkeypatch, {**FILES, FILE: SUMS})
    case = Case(("--model-path", "org/name", "--tp-size", "2"), dict(H200), {"org/name": CONFIG})
    (answer,) = ask_release(VERSION, [case], why=True)
    chunk = [change for change in answer.changes if change.field == "chunk"][-1]
    assert (chunk.before, chunk.after) == (8192, 4096)
    assert chunk.step is not None
    assert chunk.step.inputs == {"args.chunk": 8192}
    kept = next(change for change in answer.changes if change.field == "kept")
    assert kept.step is not None
    assert (kept.step.inputs, kept.after) == ({"args.kept": 3}, 7)


def test_a_sum_is_followed_to_numbers_that_can_be_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked_release(tmp_path, monkeypatch, {**FILES, FILE: SUMS})
    case = Case(("--model-path", "org/name", "--tp-size", "2"), dict(H200), {"org/name": CONFIG})
    (answer,) = ask_release(VERSION, [case], why=True)
    change = [change for change in answer.changes if change.field == "fraction"][-1]
    assert change.step is not None
    (returned,) = change.step.via
    start, tensor, chunk, graphs = returned.via
    assert start.inputs == {}
    assert (tensor.inputs["kept"], chunk.inputs["kept"], graphs.inputs["kept"]) == (100, 102, 4198)
    assert graphs.inputs["graphs(args)"] == 14.0
    assert returned.inputs["kept"] == 4212.0
    (size,) = graphs.via
    assert [each.inputs.get("size") for each in size.via] == [None, 10.0]
    assert size.via[-1].inputs["args.tp_size"] == 2
    assert change.after == round((returned.inputs["gpu_mem"] - 4212.0) / returned.inputs["gpu_mem"], 3)


PHASES = DECIDES.replace(
    "def decide_graph(args):\n    declared = {}\n",
    """@dataclasses.dataclass
class Phase:
    most: int = None


@dataclasses.dataclass
class Phases:
    decode: Phase = dataclasses.field(default_factory=Phase)
    prefill: Phase = dataclasses.field(default_factory=Phase)


def decide_graph(args):
    declared = {}
    phases = Phases()
    if args.tp_size < 4:
        phases.decode.most = 256
    phases.prefill.most = args.chunk
    return {"graph": phases}
""",
)


def test_each_field_of_a_value_that_was_written_on_its_own_has_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked_release(tmp_path, monkeypatch, {**FILES, FILE: PHASES})
    case = Case(("--model-path", "org/name"), dict(H200), {"org/name": CONFIG})
    (answer,) = ask_release(VERSION, [case], why=True)
    step = changes(answer)["graph"].step
    assert step is not None
    line = {number: text.strip() for number, text in enumerate(PHASES.splitlines(), 1)}
    found = {line[each.line]: each for each in step.via if each.line in line}
    assert "phases.prefill.most = args.chunk" in found
    assert [each.operands for each in found["phases.decode.most = 256"].conditions] == [{"args.tp_size": 1}]


HELPERS = DECIDES.replace(
    "        self.batches = list(range(20))\n",
    """        self.batches = list(range(20))
        self.graph = Phases()
        stop_graphs(self)
        self.chunk = scaled(self, {"layers": 24, "size": None})
        self._resolved_overrides += [("a", {"kept": 5}), ("b", {"kept": 6})]
        for _, declared in self._resolved_overrides:
            for name, value in declared.items():
                setattr(self, name, value)
        renamed = {}
        for attr in ("backend", "kept"):
            if getattr(self, attr) == "slow":
                renamed[attr] = "torch"
        declare(self, **renamed)
""",
).replace(
    "def decide_graph(args):\n    declared = {}\n",
    """@dataclasses.dataclass
class Phase:
    most: int = None


@dataclasses.dataclass
class Phases:
    decode: Phase = dataclasses.field(default_factory=Phase)


def stop_graphs(args):
    args.graph.decode.most = 0


def scaled(args, config):
    last = args.batches[-1]
    layers = config.get("layers", 1)
    width = getattr(args, "tp_size", 4) * getattr(args, "no_such", 16)
    total = layers * width
    listed = sum(args.batches)
    return total + listed


def decide_graph(args):
    declared = {}
    return declared
""",
)


@pytest.fixture(scope="module")
def helped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answer]:
    patch = pytest.MonkeyPatch()
    unpacked_release(tmp_path_factory.mktemp("helpers"), patch, {**FILES, FILE: HELPERS})
    case = Case(("--model-path", "org/name", "--tp-size", "2"), dict(H200), {"org/name": CONFIG})
    yield ask_release(VERSION, [case], why=True)[0]
    end_children()
    patch.undo()


def test_the_return_of_a_helper_is_followed_to_what_it_read(helped: Answer) -> None:
    change = [change for change in helped.changes if change.field == "chunk"][-1]
    assert change.after == 24 * 32 + 190
    assert change.step is not None
    (returned,) = change.step.via
    assert returned.inputs == {"total": 768, "listed": 190}
    (total,) = returned.via
    assert total.inputs == {"layers": 24, "width": 32}
    (width,) = total.via
    assert width.inputs == {"getattr(args, 'tp_size', 4)": 2, "getattr(args, 'no_such', 16)": 16}


def test_a_field_within_a_value_is_written_where_it_is_written(helped: Answer) -> None:
    change = [change for change in helped.changes if change.field == "graph"][-1]
    assert change.after == {"decode": {"most": 0}}
    assert change.step is not None
    assert change.step.function == "stop_graphs"


def test_an_item_of_a_mapping_that_is_declared_has_its_place_and_the_operands_of_its_turn(helped: Answer) -> None:
    step = next(change for change in helped.changes if (change.field, change.after) == ("backend", "torch")).step
    assert step is not None
    assert HELPERS.splitlines()[step.line - 1].strip() == 'renamed[attr] = "torch"'
    assert step.inputs == {"attr": "backend"}
    assert step.conditions[0].operands == {"attr": "backend"}, "it is kept when the loop ends"


def test_what_was_declared_is_no_change_again_when_it_is_written_down(helped: Answer) -> None:
    assert [(change.before, change.after) for change in helped.changes if change.field == "kept"] == [(3, 5), (5, 6)]
