"""Remedies from what the log itself writes down, in the words of its release."""

from __future__ import annotations

import re

import pytest

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.run.diagnose.advice import in_release, with_costs
from sglang_hydra.run.diagnose.classes import failure_classes
from sglang_hydra.run.diagnose.diagnosis import diagnose
from sglang_hydra.run.diagnose.log_facts import LogNumbers
from sglang_hydra.run.diagnose.remedy import with_remedies
from tests.plans import without_accelerator, without_engines

BEGIN = "[2026-06-29 07:25:41 TP0] Load weight begin. avail mem=78.50 GB"
END = "[2026-06-29 07:25:51 TP0] Load weight end. elapsed=8.1 s, type=X, avail mem={} GB, mem usage=61.40 GB."
POOL = [
    "[2026-06-29 07:25:52 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 44000, K size: 5.37 GB",
    "[2026-06-29 07:25:52 TP0] Memory pool end. avail mem=5.90 GB",
    "[2026-06-29 07:25:52 TP0] Capture cuda graph begin. This can take up to several minutes.",
]
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79.11 GiB "
    "of which 0.20 GiB is free."
)
TOO_LOW = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."


def args(model: str = "org/never-heard-of", fraction: float = 0.92) -> list[str]:
    named = f"model_path='{model}', tp_size=2, mem_fraction_static={fraction}"
    return ["[2026-06-29 07:25:30] sglang==0.5.14", f"[2026-06-29 07:25:31] server_args=ServerArgs({named})"]


def test_a_lower_fraction_is_worked_out_from_the_log_of_a_model_that_nobody_knows() -> None:
    found = diagnose([*args(), BEGIN, END.format(17.10), *POOL, OOM])
    assert found.kind == "oom_graph"
    hint = found.finding.hint or ""
    fraction = re.match(r"mem_fraction_static=(0\.\d+), with ([\d,]+) tokens of KV cache \(costs ", hint)
    assert fraction is not None
    least = 1 - 17.10 / 78.50
    assert least + 0.02 <= float(fraction[1]) <= 0.92 - 1.5 / 78.5
    assert 0 < int(fraction[2].replace(",", "")) < 44_000
    assert str(found.numbers).startswith("78.5 GB free before loading, weights 61.4 GB, KV cache of 44,000 tokens")


def test_what_the_log_shows_impossible_is_not_advised() -> None:
    held = diagnose([*args(fraction=0.84), BEGIN, END.format(13.5), *POOL, OOM])  # the weights end at 0.828
    assert "mem_fraction_static" not in (held.finding.hint or "")
    low = diagnose([*args(fraction=0.7), BEGIN, END.format(4.0), TOO_LOW])  # no fraction below 0.949 has a token
    assert (low.finding.hint or "").startswith("mem_fraction_static=0.97, ")
    none = diagnose([*args(fraction=0.7), BEGIN, END.format(1.0), TOO_LOW])
    assert "mem_fraction_static" not in (none.finding.hint or "")


def test_the_ranks_and_the_context_are_worked_out_from_the_log() -> None:
    weights = END.format(1.0).replace("61.40", "77.40")
    found = diagnose([*args(), BEGIN, weights, TOO_LOW])
    assert "tp_size=4, with weights of 38.7 GB for each GPU (costs " in (found.finding.hint or "")
    numbers = LogNumbers(before_gb=78.5, weights_gb=75.0)
    assert numbers.ranks_beyond(1) == (2, 37.5)
    assert LogNumbers(before_gb=20.0, weights_gb=75.0).ranks_beyond(1) == (8, 75 / 8)
    assert LogNumbers(before_gb=78.5).ranks_beyond(1) is None
    small = diagnose([*args(), BEGIN, END.format(17.10), POOL[0], TOO_LOW])
    assert "context_length=44000, at most the tokens of the KV cache" in (small.finding.hint or "")
    asked = "ValueError: User-specified context_length (99999) is greater than the derived context_length (40960)."
    assert "context_length=40960, at most the model's own length" in (diagnose([*args(), asked]).finding.hint or "")
    assert "context_length=N, " in (diagnose([*args(), BEGIN, END.format(4.0), TOO_LOW]).finding.hint or "")


def test_the_host_s_free_memory_is_divided_among_the_ranks() -> None:
    asked = "ValueError: Not enough host memory available. Requesting 120.00 GB but only have 90.00 GB free."
    assert (diagnose([*args(), asked]).finding.hint or "").startswith("hicache_size=36, in GB for each rank")


def test_numbers_that_contradict_each_other_say_nothing() -> None:
    numbers = LogNumbers()
    for line in (END.format(90), BEGIN):
        numbers.read(line)
    assert numbers.least_fraction is None
    assert numbers.possible(0.1)
    assert LogNumbers().tokens_at(0.9, 0.8) is None


@pytest.mark.parametrize(
    ("version", "name"),
    [("0.5.10", "cuda_graph_max_bs"), ("0.5.14", "cuda_graph_max_bs_decode"), (None, "cuda_graph_max_bs")],
)
def test_arguments_are_named_as_the_log_s_release_names_them(version: str | None, name: str) -> None:
    assert in_release(["cuda_graph_max_bs=16, smaller", "x"], version) == [f"{name}=16, smaller", "x"]


def test_each_change_of_an_argument_says_what_it_costs() -> None:
    for failure in failure_classes():
        advices = [failure.advice, *(signature.advice for signature in failure.signatures if signature.advice)]
        for part in (part for advice in advices for part in advice):
            name = re.match(r"([a-z][a-z0-9_]*)=", part)
            concerns_speed_or_memory = failure.memory and name is not None and name[1] in FIELDS
            if concerns_speed_or_memory:
                assert "cost" in with_costs([part], failure.kind)[0], part


def test_the_whole_command_is_planned_with_the_log_s_release(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)
    without_accelerator(monkeypatch)
    lines = [*args("Qwen/Qwen3-32B"), BEGIN, END.format(17.10), *POOL, OOM]
    found = with_remedies(diagnose(lines, 1), Composer(), [Request("gpu=h100", "argument 2")])
    (command,) = (note for note in found.notes if note.startswith("the whole command"))
    assert "--model-path Qwen/Qwen3-32B" in command
    assert "--random-seed" not in command
    assert found.remedies
    assert not any(remedy.startswith("cuda_graph_max_bs=") for remedy in found.remedies)
