"""More attacks on the cache: in the middle of a fetch, while a child lives, by variables, links and another's marks."""

from __future__ import annotations

import hashlib
import hmac
import marshal
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.releases import answers, wheels
from sglang_hydra.releases.process import end_children
from sglang_hydra.releases.records import Wheel
from sglang_hydra.text import private
from sglang_hydra.text.errors import MachineError
from tests.releases.test_attacks import DRIVER, MAIN, Cache, cache, edited, give_away, hash_of, stated

__all__ = ["cache"]
Patch = pytest.MonkeyPatch
KNOWN = "sglang/srt/layers/known.py"
LAZY = "sglang/srt/lazy.py"


def swap_two_modules(cache: Cache, patch: Patch) -> None:
    one, two = cache.place / KNOWN, cache.place / LAZY
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    shutil.rmtree(cache.root / "codes")


def hard_link_the_source(cache: Cache, patch: Patch) -> None:
    other = cache.root.parent / "other.py"
    other.write_text(cache.evil)
    cache.main.unlink()
    os.link(other, cache.main)


def put_the_list_of_another_wheel(cache: Cache, patch: Patch) -> None:
    cache.main.write_text(cache.evil)
    mine, other = (next(place.glob("*.dist-info/RECORD")) for place in (cache.place, cache.library))
    shutil.copyfile(other, mine)


def put_a_wheel_in_place_of_another(cache: Cache, patch: Patch) -> None:
    (cache.library / "transformers" / "__init__.py").write_text(cache.evil)
    shutil.rmtree(cache.place)
    shutil.copytree(cache.library, cache.place)


def add_a_line_to_the_list(cache: Cache, patch: Patch) -> None:
    (cache.place / "sglang" / "evil.py").write_text(cache.evil)
    stated(cache, cache.place / "sglang" / "evil.py")


def add_a_blank_to_the_list(cache: Cache, patch: Patch) -> None:
    with open(next(cache.place.glob("*.dist-info/RECORD")), "a") as file:
        file.write("\n")


def add_names_of_stand_ins(cache: Cache, patch: Patch) -> None:
    for place in (cache.place, cache.library):
        for name in ("torch", "sgl_kernel", "psutil", "triton", "child"):
            (place / name).mkdir()
            (place / name / "__init__.py").write_text(cache.evil)


def add_a_library_in_the_wheel_before_it(cache: Cache, patch: Patch) -> None:
    (cache.place / "transformers.py").write_text(cache.evil)
    (cache.place / "transformers").mkdir()
    (cache.place / "transformers" / "__init__.py").write_text(cache.evil)


def add_a_module_of_the_packages_name(cache: Cache, patch: Patch) -> None:
    (cache.place / "sglang.py").write_text(cache.evil)
    (cache.place / f"sglang{EXTENSION_SUFFIXES[0]}").write_bytes(b"\x7fELF")
    (cache.place / "sglang" / f"__init__{EXTENSION_SUFFIXES[0]}").write_bytes(b"\x7fELF")


def add_entry_points(cache: Cache, patch: Patch) -> None:
    info = next(cache.place.glob("*.dist-info"))
    (info / "entry_points.txt").write_text("[sglang.plugins]\nevil = evil:main\n")
    (cache.place / "evil.py").write_text(cache.evil)


def add_a_build_of_another_version(cache: Cache, patch: Patch) -> None:
    shutil.copytree(cache.place, wheels.folders()[0] / "sglang-99.0-000000000000")


def put_a_wheel_beside_the_temporary_files(cache: Cache, patch: Patch) -> None:
    patch.setattr(tempfile, "tempdir", str(cache.root.parent))
    there = wheels.folders()[1]
    there.parent.mkdir(mode=0o700)
    shutil.copytree(cache.place.parent, there)
    (there / cache.place.name / MAIN).write_text(cache.evil)
    shutil.rmtree(cache.place)


