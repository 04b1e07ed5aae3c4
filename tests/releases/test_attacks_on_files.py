"""What lies in the cache in place of a file, or beside one: nobody waits for it, and no answer changes by it."""

from __future__ import annotations

import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sglang_hydra.facts.tiny import ensure_tiny
from sglang_hydra.releases import answers
from sglang_hydra.releases.process import changed_file, end_children
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.private import make_private
from tests.releases.test_attacks import DRIVER, OTHER_USER, Cache, cache

__all__ = ["cache"]
WAIT_S = 30


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    """Ends a test that waits: a pipe has no writer here."""

    def end(number: int, frame: object) -> None:
        raise TimeoutError(f"it took more than {WAIT_S} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(WAIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def put_a_pipe(file: Path) -> None:
    os.mkfifo(file)


def put_a_device(file: Path) -> None:
    file.symlink_to("/dev/zero")


def put_a_folder(file: Path) -> None:
    file.mkdir()


def put_five_gigabytes(file: Path) -> None:
    with open(file, "wb") as stream:
        stream.truncate(5 << 30)


PUTS = {put.__name__: put for put in (put_a_pipe, put_a_device, put_a_folder, put_five_gigabytes)}
PLACES: dict[str, Callable[[Cache], Path]] = {
    "answer": Cache.answer,
    "byte code": Cache.codes,
    "list": lambda cache: next(cache.place.glob("*.dist-info/RECORD")),
    "metadata": lambda cache: next(cache.place.glob("*.dist-info/METADATA")),
    "source": lambda cache: cache.main,
    "data": lambda cache: cache.main.parent / "data.json",
}
KEPT = {"answer": ("path", "org/name"), "byte code": ("driver", DRIVER)}
"""What is not used, and then asked again."""


@pytest.mark.corpus
@pytest.mark.parametrize("put", PUTS.values(), ids=PUTS)
@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_file_is_not_waited_for(place: str, put: Callable[[Path], None], cache: Cache) -> None:
    file = PLACES[place](cache)
    if place not in KEPT:
        shutil.rmtree(cache.root / "codes")
    file.unlink()
    put(file)
    end_children()
    answers._held.clear()
    question, expected = KEPT.get(place, ("data", None))
    answered, findings = cache.outcome("--ask", question)
    if place == "data" and put is put_a_folder:
        assert "IsADirectoryError" in str(answered)
        return
    assert answered == expected
    assert [finding.id for finding in findings] == ([] if place in KEPT else ["REL003"])
    assert all("rm -r /, " not in str(finding.hint) for finding in findings)


def test_no_hint_removes_what_is_no_wheel() -> None:
    assert "rm -r /dev/zero," in str(changed_file("/dev/zero").findings[0].hint)
    assert "rm -r /c/wheels/x," in str(changed_file("/c/wheels/x/sglang/a.py").findings[0].hint)


@pytest.mark.parametrize(
    "name", ["sglang-99.0.dist-info", "sglang-0.0.dist-info", "SGLang-99.dist-info", "sglang.egg-info"]
)
def test_an_empty_folder_of_metadata_is_no_version(name: str, cache: Cache) -> None:
    assert cache.ask("--ask", "version") == "0.5.2"
    shutil.rmtree(cache.root / "answers")
    (cache.place / name).mkdir()
    end_children()
    answers._held.clear()
    answered, findings = cache.outcome("--ask", "version")
    assert answered == "0.5.2" or [finding.id for finding in findings] == ["REL003"]


def test_a_file_that_was_added_is_not_there(cache: Cache) -> None:
    (cache.main.parent / "added.json").write_text("{}")
    assert cache.ask("--ask", "exists") is False
    with pytest.raises(MachineError, match=r"REL003: .*/added\.json is not what its wheel had"):
        cache.ask("--ask", "listed")


def test_our_own_leftovers_are_no_change(cache: Cache) -> None:
    (cache.main.parent / "__pycache__").mkdir()
    (cache.main.parent / ".verified").touch()
    assert "server_args.py" in str(cache.ask("--ask", "listed"))


@pytest.mark.parametrize("how", ["of another user", "writable"])
def test_a_tiny_model_that_others_can_write_is_not_served(how: str, tmp_path: Path) -> None:
    made = ensure_tiny(tmp_path)
    if how == "writable" or os.getuid():
        made.chmod(0o775)
    else:
        os.chown(made, OTHER_USER, OTHER_USER)
    with pytest.raises(MachineError, match="REL015"):
        ensure_tiny(tmp_path)


def test_folders_are_private_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        make_private(tmp_path / "home" / "cache" / "wheels")
    finally:
        os.umask(before)
    for folder in ("home", "home/cache", "home/cache/wheels"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700
