"""Files of a sweep are there whole or not at all."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sglang_hydra.measure.sweep.files import create, publish, read_json, write_below


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_a_file_is_written_in_place_of_the_one_before(tmp_path: Path) -> None:
    write_below(tmp_path / "one" / "a.json", "1")
    write_below(tmp_path / "one" / "a.json", "22")
    assert (tmp_path / "one" / "a.json").read_text() == "22"
    assert names(tmp_path / "one") == ["a.json"]


def test_what_is_published_is_never_overwritten(tmp_path: Path) -> None:
    assert publish(tmp_path / "a.json", "first")
    assert not publish(tmp_path / "a.json", "second")
    assert (tmp_path / "a.json").read_text() == "first"
    assert names(tmp_path) == ["a.json"]


@pytest.mark.parametrize("links", [True, False], ids=["with links", "a file system without links"])
def test_of_many_writers_one_publishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    if not links:
        monkeypatch.setattr(os, "link", _no_links)
    together, said = threading.Barrier(8), []

    def write(number: int) -> None:
        together.wait()
        said.append((publish(tmp_path / "a.json", str(number)), str(number)))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [number for good, number in said if good] == [(tmp_path / "a.json").read_text()]


def test_a_writer_that_died_without_links_blocks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", _no_links)

    def dies(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            publish(tmp_path / "a.json", "lost")
    assert publish(tmp_path / "a.json", "there")
    assert (tmp_path / "a.json").read_text() == "there"


def _no_links(source: Path, target: Path) -> None:
    raise OSError(errno.EOPNOTSUPP, "no links here")


@pytest.mark.parametrize("write", [write_below, publish, create])
def test_a_full_disk_harms_nothing(tmp_path: Path, write: object) -> None:
    """The limit on a file's size is met in the middle of the writing, as a full disk is."""
    there = tmp_path / "there.json"
    write_below(there, "kept")
    code = (
        "import signal, sys\n"
        "from pathlib import Path\n"
        "from sglang_hydra.measure.sweep.files import *\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"for name in ('there.json', 'new.json'):\n"
        f"    try: print({write.__name__}(Path({str(tmp_path)!r}) / name, 'x' * 100_000))\n"  # type: ignore[attr-defined]
        "    except OSError as failure: print(failure.errno)\n"
    )

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))

    done = subprocess.run([sys.executable, "-c", code], preexec_fn=limit, capture_output=True, text=True, timeout=60)
    # What is there already is no error for the two that never replace; publish has to draft before it looks.
    first = "False" if write is create else str(errno.EFBIG)
    assert done.stdout.split() == [first, str(errno.EFBIG)], done.stderr
    assert there.read_text() == "kept"
    assert names(tmp_path) == ["there.json"]


def test_what_is_no_object_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1]")
    assert read_json(tmp_path / "none.json") is None
    with pytest.raises(ValueError, match="holds no object"):
        read_json(tmp_path / "list.json")