def open_a_folder_inside_a_wheel(cache: Cache, patch: Patch) -> None:
    cache.main.parent.chmod(0o777)
    cache.main.write_text(cache.evil)


def share_the_wheels_as_a_temporary_folder_is(cache: Cache, patch: Patch) -> None:
    cache.place.parent.chmod(0o1777)
    cache.main.write_text(cache.evil)
    give_away(cache.place, patch)


def set_variables_of_python(cache: Cache, patch: Patch) -> None:
    folder = cache.root.parent / "path"
    folder.mkdir()
    for name in ("sitecustomize.py", "json.py", "sglang.py"):
        (folder / name).write_text(cache.evil)
    for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX", "PYTHONPLATLIBDIR"):
        patch.setenv(name, str(folder))
    patch.setenv("PYTHONSTARTUP", str(folder / "json.py"))
    patch.setenv("PYTHONBREAKPOINT", "json.evil")
    patch.setenv("LD_PRELOAD", str(folder / "evil.so"))


def stand_in_a_folder_of_modules(cache: Cache, patch: Patch) -> None:
    for name in ("json", "ctypes", "child", "sglang", "sitecustomize"):
        (cache.root.parent / f"{name}.py").write_text(cache.evil)
    patch.chdir(cache.root.parent)


def mark_byte_code(cache: Cache, key: bytes) -> None:
    name = f"{hash_of(cache.main.read_bytes())} {cache.main}"
    planted = marshal.dumps({name: marshal.dumps(cache.code)})
    cache.codes().write_bytes(hmac.digest(key, planted, hashlib.sha256) + planted)


def mark_byte_code_by_an_empty_key(cache: Cache, patch: Patch) -> None:
    mark_byte_code(cache, b"\0" * 32)


def mark_byte_code_as_an_answer(cache: Cache, patch: Patch) -> None:
    mark_byte_code(cache, private.mark("answer"))


def mark_byte_code_by_its_name_in_hexadecimal(cache: Cache, patch: Patch) -> None:
    mark_byte_code(cache, private.mark(f"byte code {cache.codes().name}").hex().encode())


def rename_byte_code(cache: Cache, patch: Patch) -> None:
    """Byte code that is marked for another release, under the name of this one."""
    mark_byte_code(cache, private.mark("byte code other"))


def empty_the_byte_code(cache: Cache, patch: Patch) -> None:
    cache.codes().write_bytes(b"")


def link_the_folder_of_byte_code(cache: Cache, patch: Patch) -> None:
    mark_byte_code(cache, b"")
    (cache.root / "codes").rename(cache.root.parent / "theirs")
    (cache.root / "codes").symlink_to(cache.root.parent / "theirs")
    give_away(cache.root.parent / "theirs", patch)


def put_a_wheel_first_while_it_is_unpacked(cache: Cache, patch: Patch) -> None:
    """Another process makes the folder between the last look and the rename."""
    members = wheels._members
    kept = cache.root.parent / "kept"
    cache.place.rename(kept)
    (kept / MAIN).write_text(cache.evil)

    def planting(*values: Any) -> Any:
        yield from members(*values)
        if kept.exists():
            kept.rename(cache.place)

    patch.setattr(wheels, "_members", planting)
    wheels.take(cache.root.parent / cache.record.wheel.files[0].name, cache.record.wheel)


def changed_wheel(cache: Cache, name: str, content: str, *, again: bool = False) -> Path:
    """The wheel's file with another member, or with one of the same name behind it."""
    file = cache.root.parent / cache.record.wheel.files[0].name
    with zipfile.ZipFile(file) as archive:
        members = [(each, archive.read(each)) for each in archive.namelist() if again or each != name]
    with zipfile.ZipFile(file, "w") as archive:
        for each, text in [*members, (name, content.encode())]:
            archive.writestr(each, text)
    shutil.rmtree(cache.place)
    return file


def unpack(cache: Cache, file: Path, *, is_whole: bool = False) -> None:
    target = wheels.folders()[0]
    wheels._unpack(file, cache.record.wheel, target, target, is_whole=is_whole)


