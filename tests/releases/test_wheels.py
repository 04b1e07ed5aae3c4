"""The cache of wheels, the cache of answers, and the verb over them."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_hydra.cli.main import entry
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.releases import answers, process, wheels
from sglang_hydra.releases.case import Case, machine_facts
from sglang_hydra.releases.process import end_children
from sglang_hydra.releases.records import nearest_record, record_of, records
from sglang_hydra.releases.release import ask_release, can_answer
from sglang_hydra.text.errors import MachineError
from tests.commands import Run, must_follow, runner
from tests.releases.fake import VERSION, recorded_release, unpacked_release
from tests.releases.test_child import CONFIG, H200

GPU = GpuFacts("h200", "nvidia", "cuda", 143771, (9, 0), 8, flashinfer=True, triton_kernels=True)


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package client looks into the test's folder, and nowhere else."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    yield
    end_children()


def _case(*words: str) -> Case:
    return Case(("--model-path", "org/name", *words), machine_facts(GPU), {"org/name": CONFIG})


def test_a_release_is_fetched_once_by_the_package_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = recorded_release(tmp_path, monkeypatch)
    assert not can_answer(VERSION)
    lines: list[str] = []
    places = wheels.fetch(record, lines.append)
    assert [line.split(",")[0] for line in lines] == [
        f"fetching sglang {VERSION} whole",
        "fetching transformers 4.56.1 whole",
    ]
    assert all(str(place).startswith(str(tmp_path / "cache" / "wheels")) for place in places)
    assert can_answer(VERSION)
    assert wheels.fetch(record, lines.append) == places
    assert len(lines) == 2
    assert not (places[0] / "sglang" / "multimodal_gen").exists()
    assert [file for file in (tmp_path / "cache" / "wheels").iterdir() if file.name.startswith(".")] == []


def test_a_wheel_with_another_sha256_is_never_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = recorded_release(tmp_path, monkeypatch)
    file = tmp_path / record.wheel.files[0].name
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(MachineError, match="REL003"):
        wheels.fetch(record)
    with pytest.raises(MachineError, match="REL003"):
        wheels.take(file, record.wheel)
    assert wheels.place_of(record.wheel) is None


def test_what_the_registry_has_not_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = recorded_release(tmp_path, monkeypatch)
    (tmp_path / record.wheel.files[0].name).unlink()
    with tarfile.open(tmp_path / f"sglang-{VERSION}.tar.gz", "w:gz") as sources:  # whose build code is not run
        (tmp_path / "setup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
        sources.add(tmp_path / "setup.py", f"sglang-{VERSION}/setup.py")
    with pytest.raises(MachineError, match=f"REL002: sglang {VERSION} was not fetched: the package index"):
        wheels.fetch(record)
    assert not (tmp_path / "ran").exists()


@pytest.mark.thorough
def test_a_home_that_cannot_be_written_has_a_private_folder_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = recorded_release(tmp_path, monkeypatch)
    monkeypatch.setenv("SGLANG_HYDRA_CACHE", "/dev/null/cache")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (place, _) = wheels.fetch(record)
    assert place.parent == tmp_path / f"sglang_hydra-{os.getuid()}" / "wheels"
    assert place.parent.stat().st_mode & 0o777 == 0o700
    assert entry(["release", "list"]) == 0
    assert f"\nin {place.parent}\n" in capsys.readouterr().out
    place.parent.chmod(0o777)
    with pytest.raises(MachineError, match=f"REL015: .*{place.parent}: group or others can write it") as failure:
        wheels.place_of(record.wheel)
    assert failure.value.findings[0].hint == f"chmod go-w {place.parent}"


def test_a_removed_release_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = unpacked_release(tmp_path, monkeypatch)
    assert wheels.installed_releases() == (VERSION,)
    freed = wheels.remove(record)
    assert freed > 0
    assert wheels.installed_releases() == ()
    assert list((tmp_path / "cache" / "wheels").iterdir()) == []


def test_a_release_that_is_not_here_is_not_fetched_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded_release(tmp_path, monkeypatch)
    with pytest.raises(MachineError, match="REL004") as failure:
        ask_release(VERSION, [_case()])
    assert failure.value.findings[0].hint == f"sglang-hydra release fetch {VERSION}"
    with pytest.raises(MachineError, match="REL001"):
        ask_release("9.9.9", [_case()])


def test_a_repeated_question_needs_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = unpacked_release(tmp_path, monkeypatch)
    first = ask_release(VERSION, [_case("--ask", "memory"), _case("--ask", "driver")])
    assert [answer.values["found"] for answer in first] == [143771.0, "595.58.03"]
    assert first[1].assumed == {"driver": "595.58.03"}
    end_children()

    def no_child(*_: object) -> None:
        raise AssertionError("a child was started")

    monkeypatch.setattr(process, "Child", no_child)
    assert ask_release(VERSION, [_case("--ask", "memory"), _case("--ask", "driver")]) == first
    wheels.remove(record)
    assert ask_release(VERSION, [_case("--ask", "memory")]) == first[:1]


def test_an_answer_is_kept_by_all_that_it_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    case = _case().to_json()
    key = answers.answer_key("a", case)
    assert answers.answer_key("a", {**case, "id": "other"}) == key
    others = [
        answers.answer_key("b", case),
        answers.answer_key("a", _case("--ask", "memory").to_json()),
        answers.answer_key("a", {**case, "machine": {**case["machine"], "memory_mib": 1}}),
        answers.answer_key("a", {**case, "machine": {**case["machine"], "environment": {"SGLANG_A": "1"}}}),
        answers.answer_key("a", {**case, "models": {}}),
    ]
    monkeypatch.setattr(answers, "child_version", lambda: "another child")
    assert len({key, *others, answers.answer_key("a", case)}) == 7


def test_the_cache_of_answers_is_bounded_and_survives_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_HYDRA_CACHE", str(tmp_path))
    for number in range(20):
        answers.keep_answer(f"ab{number:062}", {"number": number})
    assert len(list((tmp_path / "answers" / "ab").iterdir())) == 8
    key = f"ab{19:062}"
    assert answers.kept_answer(key) == {"number": 19}
    (tmp_path / "answers" / "ab" / key[2:]).write_text('{"numb', encoding="utf-8")
    assert answers.kept_answer(key) is None
    monkeypatch.setenv("SGLANG_HYDRA_CACHE", "/dev/null/cache")
    answers.keep_answer(key, {"number": 1})
    assert answers.kept_answer(key) is None


def test_every_record_is_whole() -> None:
    finals = [version for version in records() if "post" not in version]
    assert [finals[0], finals[-1], len(finals)] == ["0.5.2", "0.5.23", 22]
    for version, record in records().items():
        assert record.version == version
        assert record.wheel.files
        assert {wheel.name for wheel in record.libraries} >= {"transformers", "huggingface_hub", "packaging"}
        for wheel in record.wheels:
            assert all(len(file.sha256) == 64 and file.size > 0 for file in wheel.files)
    assert record_of("0.5.23+cu130") is record_of("0.5.23")
    assert record_of("0.5.12.post1") is None
    assert nearest_record("0.5.12.post1") is record_of("0.5.12")
    assert nearest_record("0.5.23rc1") is record_of("0.5.23")
    assert nearest_record("0.4.0") is None


def test_facts_of_a_gpu_are_the_machine_of_a_case() -> None:
    made = machine_facts(GPU, {"SGLANG_A": "1"}, cuda="13.0", driver="580.1")
    assert made["capability"] == [9, 0]
    assert (made["device"], made["cuda"], made["driver"]) == ("cuda", "13.0", "580.1")
    assert machine_facts(GpuFacts("none", "none", None))["device"] == "none"
    assert {*H200} - {"assumed"} <= made.keys()


def test_release_list_fetch_and_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run: Run = runner(capsys, monkeypatch)
    recorded_release(tmp_path, monkeypatch)
    assert f"{VERSION}  0 MiB to fetch" in run("release", "list").out
    fetched = run("release", "fetch", VERSION)
    assert fetched.code == 0
    assert f"SGLang {VERSION} is here" in fetched.out
    assert f"fetching sglang {VERSION} whole, 0.0 MiB, into {tmp_path}" in fetched.err
    listed = json.loads(run("release", "list", "--json").out)
    must_follow(listed, "releases")
    assert [(row["version"], row["here"], row["missing"]) for row in listed["releases"]] == [(VERSION, True, [])]
    assert run("release", "remove", VERSION).code == 0
    assert not can_answer(VERSION)


def test_a_folder_that_another_version_unpacked_is_shown_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run: Run = runner(capsys, monkeypatch)
    record = unpacked_release(tmp_path, monkeypatch)
    assert "not used by this version" not in run("release", "list").out
    place = wheels.place_of(record.wheel)
    assert place is not None
    other_build = place.with_name(f"{place.name}-cpython-310-linux-x86_64")
    old = place.with_name(f"sglang-{VERSION}-0123456789ab")
    for folder in (old, other_build):
        folder.mkdir()
        (folder / "module.py").write_text("x = 1\n")
    assert wheels.stale_folders() == [old]
    listed = " ".join(run("release", "list").out.split())
    assert f"not used by this version, 0 MiB: {old.name}; sglang-hydra release remove stale removes them" in listed
    assert run("release", "remove", "stale").code == 0
    assert not old.exists()
    assert other_build.exists()
    assert wheels.installed_releases() == (VERSION,)


def test_release_says_what_it_takes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run: Run = runner(capsys, monkeypatch)
    assert "release has no lost" in run("release", "lost").err
    assert "release list" in run("release", "lost").err
    assert "release fetch takes the releases to fetch" in run("release", "fetch").err
    assert "SGLang 0.1 is not recorded" in run("release", "fetch", "0.1").err
