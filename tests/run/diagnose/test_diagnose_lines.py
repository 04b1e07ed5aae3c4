"""Lines as they were written, without what stands in front of them."""

from __future__ import annotations

import io
import json

import pytest

from sglang_hydra.run.diagnose.lines import LONGEST, Cleaner, Line, read_lines

HEADED = "[2025-06-26 07:25:31 DP4 TP4] Watchdog timeout"


def cleaned(*raw: str) -> list[Line]:
    cleaner = Cleaner()
    return [line for number, text in enumerate(raw, 1) for line in cleaner.clean(number, text)]


@pytest.mark.parametrize(
    ("raw", "text", "stream"),
    [
        (HEADED, "Watchdog timeout", ""),
        (f"2025-06-26T07:25:31.123456789Z {HEADED}", "Watchdog timeout", ""),
        (f"2025-06-26T07:25:31.12+08:00 stdout F {HEADED}", "Watchdog timeout", ""),
        (f"sglang-1  | {HEADED}", "Watchdog timeout", "sglang-1"),
        (f"[pod/sglang-0/server] {HEADED}", "Watchdog timeout", "pod/sglang-0/server"),
        (f"(SGLangEngine pid=952, ip=10.1.2.3) {HEADED}", "Watchdog timeout", "(SGLangEngine pid=952, ip=10.1.2.3)"),
        (f"2025-06-26 07:25:31,530 - __main__ - INFO - {HEADED}", "Watchdog timeout", ""),
        (f"ERROR 2025-06-26T07:25:31.1Z {HEADED}", "Watchdog timeout", ""),
        (f"Jun 26 07:25:31 gpu-7 sglang[812]: {HEADED}", "Watchdog timeout", ""),
        (f"> {HEADED}", "Watchdog timeout", ""),
        (f"2025-06-26 07:25:31.123 | ERROR    | sglang.srt:run:12 - {HEADED}", "Watchdog timeout", ""),
        (f"2025-06-26 07:25:31 | ERROR | stderr | {HEADED}", "Watchdog timeout", ""),
        (f"[2025-06-26T07:25:31+08:00] job-3da56 >> {HEADED}", "Watchdog timeout", ""),
        (f"3: {HEADED}", "Watchdog timeout", "3"),
        (f"  3: {HEADED}", "Watchdog timeout", "3"),
        (f"2025-06-26T07:25:31+0000 gpu-7 sglang[812]: {HEADED}", "Watchdog timeout", ""),
        (f"2025-06-26 07:25:31.123\t{HEADED}", "Watchdog timeout", ""),
        (f"\x1b[1;31m{HEADED}\x1b[0m", "Watchdog timeout", ""),
        (json.dumps({"log": HEADED + "\n", "stream": "stderr"}), "Watchdog timeout", ""),
        (json.dumps({"message": HEADED, "level": "error"}), "Watchdog timeout", ""),
        (f"sglang-0 server {HEADED}", "Watchdog timeout", "sglang-0 server"),
    ],
)
def test_a_prefix_is_taken_away(raw: str, text: str, stream: str) -> None:
    (line,) = cleaned(raw)
    assert (line.text, line.stream, line.rank, line.headed) == (text, stream, "DP4 TP4", True)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("[rank3]: Traceback (most recent call last):", "Traceback (most recent call last):"),
        ("[default3]:RuntimeError: x", "RuntimeError: x"),
        ("[1,3]<stderr>:RuntimeError: x", "RuntimeError: x"),
        ('2025-06-26T07:25:31Z   File "a.py", line 1, in f', '  File "a.py", line 1, in f'),
        ("    | ValueError: x", "ValueError: x"),
        ("  +-+---------------- 1 ----------------", "1 ----------------"),
        ('{"error": "no message of a log"}', '{"error": "no message of a log"}'),
        ("{not json}", "{not json}"),
        ("plain", "plain"),
    ],
)
def test_what_is_no_prefix_stays(raw: str, text: str) -> None:
    assert [line.text for line in cleaned(raw)] == [text]


def test_a_log_that_is_indented_as_a_whole_is_read_without_it() -> None:
    lines = cleaned(f"    {HEADED}", '      File "a.py", line 1, in f', "    RuntimeError: x", HEADED, "    y = f(x)")
    assert [line.text for line in lines][1:] == ['  File "a.py", line 1, in f', "RuntimeError: x", "Watchdog timeout",
                                                 "    y = f(x)"]  # fmt: skip


def test_a_progress_bar_is_as_many_lines_as_it_was_drawn() -> None:
    lines = cleaned("\rLoading:  10%\rLoading: 100%\rRuntimeError: x")
    assert [line.text for line in lines] == ["Loading:  10%", "Loading: 100%", "RuntimeError: x"]
    assert {line.number for line in lines} == {1}


def test_the_pieces_of_a_line_that_the_runtime_split_are_joined() -> None:
    time = "2025-06-26T07:25:31.1Z stdout"
    lines = cleaned(f"{time} P server_args=Server", f"{time} P Args(a=1, ", f"{time} F b=2)", f"{time} F next")
    assert [line.text for line in lines] == ["server_args=ServerArgs(a=1, b=2)", "next"]


@pytest.mark.parametrize(
    ("raw", "warning"),
    [
        ("/x/torch/cuda/__init__.py:129: UserWarning: CUDA initialization: no", True),
        ("WARNING 06-26 18:37:04 [_custom_ops.py:22] Failed to import", True),
        ("[W208 00:55:32.44 socket.cpp:487] [c10d] timed out", True),
        ("RuntimeError: x", False),
        ("[E208 00:55:32.44 ProcessGroupNCCL.cpp:607] x", False),
    ],
)
def test_a_line_that_calls_itself_a_warning_is_known(raw: str, warning: bool) -> None:
    assert cleaned(raw)[0].warning is warning


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb", ["a\r", "b"]),
        (b"", []),
        (b"\n\n", ["", ""]),
        (b"\xff\xfe" + "é\nb".encode("utf-16-le"), ["é", "b"]),
        (b"\xc3\x28\n", ["\ufffd("]),
        (b"\x00\x01\n", ["\x00\x01"]),
    ],
)
def test_bytes_become_lines(content: bytes, lines: list[str]) -> None:
    assert list(read_lines(io.BytesIO(content))) == lines


def test_a_line_without_an_end_is_cut() -> None:
    lines = list(read_lines(io.BytesIO(b"x" * (3 << 20) + b"\nend\n")))
    assert [len(lines[0]), lines[1]] == [LONGEST, "end"]


def test_what_is_remembered_between_lines_is_bounded() -> None:
    cleaner = Cleaner()
    for number in range(5000):
        list(cleaner.clean(number, f"stream-{number} | 2025-06-26T07:25:31.1Z stdout P x"))
    assert len(cleaner._begun) <= 256
