"""The same failure in every dress in which logs arrive gives the same answer."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sglang_hydra.run.diagnose.diagnosis import diagnose

SITE = "/usr/local/lib/python3.12/dist-packages/sglang/srt"
# The line that decides, its class, and where it was raised. From the threads of tests/data/diagnosis/recent.yaml.
CASES = [
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.02 GiB.", "oom_load",
     "model_loader/loader.py load_model"),
    ("ValueError: HiRadixCache only supports MHA, MLA, and NSA (DSA) models", "unsupported_backend",
     "mem_cache/hiradix_cache.py __init__"),
    ("NotImplementedError: Runner backend MoeRunnerBackend.MARLIN requires a fused func for a2a backend deepep, but "
     "none is registered.", "unsupported_backend", "layers/moe/moe_runner/runner.py __init__"),
    ("KeyError: 'language_model.model.layers.0.self_attn.qkv_proj.k_scale'", "weights_mismatch",
     "models/gemma3_causal.py load_weights"),
    ("tvm.error.InternalError: Assertion error (/deepgemm/csrc/apis/hyperconnection.hpp:56): Unsupported architecture",
     "unsupported_gpu", "layers/mhc.py hc_pre"),
    ("AssertionError: Can not alloc mamba cache", "oom_runtime", "mem_cache/mamba_radix_cache.py cache_unfinished_req"),
    ("ValueError: think_end_token '</think>' must encode to exactly one token for constrained reasoning.",
     "chat_template", "managers/scheduler.py __init__"),
    ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered", "cuda_fault",
     "managers/scheduler.py run_batch"),
]  # fmt: skip


def log(line: str, place: str) -> list[str]:
    """A log of one rank: what came before, the traceback, and SGLang's own end."""
    file, function = place.split()
    return [
        "[2026-06-11 08:14:09 TP0] Load weight begin. avail mem=78.58 GB",
        "[2026-06-11 08:15:11 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        f'  File "{SITE}/managers/scheduler.py", line 3750, in run_scheduler_process',
        "    scheduler = Scheduler(",
        "                ^^^^^^^^^^",
        f'  File "{SITE}/{file}", line 71, in {function}',
        "    self.fail(here)",
        line,
        "",
        "[2026-06-11 08:15:12] Received sigquit from a child process. It usually means the child failed.",
    ]


def interleaved(lines: list[str]) -> list[str]:
    """Two ranks that write into one file, line by line, each with its rank as srun -l and torchrun write it."""
    return [text for line in lines for text in (f"0: {line}", f"1: {line.replace('TP0', 'TP1')}")]


def supervisord(lines: list[str]) -> list[str]:
    return [text for line in lines for text in ("2026-06-11 08:15:11,512 DEBG 'sglang' stderr output:", line, "")]


def each(wrapped: Callable[[str], str]) -> Callable[[list[str]], list[str]]:
    return lambda lines: [wrapped(line) for line in lines]


DISGUISES: dict[str, Callable[[list[str]], list[str]]] = {
    "the bare line": lambda lines: [lines[7]],
    "cut at the top": lambda lines: lines[6:],
    "cut at the bottom": lambda lines: lines[:8],
    "stern": each(lambda line: f"sglang-decode-7d9f5c-x2x4q server {line}"),
    "kubectl --prefix": each(lambda line: f"[pod/sglang-0/server] {line}"),
    "journald": each(lambda line: f"Jun 11 08:15:11 gpu-7 sglang[812]: {line}"),
    "supervisord": supervisord,
    "docker compose": each(lambda line: f"sglang-1  | {line}"),
    "srun -l": each(lambda line: f" 3: {line}"),
    "Ray": each(lambda line: f"(SGLangEngine pid=952, ip=10.1.2.3) {line} [repeated 7x across cluster]"),
    "indented": each(lambda line: f"        {line}"),
    "indented, without a header": lambda lines: [f"        {line}" for line in lines[2:8]],
    "a launcher's shell": each(lambda line: f"[2026-06-29 17:44:04] [/bin/sh@<0,0>]: {line}"),
    "colours": each(lambda line: f"\x1b[31m{line}\x1b[0m"),
    "ranks interleaved": interleaved,
    "JSON": each(lambda line: json.dumps({"time": "t", "level": "error", "message": line})),
    "JSON with the traceback apart": lambda lines: [
        json.dumps({"level": "error", "message": lines[1].partition(":  ")[0], "exception": "\n".join(lines[1:8])})
    ],
}


@pytest.mark.corpus
@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize(("line", "kind", "place"), CASES, ids=lambda value: value[:24])
def test_a_failure_is_known_however_it_arrives(line: str, kind: str, place: str, disguise: str) -> None:
    plain = diagnose(log(line, place), 1)
    assert plain.kind == kind
    found = diagnose(DISGUISES[disguise](log(line, place)))
    if kind == "oom_load" and disguise in ("the bare line", "cut at the top"):
        kind = "oom_gpu"  # what was being done is cut away
    assert found.kind == kind
    assert (found.line or "").startswith(line)


@pytest.mark.parametrize("disguise", sorted({*DISGUISES} - {"the bare line", "cut at the top"}))
def test_a_fault_of_the_release_keeps_its_place(disguise: str) -> None:
    lines = log("TypeError: 'NoneType' object cannot be interpreted as an integer", "managers/mamba.py track")
    found = diagnose(DISGUISES[disguise](lines))
    assert (found.kind, found.confidence) == ("release_fault", 0.7)
    assert found.finding.message.endswith(": srt/managers/mamba.py:track")
