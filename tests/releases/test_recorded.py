"""Answers that ship: written once, read back as they were, and equal to what the release itself answers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.releases import asking, recorded, wheels
from sglang_hydra.releases.case import Case
from sglang_hydra.releases.process import end_children
from sglang_hydra.releases.records import newest_release, record_of, records
from tests.plans import planned
from tools.releases.answer_files import raw_answers_of, write_answers, write_resolved_fields

RELEASE = record_of("0.5.23")
STEP = {"file": "a.py", "line": 3, "function": "f", "inputs": {"x": 1}, "conditions": [], "via": []}


def raw(**values: Any) -> dict[str, Any]:
    changes = [{"field": name, "before": None, "after": value, **STEP} for name, value in values.items()]
    return {
        "ok": True,
        "values": {"tp_size": 1, "model_path": "org/name", **values},
        "environment": {"A": "1"},
        "assumed": {"nvml": False},
        "why": {"changes": changes, "check": None, "failed": None},
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    recorded.content_of.cache_clear()
    yield tmp_path
    recorded.content_of.cache_clear()


@pytest.mark.usefixtures("folder")
def test_answers_are_read_as_they_were_written() -> None:
    assert RELEASE is not None
    cases = {text: Case((text,), {"device": "cuda"}) for text in ("one", "other", "refused", "unknown")}
    written = {
        recorded.key_of(cases["one"]): raw(page_size=64),
        recorded.key_of(cases["other"]): raw(page_size=1, dtype="auto"),
        recorded.key_of(cases["refused"]): {
            "ok": False,
            "stage": "post_init",
            "error": "ValueError: a whole sentence of its own (arg_groups/hook.py:5)",
            "why": {"changes": [], "check": STEP, "failed": None},
        },
    }
    write_answers(RELEASE, written)
    one, other, refused = (recorded.recorded_answer(RELEASE, cases[name]) for name in ("one", "other", "refused"))
    assert one is not None
    assert other is not None
    assert refused is not None
    assert dict(one.values) == {"tp_size": 1, "model_path": "org/name", "page_size": 64}
    assert dict(other.values) == {"tp_size": 1, "model_path": "org/name", "page_size": 1, "dtype": "auto"}
    assert [(change.field, change.after, change.step and change.step.place) for change in one.changes] == [
        ("page_size", 64, "a.py:3")
    ]
    assert (one.environment, one.assumed) == ({"A": "1"}, {"nvml": False})
    assert (refused.ok, refused.error) == (False, "ValueError (arg_groups/hook.py:5)"), "no sentence is recorded"
    assert recorded.recorded_answer(RELEASE, cases["unknown"]) is None


def test_the_file_of_other_wheels_is_not_used(folder: Path) -> None:
    assert RELEASE is not None
    case = Case(("one",), {"device": "cuda"})
    write_answers(RELEASE, {recorded.key_of(case): raw(page_size=64)})
    other = record_of("0.5.18")
    assert other is not None
    (folder / "0.5.23.json.gz").rename(folder / "0.5.18.json.gz")
    assert recorded.recorded_answer(other, case) is None


def test_writing_again_gives_the_same_bytes(folder: Path) -> None:
    assert RELEASE is not None
    answers = {f"{number:016x}": raw(page_size=number % 3) for number in range(20)}
    first = (write_answers(RELEASE, answers), (folder / "0.5.23.json.gz").read_bytes())
    again = write_answers(RELEASE, dict(reversed(answers.items())))
    assert (again, (folder / "0.5.23.json.gz").read_bytes()) == first


def test_the_fields_of_a_release_that_had_no_file_are_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert RELEASE is not None
    monkeypatch.setattr(recorded, "RESOLVED", folder / "fields.json")
    assert raw_answers_of(RELEASE) == {}
    write_answers(RELEASE, {"a" * 16: raw(page_size=64)})
    write_resolved_fields()
    assert json.loads((folder / "fields.json").read_text()) == ["page_size"]


def test_five_releases_ship_answers_and_the_newest_is_one() -> None:
    assert len(recorded.recorded_releases()) == 5
    assert list(records())[-1] in recorded.recorded_releases()
    assert sum(file.stat().st_size for file in recorded.FOLDER.iterdir()) < 7 << 18  # bytes: 1.75 MiB


@pytest.mark.parametrize("version", recorded.recorded_releases())
def test_no_answer_is_about_a_folder_of_the_machine_that_recorded_it(version: str) -> None:
    text = gzip.decompress((recorded.FOLDER / f"{version}.json.gz").read_bytes()).decode()
    assert '["model_path","Qwen/Qwen3-8B"]' in text
    assert '["model_path","/' not in text


PLAIN = (
    "gpu=b200 model=glm_5_2_fp8 tp_size=8",
    "gpu=h200 model=qwen3_5_397b tp_size=8",
    "gpu=h200 model=gpt_oss",
    "gpu=mi355x model=gemma_4_26b",
)


@pytest.mark.parametrize("words", PLAIN)
def test_a_plain_plan_of_the_newest_release_needs_no_wheel(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "kept_answer_to", None)  # nothing else may be asked
    plan = planned(*words.split(), f"engine.version={newest_release()}")
    assert (plan.engine.version, plan.basis) == (newest_release(), "recorded")


def test_only_releases_with_answers_say_what_is_always_the_same() -> None:
    assert recorded.always_same("0.5.10") == {}
    assert recorded.always_same("0.5.12")


@pytest.mark.registry
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", recorded.recorded_releases())
def test_a_recorded_answer_is_what_the_wheel_answers(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record = record_of(version)
    assert record is not None
    wheels.fetch(record)
    for name in ("deepseek_v3-b200-8", "deepseek_v3_1-b200-8"):
        words = (f"engine.version={version}", f"recipe={name}")
        from_record = planned(*words)
        with monkeypatch.context() as patch:
            patch.setattr(asking, "recorded_answer", lambda record, case, why: None)
            from_wheel = planned(*words)
        assert (from_record.basis, from_wheel.basis) == ("recorded", "exact")
        assert from_record.server_id == from_wheel.server_id
        assert dict(from_record.values) == dict(from_wheel.values)
    end_children()


ALONE = ["host=0.0.0.0", "port=31000", "enable_metrics=true", "stream_interval=10", "random_seed=7"]


@pytest.mark.parametrize("words", [[word] for word in ALONE] + [ALONE])
def test_what_changes_nothing_else_needs_no_wheel(words: list[str]) -> None:
    server = ("gpu=h200", "model=gpt_oss", f"engine.version={newest_release()}")
    plain, plan = planned(*server), planned(*server, *words)
    assert (plan.basis, plain.basis) == ("recorded", "recorded")
    other = {name for name, value in plan.values.items() if plain.values[name] != value} - {"random_seed"}
    assert other == {word.partition("=")[0] for word in words} - {"random_seed"}


@pytest.mark.registry
@pytest.mark.timeout(900)
@pytest.mark.parametrize("server", [("gpu=h200", "model=qwen3_8b"), ("gpu=b200", "model=deepseek_v3", "tp_size=8")])
def test_a_flag_that_stands_alone_changes_its_own_value_alone(
    server: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = record_of(newest_release())
    assert record is not None
    wheels.fetch(record)
    monkeypatch.setattr(asking, "recorded_answer", lambda record, case, why: None)
    own = f"engine.version={record.version}"
    plain = planned(*server, own)
    for name, kind in recorded.ALONE.values():
        word = {bool: "true", int: "31000", str: "0.0.0.0"}[kind]
        plan = planned(*server, own, f"{name}={word}")
        assert plan.basis == "exact"
        other = {key for key, value in plan.values.items() if plain.values[key] != value} - {"random_seed"}
        assert other == {name} - {"random_seed"}
    end_children()


def test_recorded_answers_are_written_again_as_they_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert RELEASE is not None
    refused = {
        "ok": False,
        "stage": "post_init",
        "error": "ValueError: a whole sentence of its own (arg_groups/hook.py:5)",
        "why": {"changes": [], "check": STEP, "failed": None},
    }
    file = folder / f"{RELEASE.version}.json.gz"
    write_answers(RELEASE, {"a" * 16: raw(page_size=64), "b" * 16: raw(page_size=1), "c" * 16: refused})
    written = file.read_bytes()
    write_answers(RELEASE, raw_answers_of(RELEASE))
    assert file.read_bytes() == written