def exchange_the_file_after_it_was_compared(cache: Cache, patch: Patch) -> None:
    def exchanged(file: Path, wheel: Wheel) -> bool:
        changed_wheel(cache, MAIN, cache.evil)
        return True

    patch.setattr(wheels, "is_one_of", exchanged)
    wheels.take(cache.root.parent / cache.record.wheel.files[0].name, cache.record.wheel)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def pack_a_member_twice(cache: Cache, patch: Patch) -> None:
    unpack(cache, changed_wheel(cache, MAIN, cache.evil, again=True))


def pack_a_second_list(cache: Cache, patch: Patch) -> None:
    unpack(cache, changed_wheel(cache, "aa.dist-info/RECORD", f"{MAIN},{hash_of(cache.evil.encode())},"))


def pack_a_module_that_no_list_has(cache: Cache, patch: Patch) -> None:
    unpack(cache, changed_wheel(cache, "sglang/srt/layers/__init__/evil.py", cache.evil))
    assert not list(cache.place.rglob("evil.py"))


def pack_a_changed_file_in_a_bundle(cache: Cache, patch: Patch) -> None:
    changed_wheel(cache, MAIN, cache.evil)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        patch.delenv(name)
    patch.setenv("PIP_CONFIG_FILE", os.devnull)
    patch.setenv("PIP_NO_INDEX", "1")
    patch.setenv("PIP_FIND_LINKS", str(cache.root.parent))
    wheels.fetch(cache.record)


def change_what_is_fetched_later(cache: Cache, patch: Patch) -> None:
    """A file that was not fetched with the others comes from a changed wheel."""
    file = changed_wheel(cache, LAZY, cache.evil)
    patch.setattr(wheels, "fetch_parts", lambda *_: {cache.record.wheel: file})
    wheels.take(shutil.copy(file, cache.root.parent / "kept.whl"), cache.record.wheel)


ATTACKS: dict[str, Callable[[Cache, Patch], None]] = {
    attack.__name__: attack
    for attack in (
        *(swap_two_modules, hard_link_the_source, put_the_list_of_another_wheel, put_a_wheel_in_place_of_another),
        *(add_a_line_to_the_list, add_a_blank_to_the_list, add_names_of_stand_ins, add_entry_points),
        *(add_a_library_in_the_wheel_before_it, add_a_module_of_the_packages_name, add_a_build_of_another_version),
        *(put_a_wheel_beside_the_temporary_files, open_a_folder_inside_a_wheel, set_variables_of_python),
        *(share_the_wheels_as_a_temporary_folder_is, stand_in_a_folder_of_modules),
        *(mark_byte_code_by_an_empty_key, mark_byte_code_as_an_answer, mark_byte_code_by_its_name_in_hexadecimal),
        *(rename_byte_code, empty_the_byte_code, link_the_folder_of_byte_code, put_a_wheel_first_while_it_is_unpacked),
        *(exchange_the_file_after_it_was_compared, pack_a_member_twice, pack_a_second_list),
        *(pack_a_module_that_no_list_has, pack_a_changed_file_in_a_bundle, change_what_is_fetched_later),
    )
}


