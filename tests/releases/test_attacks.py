"""Attacks on the cache by whoever can write into it: what runs and what is answered is what was pinned."""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib.util
import json
import marshal
import os
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from sglang_hydra.releases import answers, wheels
from sglang_hydra.releases.case import Case, machine_facts
from sglang_hydra.releases.process import end_children
from sglang_hydra.releases.records import Record
from sglang_hydra.releases.release import ask_release
from sglang_hydra.text import private, user_settings
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from tests.releases.fake import FILES, VERSION, unpacked_release
from tests.releases.test_child import CONFIG
from tests.releases.test_wheels import GPU

MAIN = "sglang/srt/server_args.py"
OTHER_USER = 65534
DRIVER = "595.58.03"
REFUSED = ("which was not fetched", "unanswered question: the file")
DATA = '"data": lambda args: open(os.path.join(os.path.dirname(__file__), "data.json")).read(),\n    '
ABSENT = '"absent_module": lambda args: __import__("winreg"),\n    '
ADDED = """"exists": lambda args: os.path.exists(os.path.join(os.path.dirname(__file__), "added.json")),
    "version": lambda args: __import__("importlib.metadata").metadata.version("sglang"),
    "listed": lambda args: sorted(os.listdir(os.path.dirname(__file__))),
    """
QUESTIONS = "QUESTIONS = {\n    "
RELEASE = {
    **FILES,
    MAIN: FILES[MAIN].replace(QUESTIONS, QUESTIONS + DATA + ABSENT + ADDED),
    "sglang/srt/data.json": '"as packed"',
}


