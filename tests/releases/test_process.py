"""A child ends with its parent, in time, and is started again where it has ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sglang_hydra.releases import process, wheels
from sglang_hydra.releases.process import Child, ChildFailed, child_for, end_children
from tests.releases.fake import FILES, unpacked_release
from tests.releases.test_child import H200

CASE = {"machine": {}, "models": {}}
ROOT = Path(__file__).parents[2]


def _places(record: process.Record) -> list[Path]:
    return [place for wheel in record.wheels if (place := wheels.place_of(wheel))]


def test_a_case_that_takes_too_long_ends_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = unpacked_release(tmp_path, monkeypatch)
    monkeypatch.setattr(process, "_MARGIN_S", 0.2)
    child = Child(record, _places(record), H200, limit_s=0.3)
    with pytest.raises(ChildFailed, match="no answer within 0 s"):
        child.ask({"argv": ["--model-path", "x", "--ask", "hang"], **CASE})
    child.end()
    assert not child.is_alive


def test_a_child_that_ended_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = unpacked_release(tmp_path, monkeypatch)
    child = child_for(record, _places(record), H200)
    with pytest.raises(ChildFailed, match="it ended"):
        child.ask({"argv": ["--model-path", "x", "--ask", "die"], **CASE})
    other = child_for(record, _places(record), {**H200, "memory_mib": 1})
    assert other is not child
    assert other.ask({"argv": ["--model-path", "x"], **CASE})["ok"]
    assert child_for(record, _places(record), H200) is other
    end_children()
    assert not other.is_alive


def test_no_more_children_live_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = unpacked_release(tmp_path, monkeypatch)
    kinds = [{**H200, "environment": {"SGLANG_N": str(number)}} for number in range(process.MOST_CHILDREN + 1)]
    children = [child_for(record, _places(record), kind) for kind in kinds]
    assert [child.is_alive for child in children] == [False, *[True] * process.MOST_CHILDREN]
    end_children()


def test_a_release_that_cannot_be_imported_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {**FILES, "sglang/srt/server_args.py": "import sglang.srt.gone"}
    record = unpacked_release(tmp_path, monkeypatch, files)
    with pytest.raises(ChildFailed, match=r"cannot be imported: ModuleNotFoundError: .*sglang\.srt\.gone"):
        Child(record, _places(record), H200)


@pytest.mark.thorough
@pytest.mark.parametrize("busy", [False, True])
def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: bool) -> None:
    record = unpacked_release(tmp_path, monkeypatch)
    program = f"""
import json, os, sys
from pathlib import Path
from sglang_hydra.releases.process import Child
from sglang_hydra.releases.records import Record, Wheel, WheelFile
places = [Path(place) for place in {list(map(str, _places(record)))!r}]
child = Child({record!r}, places, json.loads({json.dumps(H200)!r}))
print(child._process.pid, flush=True)
if {busy}:
    child.ask({{"argv": ["--model-path", "x", "--ask", "hang"], "machine": {{}}, "models": {{}}}})
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert _runs(child)
        parent.kill()
    deadline = time.monotonic() + 30
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    """Whether a process is there and has not ended: one that nobody has waited for counts as ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip()[:1] not in ("", "Z")
