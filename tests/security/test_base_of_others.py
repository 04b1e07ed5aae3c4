"""``check --base`` of a checkout whose own config names programs: none is started, and the twin still works."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sglang_hydra.convert.review import base
from tests.commands import Run, runner

SERVER = "gpu: h200\nmodel: qwen3_8b\n"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def git(folder: Path, *words: str) -> str:
    own = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *own, *words], cwd=folder, check=True, timeout=60, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.yaml").write_text(SERVER)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "state")
    (folder / "a.yaml").write_text(f"{SERVER}tp_size: 2\n")
    monkeypatch.chdir(folder)
    return folder


def _filter(repo: Path, program: str) -> None:
    (repo / ".gitattributes").write_text("*.yaml filter=evil\n")
    git(repo, "add", ".gitattributes")
    git(repo, "commit", "--quiet", "--message", "attributes")
    for key in ("smudge", "clean", "process"):
        git(repo, "config", f"filter.evil.{key}", program)


def _attributes_of_the_clone(repo: Path, program: str) -> None:
    (repo / ".git" / "info").mkdir(exist_ok=True)
    (repo / ".git" / "info" / "attributes").write_text("*.yaml filter=evil diff=evil\n")
    for key in ("filter.evil.smudge", "filter.evil.clean", "diff.evil.textconv", "diff.external"):
        git(repo, "config", key, program)


def _monitor_and_hooks(repo: Path, program: str) -> None:
    for hook in ("post-checkout", "post-index-change", "reference-transaction"):
        (repo / ".git" / "hooks" / hook).write_text(f"#!/bin/sh\n{program}\n")
        (repo / ".git" / "hooks" / hook).chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "core.sshCommand", "core.alternateRefsCommand", "gpg.program"):
        git(repo, "config", key, program)


PROGRAMS = {"filter": _filter, "attributes": _attributes_of_the_clone, "monitor": _monitor_and_hooks}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_no_program_of_the_checkouts_config_is_started(kind: str, repo: Path, run: Run, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    set_up: Callable[[Path, str], None] = PROGRAMS[kind]
    set_up(repo, f"touch {ran}; cat")
    ran.unlink(missing_ok=True)  # git's own commands above may start it
    printed = run("check", "--base", "HEAD", "a.yaml")
    assert "moves tp_size from 1 to 2" in printed.out
    assert not ran.exists()


@pytest.mark.parametrize("gone", ["a blob", "the commit"])
def test_nothing_is_fetched_by_a_partial_clone(gone: str, repo: Path, run: Run, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    missing = git(repo, "rev-parse", "HEAD:a.yaml" if gone == "a blob" else "HEAD")
    git(repo, "config", "core.repositoryformatversion", "1")
    git(repo, "config", "extensions.partialClone", "evil")
    (program := tmp_path / "program").write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    git(repo, "config", "remote.evil.url", f"ext::{program}")
    git(repo, "config", "remote.evil.promisor", "true")
    git(repo, "config", "protocol.ext.allow", "always")
    (repo / ".git" / "objects" / missing[:2] / missing[2:]).unlink()
    printed = run("check", "--base", "HEAD", "a.yaml")
    assert (printed.code, "REV002" in printed.err + printed.out) == (2, True)
    assert not ran.exists()


def test_a_tree_that_leads_out_of_its_folder_writes_nothing_there(repo: Path, run: Run, tmp_path: Path) -> None:
    (outside := tmp_path / "outside").mkdir()
    blob = git(repo, "rev-parse", "HEAD:a.yaml")
    (repo / "target").write_text(str(outside))
    link = git(repo, "hash-object", "-w", "target")
    inner = tree(repo, f"100644 planted {blob}")
    links = tree(repo, f"120000 planted {link}")
    own, way = f"100644 a.yaml {blob}", f"120000 way {link}"
    rows = {
        (f"40000 .. {inner}", own): 2,
        (f"40000 .git {inner}", own): 2,
        (own, way, f"40000 way {inner}"): 0,
        (own, way, f"40000 way {links}"): 0,  # a link that would be written through a link
        (own, f"100644 {'x' * 300} {blob}"): 0,  # no file system takes it
    }
    for top, code in rows.items():
        commit = git(repo, "commit-tree", tree(repo, *top), "-m", "hostile")
        printed = run("check", "--base", commit, "a.yaml")
        assert (printed.code, "REV002" in printed.err) == (code, code == 2), top
        assert not list(outside.iterdir())


@pytest.mark.thorough
def test_a_revision_of_few_bytes_and_billions_of_files_is_refused(repo: Path, run: Run) -> None:
    made = tree(repo, *(f"100644 f{number} {git(repo, 'rev-parse', 'HEAD:a.yaml')}" for number in range(10)))
    for _ in range(9):
        made = tree(repo, *(f"40000 d{number} {made}" for number in range(10)))
    began = time.monotonic()
    printed = run("check", "--base", git(repo, "commit-tree", made, "-m", "bomb"), "a.yaml")
    assert (printed.code, "REV002" in printed.err) == (2, True)
    assert time.monotonic() - began < 30


@pytest.mark.thorough
def test_a_config_that_never_ends_is_a_finding(repo: Path, run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    git(repo, "config", "include.path", str(tmp_path / "pipe"))
    printed = run("check", "--base", "HEAD", "a.yaml")
    assert (printed.code, "git takes more than 2 s of the processor, or 5 s" in " ".join(printed.err.split())) == (
        2,
        True,
    )


def tree(repo: Path, *rows: str) -> str:
    """Writes a tree of any rows: ``MODE NAME BLOB``."""
    split = [row.split(" ") for row in rows]
    raw = b"".join(f"{mode} {name}".encode() + b"\0" + bytes.fromhex(of) for mode, name, of in split)
    words = ["git", "hash-object", "-t", "tree", "-w", "--stdin", "--literally"]
    done = subprocess.run(words, cwd=repo, input=raw, capture_output=True, check=True, timeout=60)
    return done.stdout.decode().strip()


def test_a_revision_has_its_bytes_links_and_folders(repo: Path, run: Run) -> None:
    (repo / "inner").mkdir()
    (repo / "inner" / "b.yaml").write_text(SERVER)
    (repo / "c.yaml").symlink_to("inner/b.yaml")
    git(repo, "add", "inner", "c.yaml")
    git(repo, "commit", "--quiet", "--message", "more")
    (repo / "inner" / "b.yaml").write_text(f"{SERVER}page_size: 16\n")
    printed = run("check", "--base", "HEAD", "c.yaml", "inner/b.yaml")
    assert printed.out.count("moves page_size from 1 to 16") == 2


def test_what_is_too_deep_or_too_large_of_a_revision_is_left_out() -> None:
    for name, size, is_read in (("a/" * 200, 9, True), ("a/" * 201, 9, False), ("a/", (256 << 20) + 1, False)):
        assert (base._Row.of(f"100644 blob {'0' * 40} {size}\t{name}x.yaml") is not None) is is_read
    assert (base._FILES, base._BYTES, base._CPU_S, base._NAME_S, base._OBJECTS_S) == (50_000, 512 << 20, 2, 5, 20)