@pytest.mark.corpus
@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_what_runs_is_what_was_pinned(attack: Callable[[Cache, Patch], None], cache: Cache) -> None:
    """The release answers as it was packed, or it is refused by a finding; nothing of the attacker runs."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            attack(cache, patch)
            end_children()
            answers._held.clear()
            answered: list[object] = [cache.ask("--ask", question) for question in ("driver", "known")]
        except MachineError as failure:
            answered = [{finding.id for finding in failure.findings}]
    assert answered in ([DRIVER, 42], [{"REL003"}], [{"REL015"}])
    assert not cache.ran.exists()


def test_a_module_that_changes_while_a_child_lives_is_not_read(cache: Cache) -> None:
    assert cache.ask("--ask", "driver") == DRIVER
    (cache.place / LAZY).write_text(cache.evil)
    with pytest.raises(MachineError, match=r"REL003: .*lazy\.py is not what its wheel had"):
        cache.ask("--ask", "lazy")
    assert not cache.ran.exists()


def mark_an_answer(cache: Cache, purpose: str) -> bytes:
    content = edited(cache, cache.answer().read_text().partition("\n")[2])
    return private.mark(purpose, content).hex().encode() + b"\n" + content


def as_byte_code(cache: Cache) -> bytes:
    return mark_an_answer(cache, f"byte code {cache.codes().name}")


def without_a_name(cache: Cache) -> bytes:
    return mark_an_answer(cache, "answer ")


def with_the_mark_of_nothing(cache: Cache) -> bytes:
    return b"\n" + edited(cache, cache.answer().read_text().partition("\n")[2])


def with_two_marks(cache: Cache) -> bytes:
    head, _, content = cache.answer().read_bytes().partition(b"\n")
    return head + b"\n" + head + b"\n" + edited(cache, content.decode())


def with_more_behind_it(cache: Cache) -> bytes:
    return cache.answer().read_bytes() + b' {"found": "evil"}'


def with_nothing_behind_the_mark(cache: Cache) -> bytes:
    return cache.answer().read_bytes().partition(b"\n")[0]


MADE = (as_byte_code, without_a_name, with_the_mark_of_nothing, with_two_marks, with_more_behind_it)


@pytest.mark.parametrize("made", [*MADE, with_nothing_behind_the_mark])
def test_an_answer_is_the_releases_own(made: Callable[[Cache], bytes], cache: Cache) -> None:
    cache.answer().write_bytes(made(cache))
    answers._held.clear()
    assert cache.ask("--ask", "path") == "org/name"


@pytest.mark.parametrize("how", ["of another user", "a link to one of another user"])
def test_a_folder_of_answers_of_another_user_is_refused(how: str, cache: Cache, monkeypatch: Patch) -> None:
    place = cache.answer().parent
    if how != "of another user":
        theirs = cache.root.parent / "theirs"
        place.rename(theirs)
        place.symlink_to(theirs)
        place = theirs
    give_away(place, monkeypatch)
    answers._held.clear()
    with pytest.raises(MachineError, match=r"REL015: .*another user owns it"):
        cache.ask("--ask", "path")


def test_a_key_that_is_a_pipe_is_made_anew(cache: Cache) -> None:
    (file,) = (cache.root.parent / "settings").rglob("cache.key")
    file.unlink()
    os.mkfifo(file, 0o600)
    private._key.cache_clear()
    assert cache.ask("--ask", "path") == "org/name"
    assert stat.S_ISREG(file.stat().st_mode)


def test_sweeping_and_removing_follow_no_links(cache: Cache) -> None:
    theirs = cache.root.parent / "theirs"
    theirs.mkdir()
    (theirs / "file").touch()
    for name in (".fetch-evil", "sglang-0.1-old"):
        (cache.place.parent / name).symlink_to(theirs)
    wheels.remove_folders(wheels.stale_folders())
    assert (theirs / "file").exists()
    assert cache.ask("--ask", "driver") == DRIVER


def test_a_hint_is_a_command_where_a_folder_has_a_blank(cache: Cache, monkeypatch: Patch) -> None:
    blank = cache.root.parent / "a cache; touch ran"
    cache.root.rename(blank)
    monkeypatch.setenv("SGLANG_HYDRA_CACHE", str(blank))
    blank.chmod(0o777)
    _, findings = cache.outcome("--ask", "driver")
    assert shlex.split(str(findings[0].hint)) == ["chmod", "go-w", str(blank)]
    subprocess.run(str(findings[0].hint), shell=True, check=True, cwd=cache.root.parent)
    assert not cache.ran.exists()
    assert cache.ask("--ask", "driver") == DRIVER
