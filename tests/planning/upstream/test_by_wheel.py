"""check --against X.Y.Z: what the release's own code makes of a plan, asked of its wheel alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from sglang_hydra.schemas import schema_of
from sglang_hydra.upstream.process import end_children
from tests.commands import Run, runner
from tests.plans import H200, without_engines
from tests.upstream.fake import VERSION, recorded_release, unpacked_release

CHECK = ("check", "--against", VERSION, *H200)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    without_engines(monkeypatch)
    yield runner(capsys, monkeypatch)
    end_children()


def test_the_release_accepts(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked_release(tmp_path, monkeypatch)
    code, out, _ = run(*CHECK, "random_seed=42")
    assert (code, f"SGLang {VERSION} (its wheel) accepts it: 3 of 3 as planned" in out) == (0, True), out
    assert "it was given the plan's facts of h200" in out


def test_what_it_refuses_is_an_error_in_its_own_words(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked_release(tmp_path, monkeypatch)
    code, out, _ = run(*CHECK, "random_seed=7", "--json")
    record = json.loads(out)
    jsonschema.validate(record, schema_of("check"))
    (result,) = record["results"]
    assert code == 2
    assert [finding["id"] for finding in result["findings"]] == ["AUT003"]
    assert "ValueError: 7 is refused" in result["findings"][0]["message"]


def test_a_release_that_is_not_here_is_not_fetched(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded_release(tmp_path, monkeypatch)
    code, out, err = run(*CHECK)
    assert code == 3
    assert "REL004" in out + err
    assert f"sglang-hydra release fetch {VERSION}" in out + err


def test_a_release_without_a_record_is_named(run: Run) -> None:
    code, out, err = run("check", "--against", "0.9.9", *H200)
    assert code == 3
    assert "REL001" in out + err
    assert "SGLang 0.9.9 is not recorded" in out + err
    assert "release fetch --trust 0.9.9" in out + err


def test_a_folder_whose_name_is_a_number_is_an_environment(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / VERSION).mkdir()
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*CHECK)
    assert code == 3
    assert "AUT001" in out + err
