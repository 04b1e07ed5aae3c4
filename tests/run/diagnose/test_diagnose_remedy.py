"""The smallest change whose plan is clean: planned from the log's own arguments, and never offered without."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.facts.hub import offline
from sglang_hydra.facts.installed import Packages
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.run.diagnose.diagnosis import Diagnosis, diagnose
from sglang_hydra.run.diagnose.remedy import with_plan, with_remedies
from sglang_hydra.run.diagnose.replan import Replanned, release_of, replan
from sglang_hydra.text.user_settings import begin
from tests.plans import without_accelerator, without_engines


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Makes a release the choice of the user's settings; none for ""."""

    def make(version: str) -> None:
        monkeypatch.setenv("SGLANG_HYDRA_RELEASE", version)
        begin()

    yield make
    monkeypatch.undo()
    begin()


TAIL = "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF"
DEFAULTS = "random_seed=1, device='cuda', host='0.0.0.0', dtype='auto', "


@pytest.fixture(autouse=True)
def _bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)
    without_accelerator(monkeypatch)


def log(args: str, *lines: str) -> list[str]:
    return [
        f"[2025-06-11 08:14:02] server_args=ServerArgs({DEFAULTS}{args})",
        "[2025-06-11 08:14:09] Load weight begin. avail mem=78.58 GB",
        *lines,
        "[2025-06-11 08:15:12] Received sigquit from a child process. It usually means the child failed.",
    ]


def oom(total: str) -> str:
    return (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 7 has a total capacity of "
        f"{total} of which 207.31 MiB is free. {TAIL}"
    )


LOADED = "[2025-06-11 08:15:09] Load weight end. type=X, dtype=torch.bfloat16, avail mem=17.00 GB, mem usage=61.00 GB."
TOO_LOW = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."


def remedied(lines: list[str], *overrides: str) -> Diagnosis:
    requests = [Request(text, f"argument {number}") for number, text in enumerate(overrides, 2)]
    return with_remedies(diagnose(lines, 1), Composer(), requests)


def planned(found: Diagnosis, *overrides: str) -> Replanned:
    requests = [Request(text, f"argument {number}") for number, text in enumerate(overrides, 2)]
    done = replan(found, Composer(), requests)
    assert isinstance(done, Replanned), done
    return done


LONGER = (
    "ValueError: User-specified context_length (262144) is greater than the derived context_length (40960). This may "
    "lead to incorrect model outputs"
)
CUSTOM = "ValueError: The repository contains custom code which must be executed to correctly load the model."
NOT_WHOLE = "AssertionError: 32 is not divisible by 3"
QWEN3_8B = "model_path='Qwen/Qwen3-8B', "
CASES: list[tuple[list[str], tuple[str, ...], str]] = [
    (
        log("model_path='Qwen/Qwen3-32B', mem_fraction_static=0.75, chunked_prefill_size=8192", LOADED, TOO_LOW),
        ("gpu=h100",),
        "mem_fraction_static=0.79 (0.78-0.96 works)",
    ),
    (
        log("model_path='Qwen/Qwen3-32B', tp_size=1, mem_fraction_static=0.88", oom("44.40 GiB")),
        ("gpu=l40s",),
        "model_path=Qwen/Qwen3-32B-AWQ",  # over PCIe, a smaller checkpoint goes before a second GPU
    ),
    (
        log("model_path='/mnt/Qwen3-8B', mem_fraction_static=0.96, cuda_graph_max_bs=160", LOADED, oom("79.11 GiB")),
        (),
        "mem_fraction_static=0.92",
    ),
    (log(QWEN3_8B + "tp_size=3", NOT_WHOLE), ("gpu=h100",), "tp_size=2"),
    (log(QWEN3_8B + "context_length=262144", LONGER), ("gpu=h100",), "context_length=40960"),
    (log(QWEN3_8B, CUSTOM), ("gpu=h100",), "trust_remote_code=true"),
]


@pytest.mark.parametrize(
    ("lines", "overrides", "first"), CASES, ids=lambda value: value if isinstance(value, str) else "-"
)
def test_the_smallest_clean_change_comes_first(lines: list[str], overrides: tuple[str, ...], first: str) -> None:
    found = remedied(lines, *overrides)
    assert found.remedies
    assert found.remedies[0].startswith(first)
    assert (found.finding.hint or "").startswith(found.remedies[0])


