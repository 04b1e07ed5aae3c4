"""Whatever a log holds: nothing is raised, nothing grows with it, and nothing is said without a line."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglang_hydra.run.diagnose.classes import FailureClass, failure_classes
from sglang_hydra.run.diagnose.diagnosis import UNKNOWN, Diagnosis, diagnose
from sglang_hydra.run.diagnose.lines import LONGEST, read_lines
from sglang_hydra.run.diagnose.reader import LogReader
from sglang_hydra.run.diagnose.report import record, screen
from sglang_hydra.run.diagnose.server_args import parse_server_args

NEEDLES = sorted({text for failure in failure_classes() for one in failure.signatures for text in one.needles})
PIECES = st.one_of(
    st.text(max_size=60),
    st.sampled_from(NEEDLES),
    st.sampled_from(
        [
            "[2025-06-11 08:14:02 TP0] ",
            "Traceback (most recent call last):",
            '  File "/x/sglang/srt/server_args.py", line 1, in __post_init__',
            "server_args=ServerArgs(",
            "server_args={'a': ",
            "Error: ",
            "Load weight begin",
            "ready to roll",
            "Received sigquit from a child process",
            "2025-06-11T08:14:02Z stdout P ",
            "sglang-1  | ",
            "[bold]",
            "\x1b[31m",
            "\x1b]0;",
            "\r",
            "{",
            "}",
            "(",
            "'",
            "\\",
            "<",
            "\x00",
            "\ud800",
        ]
    ),
)
LINES = st.lists(st.lists(PIECES, max_size=6).map("".join), max_size=30)
CODES = st.one_of(st.none(), st.integers(-300, 300))


def is_sound(found: Diagnosis, exit_code: int | None) -> None:
    """Known with a line (or an exit code), or unknown without one; and it can be shown."""
    if found.kind == UNKNOWN:
        assert (found.confidence, found.line, found.line_number) == (0.0, None, None)
    else:
        assert 0.5 <= found.confidence <= 1
        assert (found.line is None) == (found.line_number is None)
        assert found.line or exit_code is not None
    json.dumps(record([("x", found)]), allow_nan=False)
    for line in screen([("x", found)]):
        assert all(content.isprintable() or content == "" for content, _ in line)


@given(LINES, CODES)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_lines_are_diagnosed(lines: list[str], exit_code: int | None) -> None:
    is_sound(diagnose(lines, exit_code), exit_code)


@given(st.binary(max_size=4000), CODES)
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_diagnosed(content: bytes, exit_code: int | None) -> None:
    is_sound(diagnose(read_lines(io.BytesIO(content)), exit_code), exit_code)


@given(st.text(alphabet="abc=,'\"\\()[]{}<>: \n1.-", max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_line_of_arguments_is_taken_apart(text: str) -> None:
    for start in ("server_args=ServerArgs(", "server_args={"):
        values = parse_server_args(start + text)
        assert values is None or json.dumps({key: str(value) for key, value in values.items()})


@pytest.mark.parametrize(
    "line",
    [
        "x" * (LONGEST * 3),
        "Error: " * 20_000,
        "CUDA out of memory " * 5_000,
        "server_args=ServerArgs(" + "(" * 60_000,
        "server_args=ServerArgs(a=" + "[" * 2_000 + "]" * 2_000 + ")",
        "server_args=ServerArgs(" + "a=<" * 20_000,
        "server_args={" + "'a': {" * 10_000,
        '{"log": ' + "[" * 60_000,
        "\x1b[" + "1;" * 30_000,
        "\x1b]" * 30_000,
        "\r" * 60_000,
        "[2025-06-11 08:14:02" + " TP0" * 15_000,
        "http://a:" + "b" * 60_000,
        "argument --" + "a/--" * 15_000,
        "https://x " * 6_000 + "Max retries exceeded with url",
        "is not divisible by " * 3_000,
        "address ('" * 6_000 + "address already in use",
        "token=" * 10_000,
        "(pid=" * 12_000,
        "Error: " + "--abcdef " * 7_000,
        "Error: " + "must " * 12_000,
    ],
    ids=range(21),
)
def test_a_line_that_is_made_to_take_long_does_not(line: str) -> None:
    failure_classes()  # read before the clock starts
    start = time.process_time()
    is_sound(diagnose([line, "Killed"], 1), 1)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("failure", failure_classes(), ids=lambda failure: failure.kind)
def test_no_signature_takes_long_on_a_line_full_of_its_needle(failure: FailureClass) -> None:
    for signature in failure.signatures:
        line = ("Error: " + f"{signature.needles[0]} " * LONGEST)[:LONGEST]
        start = time.process_time()
        signature.fits(line, signature.needles[0])
        assert time.process_time() - start < 1, signature


_SERVING = [
    "[2026-06-11 08:15:11 TP{0}] Decode batch. #running-req: {1}, #token: {2}, token usage: 0.{1}, cuda graph: True, "
    "gen throughput (token/s): {2}.33, #queue-req: 0,",
    "[2026-06-11 08:15:11 TP{0}] Prefill batch. #new-seq: 1, #new-token: {2}, #cached-token: {1}, token usage: 0.11, ",
    '[2026-06-11 08:15:11] INFO:     10.0.0.{0}:5{2} - "POST /v1/chat/completions HTTP/1.1" 200 OK',
]
_STARTING = [
    "[2026-06-11 08:15:11 TP{0}] Load weight begin. avail mem={1}.45 GB",
    "Loading safetensors checkpoint shards:  {1}% Completed | {0}/30 [00:12<00:45,  1.2it/s]",
    "/usr/lib/python3.12/warnings.py:{1}: UserWarning: TORCH_CUDA_ARCH_LIST is not set, all archs are included. {2}",
    "node{0}:{2}:{1} [0] NCCL INFO Channel {1}/0 : 0[0] -> 1[1] via P2P/CUMEM",
    "[2026-06-11 08:15:11 TP{0}] Using configuration from /x/E={1},N={2},device_name=NVIDIA_H200.json for MoE layer.",
]


@pytest.mark.thorough
@pytest.mark.parametrize(("lines", "times"), [(_SERVING, 3), (_STARTING, 75)], ids=["serving", "starting"])
def test_a_large_log_costs_few_times_what_one_search_in_each_line_costs(
    lines: list[str], times: int, tmp_path: Path
) -> None:
    """A ratio within one run, so that a slow machine does not matter: about a third of each limit is usual."""
    log = tmp_path / "server.log"
    log.write_text("".join(f"{lines[i % len(lines)].format(i % 8, i % 97, i * 7919 % 99991)}\n" for i in range(12_000)))
    plain = re.compile("(?:Error|Exception|Traceback|out of memory|[Ff]ailed|Killed)")

    def seconds(read: Callable[[Iterable[str]], object]) -> float:
        start = time.process_time()
        with log.open(encoding="utf-8") as content:
            read(content)
        return time.process_time() - start

    def search(content: Iterable[str]) -> int:
        return sum(plain.search(line) is not None for line in content)

    diagnose(lines)  # read the classes before the clock starts
    assert min(seconds(diagnose) for _ in range(3)) < times * min(seconds(search) for _ in range(5))


def test_what_is_remembered_does_not_grow_with_the_log() -> None:
    def lines() -> Iterator[str]:
        for number in range(5_000):
            yield f"pod-{number} | [2025-06-11 08:14:02 TP{number}] Load weight begin. avail mem=1.00 GB"
            yield f"pod-{number} | [2025-06-11 08:14:02 TP{number}] Scheduler hit: Traceback (most recent call last):"
            yield f'pod-{number} |   File "/x/{number}.py", line 1, in f'
            yield f"pod-{number} | ValueError: {number} is not divisible by 3 on GPU {number}: NVIDIA H{number}"
            if number % 100 == 0:
                yield "[2025-06-11 08:14:02] Received sigquit from a child process. It usually means the child failed."
                yield f"[2025-06-11 08:14:02] server_args=ServerArgs(model_path='m{number}')"

    reader = LogReader().read(lines())
    assert len(reader.lives) <= 32
    assert len(reader.last) <= 20
    assert len(reader._traces._traces) <= 64
    assert max(len(life.stages) for life in reader.lives) <= 4096
    assert max(len(life.evidence) for life in reader.lives) <= len(failure_classes()) * 4
    assert len(reader.devices._names) <= 64


@pytest.mark.corpus
@pytest.mark.parametrize("failure", failure_classes(), ids=lambda failure: failure.kind)
def test_a_needle_alone_in_a_sentence_is_never_another_class_than_one_that_has_it(failure: FailureClass) -> None:
    """A needle may be too little, but where it is enough the class is one that declares it or a part of it."""
    for needle in (text for signature in failure.signatures for text in signature.needles):
        line = f"RuntimeError: {needle} x"
        owners = {
            owner.kind
            for owner in failure_classes()
            for other in owner.signatures
            if any(text in line for text in other.needles)
        }
        assert diagnose([line], 1).kind in owners | {UNKNOWN}