class Cache:
    """A cache with a release that was asked once, and what an attacker would run."""

    def __init__(self, record: Record, root: Path) -> None:
        self.record, self.root = record, root
        self.ran = root.parent / "ran"
        self.evil = f"open({str(self.ran)!r}, 'w').close()\nraise SystemExit\n"
        self.code = compile(self.evil, "evil", "exec")
        place, library = (wheels.place_of(wheel) for wheel in record.wheels)
        assert place is not None
        assert library is not None
        self.place, self.library = place, library
        self.main = place / MAIN

    def ask(self, *words: str) -> object:
        case = Case(("--model-path", "org/name", *words), machine_facts(GPU), {"org/name": CONFIG})
        (answer,) = ask_release(VERSION, [case])
        return answer.values.get("found") if answer.ok else answer.unanswered or answer.error

    def outcome(self, *words: str) -> tuple[object, Sequence[Finding]]:
        try:
            return self.ask(*words), ()
        except MachineError as failure:
            return None, failure.findings

    def answer(self) -> Path:
        (file,) = self.answers()
        return file

    def answers(self) -> list[Path]:
        return [file for file in (self.root / "answers").rglob("*") if file.is_file()]

    def codes(self) -> Path:
        (file,) = (self.root / "codes").iterdir()
        return file


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cache]:
    monkeypatch.delenv("SGLANG_HYDRA_SETTINGS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    user_settings.begin()
    private._key.cache_clear()
    made = Cache(unpacked_release(tmp_path, monkeypatch, RELEASE), tmp_path / "cache")
    assert made.ask("--ask", "path") == "org/name"
    end_children()
    yield made
    end_children()
    monkeypatch.undo()
    user_settings.begin()
    private._key.cache_clear()


def hash_of(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def stated(cache: Cache, file: Path) -> None:
    """Writes the hash that a file has now into the list of its wheel."""
    listed = next(cache.place.glob("sglang-*.dist-info/RECORD"))
    rows = [row for row in listed.read_text().splitlines() if not row.startswith(f"{MAIN},")]
    name = file.relative_to(cache.place).as_posix()
    listed.write_text("\n".join([*rows, f"{name},{hash_of(file.read_bytes())},"]) + "\n")


def change_source(cache: Cache) -> None:
    cache.main.write_text(cache.evil + cache.main.read_text())


def change_source_at_its_length_and_time(cache: Cache) -> None:
    before = cache.main.stat()
    content = cache.evil.encode()
    cache.main.write_bytes(content + b"#" * (before.st_size - len(content)))
    os.utime(cache.main, ns=(before.st_atime_ns, before.st_mtime_ns))


def change_source_and_list(cache: Cache) -> None:
    change_source(cache)
    stated(cache, cache.main)


def add_a_second_list(cache: Cache) -> None:
    change_source(cache)
    (cache.place / "zz.dist-info").mkdir()
    (cache.place / "zz.dist-info" / "RECORD").write_text(f"{MAIN},{hash_of(cache.main.read_bytes())},\n")


def add_a_second_list_in_front(cache: Cache) -> None:
    add_a_second_list(cache)
    (cache.place / "zz.dist-info").rename(cache.place / "aa.dist-info")


def forge_the_seal_of_earlier_versions(cache: Cache) -> None:
    change_source(cache)
    (cache.place / ".verified").write_text("0" * 64)


def remove_the_list(cache: Cache) -> None:
    change_source(cache)
    next(cache.place.glob("*.dist-info/RECORD")).unlink()


def empty_the_list(cache: Cache) -> None:
    change_source(cache)
    next(cache.place.glob("*.dist-info/RECORD")).write_text("")


def state_a_weaker_hash(cache: Cache) -> None:
    change_source(cache)
    listed = next(cache.place.glob("*.dist-info/RECORD"))
    listed.write_text(f"{MAIN},md5={hashlib.md5(cache.main.read_bytes()).hexdigest()},\n")


def plant_byte_code(cache: Cache, flags: int) -> None:
    state = cache.main.stat()
    known = struct.pack("<II", int(state.st_mtime), state.st_size) if not flags else importlib.util.source_hash(b"")
    file = Path(importlib.util.cache_from_source(str(cache.main)))
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(importlib.util.MAGIC_NUMBER + struct.pack("<I", flags) + known + marshal.dumps(cache.code))


def plant_byte_code_by_time(cache: Cache) -> None:
    plant_byte_code(cache, 0)


def plant_byte_code_that_is_not_checked(cache: Cache) -> None:
    plant_byte_code(cache, 1)


def plant_byte_code_without_a_source(cache: Cache) -> None:
    plant_byte_code(cache, 0)
    planted = Path(importlib.util.cache_from_source(str(cache.main)))
    planted.rename(cache.main.with_suffix(".pyc"))
    cache.main.unlink()


def add_a_library_of_its_name(cache: Cache) -> None:
    cache.main.with_name(f"server_args{EXTENSION_SUFFIXES[0]}").write_bytes(b"\x7fELF")


def add_a_package_of_its_name(cache: Cache) -> None:
    folder = cache.main.with_suffix("")
    folder.mkdir()
    (folder / "__init__.py").write_text(cache.evil)


def add_a_module_beside_it(cache: Cache) -> None:
    (cache.main.parent / "json.py").write_text(cache.evil)


def add_a_module_of_a_name_in_the_standard_library(cache: Cache) -> None:
    (cache.place / "psutil.py").write_text(cache.evil)
    (cache.place / "winreg.py").write_text(cache.evil)
    assert "winreg" in str(cache.ask("--ask", "absent_module"))


def add_what_python_runs_at_its_start(cache: Cache) -> None:
    for name in ("sitecustomize.py", "usercustomize.py", "encodings/__init__.py", "evil.pth"):
        (cache.place / name).parent.mkdir(exist_ok=True)
        (cache.place / name).write_text(f"import os; {cache.evil}" if name.endswith(".pth") else cache.evil)


def link_the_source(cache: Cache) -> None:
    other = cache.root.parent / "other.py"
    other.write_text(cache.evil)
    cache.main.unlink()
    cache.main.symlink_to(other)


def link_the_package(cache: Cache) -> None:
    shutil.move(cache.place / "sglang", cache.root.parent / "package")
    (cache.root.parent / "package" / "srt" / "server_args.py").write_text(cache.evil)
    (cache.place / "sglang").symlink_to(cache.root.parent / "package")


def link_the_wheel(cache: Cache) -> None:
    shutil.move(cache.place, cache.root.parent / "wheel")
    (cache.root.parent / "wheel" / MAIN).write_text(cache.evil)
    cache.place.symlink_to(cache.root.parent / "wheel")


def change_a_library(cache: Cache) -> None:
    file = cache.library / "transformers" / "__init__.py"
    file.write_text(cache.evil + file.read_text())


def change_the_metadata(cache: Cache) -> None:
    file = next(cache.place.glob("*.dist-info/METADATA"))
    file.write_text(file.read_text() + "Requires-Dist: evil==1\n")


def add_another_version_of_a_library(cache: Cache) -> None:
    (cache.library / "transformers-99.dist-info").mkdir()
    (cache.library / "transformers-99.dist-info" / "METADATA").write_text("Name: transformers\nVersion: 99\n")


def put_byte_code_of_another_key(cache: Cache) -> None:
    planted = marshal.dumps({f"{hash_of(cache.main.read_bytes())} {cache.main}": marshal.dumps(cache.code)})
    cache.codes().write_bytes(hmac.digest(b"", planted, "sha256") + planted)


def put_byte_code_behind_the_mark(cache: Cache) -> None:
    mark = cache.codes().read_bytes()[:32]
    cache.codes().write_bytes(
        mark + marshal.dumps({f"{hash_of(cache.main.read_bytes())} {cache.main}": marshal.dumps(cache.code)})
    )


def put_half_of_the_byte_code(cache: Cache) -> None:
    cache.codes().write_bytes(cache.codes().read_bytes()[:99])


def put_byte_code_of_another_release(cache: Cache) -> None:
    planted = marshal.dumps({f"{hash_of(cache.main.read_bytes())} {cache.main}": marshal.dumps(cache.code)})
    key = private.mark("byte code of another release")
    cache.codes().write_bytes(hmac.digest(key, planted, hashlib.sha256) + planted)


CODE = {
    attack.__name__: attack
    for attack in (
        *(change_source, change_source_at_its_length_and_time, change_source_and_list, add_a_second_list),
        *(add_a_second_list_in_front, forge_the_seal_of_earlier_versions, remove_the_list, empty_the_list),
        *(state_a_weaker_hash, plant_byte_code_by_time, plant_byte_code_that_is_not_checked),
        *(plant_byte_code_without_a_source, add_a_library_of_its_name, add_a_package_of_its_name),
        *(add_a_module_beside_it, add_a_module_of_a_name_in_the_standard_library, add_what_python_runs_at_its_start),
        *(link_the_source, link_the_package, link_the_wheel, change_a_library, change_the_metadata),
        *(add_another_version_of_a_library, put_byte_code_of_another_key, put_byte_code_behind_the_mark),
        *(put_half_of_the_byte_code, put_byte_code_of_another_release),
    )
}


@pytest.mark.corpus
@pytest.mark.parametrize("is_compiled", [True, False], ids=["with our byte code", "without"])
@pytest.mark.parametrize("attack", CODE.values(), ids=CODE)
def test_what_runs_is_what_was_pinned(attack: Callable[[Cache], None], is_compiled: bool, cache: Cache) -> None:
    attack(cache)
    end_children()
    if not is_compiled:
        shutil.rmtree(cache.root / "codes")
    answered, findings = cache.outcome("--ask", "driver")
    is_refused = [finding.id for finding in findings] == ["REL003"] or any(word in str(answered) for word in REFUSED)
    assert answered == DRIVER or is_refused
    assert not cache.ran.exists()


@pytest.mark.parametrize("attack", [change_source, link_the_source, change_a_library])
def test_changed_code_is_named(attack: Callable[[Cache], None], cache: Cache) -> None:
    attack(cache)
    shutil.rmtree(cache.root / "codes")
    with pytest.raises(MachineError, match=r"REL003: .*\.py is not what its wheel had"):
        cache.ask("--ask", "driver")


def test_changed_data_of_a_wheel_is_not_read(cache: Cache) -> None:
    assert cache.ask("--ask", "data") == '"as packed"'
    shutil.rmtree(cache.root / "answers")
    answers._held.clear()
    (cache.main.parent / "data.json").write_text('"changed"')
    with pytest.raises(MachineError, match=r"REL003: .*/data\.json is not what its wheel had"):
        cache.ask("--ask", "data")


def edited(cache: Cache, content: str) -> bytes:
    return content.replace('"found": "org/name"', '"found": "evil"').encode()


def edit_an_answer(cache: Cache) -> None:
    cache.answer().write_bytes(edited(cache, cache.answer().read_text()))


def take_the_mark_off(cache: Cache) -> None:
    cache.answer().write_bytes(edited(cache, cache.answer().read_text().partition("\n")[2]))


def mark_by_another_key(cache: Cache) -> None:
    content = edited(cache, cache.answer().read_text().partition("\n")[2])
    cache.answer().write_bytes(hmac.digest(b"", content, "sha256").hex().encode() + b"\n" + content)


def put_the_answer_of_another_case(cache: Cache) -> None:
    before = cache.answer()
    cache.ask("--ask", "driver")
    (other,) = (file for file in cache.answers() if file != before)
    shutil.copyfile(other, before)


def link_to_an_answer(cache: Cache) -> None:
    other = cache.root.parent / "planted"
    other.write_bytes(edited(cache, cache.answer().read_text()))
    before = cache.answer()
    before.unlink()
    before.symlink_to(other)


def answer_without_json(cache: Cache) -> None:
    cache.answer().write_bytes(b"\xff" * 99)


ANSWERS = {
    attack.__name__: attack
    for attack in (
        *(edit_an_answer, take_the_mark_off, mark_by_another_key, put_the_answer_of_another_case, link_to_an_answer),
        answer_without_json,
    )
}


@pytest.mark.parametrize("attack", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_is_the_releases_own(attack: Callable[[Cache], None], cache: Cache) -> None:
    attack(cache)
    answers._held.clear()
    assert cache.ask("--ask", "path") == "org/name"


def give_away(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user owns ``place``."""
    if os.getuid() == 0:
        os.chown(place, OTHER_USER, OTHER_USER)
    else:
        mine = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: mine + 1)


FOLDERS = ("", "wheels", "wheels/WHEEL", "answers", "codes", "..")


@pytest.mark.corpus
@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_cache_that_others_can_write_is_refused_with_what_mends_it(folder: str, mode: int, cache: Cache) -> None:
    place = (cache.root / folder.replace("WHEEL", cache.place.name)).resolve()
    place.chmod(mode)
    answers._held.clear()
    answered, findings = cache.outcome("--ask", "path" if folder == "answers" else "driver")
    assert answered is None
    assert [(each.id, each.hint) for each in findings] == [("REL015", f"chmod go-w {place}")]
    subprocess.run(shlex.split(str(findings[0].hint)), check=True)
    assert cache.ask("--ask", "driver") == DRIVER


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_cache_of_another_user_is_refused(folder: str, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    place = (cache.root / folder.replace("WHEEL", cache.place.name)).resolve()
    give_away(place, monkeypatch)
    answers._held.clear()
    with pytest.raises(MachineError, match=r"REL015: .*: another user owns it"):
        cache.ask("--ask", "path" if folder == "answers" else "driver")


def test_a_link_to_a_cache_of_another_user_is_refused(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = cache.root.parent / "theirs"
    theirs.mkdir()
    cache.root.rename(theirs / "cache")
    cache.root.symlink_to(theirs / "cache")
    give_away(theirs, monkeypatch)
    answers._held.clear()
    with pytest.raises(MachineError, match=f"REL015: .*{theirs}: another user owns it"):
        cache.ask("--ask", "path")


def test_a_temporary_folder_that_another_user_made_first_is_refused(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SGLANG_HYDRA_CACHE", "/dev/null/cache")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    made = tmp_path / f"sglang_hydra-{os.getuid()}"
    shutil.copytree(cache.root, made)
    if os.getuid() == 0:
        os.chown(made, OTHER_USER, OTHER_USER)
    else:
        made.chmod(0o777)
    with pytest.raises(MachineError, match=f"REL015: .*{made}"):
        wheels.fetch(cache.record)


@pytest.mark.parametrize("how", ["readable", "of another user", "link", "short"])
def test_a_key_that_is_not_the_users_alone_is_made_anew(how: str, cache: Cache) -> None:
    (file,) = (cache.root.parent / "settings").rglob("cache.key")
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.read_text()
    known = hmac.digest(before.encode(), b"x\0", hashlib.sha256)
    assert private.mark("x") == known
    if how == "readable":
        file.chmod(0o640)
    elif how == "of another user":
        os.chown(file, OTHER_USER, OTHER_USER) if os.getuid() == 0 else file.chmod(0o666)
    elif how == "link":
        file.rename(cache.root.parent / "planted")
        file.symlink_to(cache.root.parent / "planted")
    else:
        file.write_text("0")
    private._key.cache_clear()
    assert private.mark("x") != known
    assert file.stat().st_mode & 0o777 == 0o600
    assert not file.is_symlink()
    assert cache.ask("--ask", "path") == "org/name"


def test_the_key_is_in_no_command_line_and_no_environment(cache: Cache) -> None:
    (file,) = (cache.root.parent / "settings").rglob("cache.key")
    assert cache.ask("--ask", "driver") == DRIVER
    from sglang_hydra.releases import process

    (child,) = process._children.values()
    key = private.mark(f"byte code {cache.codes().name}").hex()
    for name in ("cmdline", "environ"):
        content = Path(f"/proc/{child._process.pid}/{name}").read_bytes().decode()
        assert key not in content
        assert file.read_text() not in content
    assert json.dumps(sys.argv).find(key) < 0