@pytest.mark.parametrize(
    ("lines", "overrides", "first"), CASES, ids=lambda value: value if isinstance(value, str) else "-"
)
def test_what_is_offered_plans_clean(lines: list[str], overrides: tuple[str, ...], first: str) -> None:
    found = remedied(lines, *overrides)
    done = planned(found, *overrides)
    for remedy in found.remedies:
        words = remedy.partition(" (")[0].split()
        keys = {word.partition("=")[0] for word in words}
        for requests in done.requests:
            kept = [request for request in requests if request.text.partition("=")[0] not in keys]
            plan = make_plan(Composer(), [*kept, *(Request(word, "offer") for word in words)], env=offline())
            assert plan.launchable, remedy
            assert plan.fit is None or (plan.fit.fits is True and not plan.fit.tight)


def test_no_fraction_is_offered_where_weights_did_not_fit_while_they_were_loaded() -> None:
    held = log("model_path='Qwen/Qwen3-32B', tp_size=1, mem_fraction_static=0.5", oom("79.11 GiB"))
    found = remedied(held, "gpu=h100")
    assert found.kind == "oom_load"
    assert found.remedies[0].startswith("tp_size=2 ")
    assert not any("mem_fraction_static" in remedy for remedy in found.remedies)


def test_a_gpu_that_may_be_several_is_planned_on_each() -> None:
    found = remedied(log("model_path='Qwen/Qwen3-8B', mem_fraction_static=0.96", LOADED, oom("79.11 GiB")))
    done = planned(found)
    names = [plan.gpu.name for plan in done.plans]
    assert {"h100", "a100_80gb"} <= set(names)
    assert len(done.plans) == len(done.requests) == len(names)
    assert any("is taken for gpu=" in note for note in found.notes)


def test_a_gpu_that_is_named_is_that_class() -> None:
    lines = log(
        "model_path='Qwen/Qwen3-8B', mem_fraction_static=0.96",
        "[2025-06-11 08:14:08] Using default MoE kernel config at x/E=8,device_name=NVIDIA_H200.json",
        LOADED,
        oom("139.81 GiB"),
    )
    assert [plan.gpu.name for plan in planned(diagnose(lines, 1)).plans] == ["h200"]


def test_what_sglang_resolved_itself_is_not_taken_for_typed() -> None:
    args = (
        "model_path='deepseek-ai/DeepSeek-V3', tp_size=8, dp_size=8, enable_dp_attention=True, quantization=None, "
        "mem_fraction_static=0.87, chunked_prefill_size=1024, schedule_conservativeness=0.3, attention_backend='fa3', "
        "page_size=1, sampling_backend='flashinfer', grammar_backend='xgrammar'"
    )
    plan = planned(diagnose(log(args, LOADED, oom("139.81 GiB")), 1), "gpu=h200").plans[0]
    assert plan.values["chunked_prefill_size"] == 1024
    assert plan.values["schedule_conservativeness"] == pytest.approx(0.3)
    for name in ("chunked_prefill_size", "schedule_conservativeness", "page_size"):
        assert plan.intent.get(name) is None
    assert plan.intent["enable_dp_attention"] is True


def test_what_is_typed_behind_the_file_beats_the_log() -> None:
    lines = log("model_path='/secret/path', tp_size=2, mem_fraction_static=0.96", LOADED, oom("79.11 GiB"))
    plan = planned(diagnose(lines, 1), "gpu=h200", "model=qwen3_8b", "tp_size=1").plans[0]
    assert (plan.gpu.name, plan.values["model_path"], plan.values["tp_size"]) == ("h200", "Qwen/Qwen3-8B", 1)


@pytest.mark.parametrize(
    ("lines", "overrides", "why"),
    [
        ([oom("79.11 GiB")], (), "no server_args line"),
        (log("model_path='Qwen/Qwen3-8B', mem_fraction_static=0.9", LOADED, TOO_LOW), (), "which GPU"),
        (
            log("model_path='org/never-heard-of', mem_fraction_static=0.9", LOADED, TOO_LOW),
            ("gpu=h100",),
            "is unknown here",
        ),
        (
            log("model_path='Qwen/Qwen3-8B', mem_fraction_static=0.9", LOADED, TOO_LOW),
            ("gpu=h999",),
            "cannot be planned",
        ),
    ],
)
def test_where_nothing_can_be_planned_the_general_advice_stays(
    lines: list[str], overrides: tuple[str, ...], why: str
) -> None:
    found = remedied(lines, *overrides)
    assert found.remedies == ()
    assert why in found.notes[0]
    assert found.finding.hint == diagnose(lines, 1).finding.hint


def test_a_log_is_planned_in_the_words_of_its_release() -> None:
    line = (
        "[2026-11-20 10:00:00] server_args={'model_path': 'deepseek-ai/DeepSeek-V3', 'tp_size': 8, 'dp_size': 1, "
        "'attn_dp_size': 8, 'enable_dp_attention': True, 'chunked_prefill_size': 1024, 'schedule_conservativeness': "
        "0.3, 'cuda_graph_max_bs_decode': 512, 'mem_fraction_static': 0.9, 'dcp_size': 1}"
    )
    again = planned(diagnose([line, LOADED, oom("139.81 GiB")], 1), "gpu=h200", "engine.version=0.5.23")
    assert again.plans[0].layout.attention_groups == 8
    typed = dict(again.plans[0].intent)
    assert {name: typed[name] for name in ("attn_dp_size", "cuda_graph_max_bs_decode", "mem_fraction_static")} == {
        "attn_dp_size": 8,
        "cuda_graph_max_bs_decode": 512,
        "mem_fraction_static": 0.9,
    }
    assert not typed.keys() & {"cuda_graph_max_bs", "dp_size", "dcp_size"}


def test_arguments_that_only_later_releases_know_are_left_out_and_said() -> None:
    args = "model_path='Qwen/Qwen3-8B', attention_backend='flashmla_sparse_9', mem_fraction_static=0.96"
    found = remedied(log(args, LOADED, oom("139.81 GiB")), "gpu=h200")
    assert any("attention_backend" in note for note in found.notes)
    assert found.remedies


@pytest.mark.parametrize(
    ("lines", "chosen", "release", "why"),
    [
        (["sglang==0.5.14"], "", "0.5.14", None),
        (["sglang==0.4.9"], "", "0.5.2", "the log is of a release 0.4.9, and 0.5.2 is the nearest one"),
        (["sglang==0.5.99"], "", "0.5.23", "0.5.23 is the nearest one that is known here"),
        ([], "", "0.5.23", "the log names no release, and 0.5.23 is the newest one"),
        ([], "0.5.10", "0.5.10", "0.5.10 is the choice of your settings"),
        (log("tp_size=2, cuda_graph_max_bs=8"), "", "0.5.13.post1", "has all arguments that it writes down"),
        (log("tp_size=2, cuda_graph_max_bs=8"), "0.5.10", "0.5.10", "0.5.10 is the choice of your settings"),
        (log("tp_size=2, cuda_graph_max_bs=8"), "0.5.23", "0.5.13.post1", "has all arguments"),
    ],
    ids=str,
)
def test_the_release_is_what_the_log_tells_else_what_the_user_has(
    lines: list[str], chosen: str, release: str, why: str | None, choose: Callable[[str], None]
) -> None:
    choose(chosen)
    found, said = release_of(diagnose([*lines, TOO_LOW], 1))
    assert found == release
    assert (said is None) if why is None else why in str(said)


def test_an_installed_release_is_meant_where_the_log_can_be_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglang_hydra.run.diagnose.replan.installed", lambda python: Packages({"sglang": "0.5.9"}))
    assert release_of(diagnose([TOO_LOW], 1)) == ("0.5.9", "the log names no release, and 0.5.9 is installed here")
    assert release_of(diagnose(log("disable_jump_forward=True, tp_size=2"), 1))[0] != "0.5.9"


def test_what_helps_is_planned_for_the_release_that_is_meant_and_said(choose: Callable[[str], None]) -> None:
    choose("")
    held = log("model_path='Qwen/Qwen3-32B', mem_fraction_static=0.75", LOADED, TOO_LOW)
    found = remedied(held, "gpu=h100")
    assert found.remedies
    assert "the log names no release, and 0.5.23 is the newest one: planned for SGLang 0.5.23" in found.notes


def test_a_hostile_line_of_arguments_plans_nothing_and_runs_nothing(tmp_path: Any) -> None:
    mark = tmp_path / "mark"
    for path in (f"$(touch {mark})", "'; import os", "../../etc", "a" * 5000, "\\x1b[2J", "${oc.env:HOME}"):
        lines = log(f"model_path={path!r}, tp_size=999999999999, mem_fraction_static=-7.5", LOADED, oom("79.11 GiB"))
        assert remedied(lines, "gpu=h100").kind == "oom_kv"
    assert not mark.exists()


def test_a_server_of_ours_gets_changes_to_its_own_plan() -> None:
    requests = [Request(text, "argument") for text in ("gpu=h100", "model=qwen3_32b", "mem_fraction_static=0.75")]
    plan = make_plan(Composer(), requests, env=offline())
    found = with_plan(diagnose([LOADED, TOO_LOW], 1), plan, Composer(), requests)
    assert re.match(r"mem_fraction_static=0\.\d+ \(0\.\d+-0\.\d+ works\)", found.remedies[0])
