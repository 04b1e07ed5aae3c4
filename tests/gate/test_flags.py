"""Flags of every release in files of every release: each output refuses what the release's own parser refuses."""

from __future__ import annotations

import json
import re
import shlex
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from sglang_hydra.cli.main import entry
from sglang_hydra.cli.mcp import answer
from sglang_hydra.convert.admission.reviews import Judge, asked, response
from tests.arguments.test_release_parsers import recording
from tests.gate.cluster import container, judge, made, review
from tests.plans import without_accelerator, without_engines

_ID = re.compile(r"\bARG01\d\b")
Case = tuple[str, list[str], bool]
"""A release, a flag with its values, whether the release's parser refuses them."""


def cases() -> Iterator[Case]:
    """For each flag the first line that some release takes, in each release."""
    releases, taken = recording()["releases"], dict[str, str]()
    for line, changes in recording()["lines"].items():
        if any(isinstance(outcome, dict) for _, outcome in changes):
            taken.setdefault(re.split("[ =]", line)[0], line)
    for line in taken.values():
        if not line.startswith(("--config", "--model")):
            for number, release in enumerate(releases):
                outcome = [made for since, made in recording()["lines"][line] if since <= number][-1]
                yield release, line.split(" "), isinstance(outcome, str)


def _image(release: str) -> str:
    return f"lmsysorg/sglang:v{release}"


def refused_by_check(rows: Sequence[Case], folder: Path, capsys: pytest.CaptureFixture[str]) -> list[list[bool]]:
    """What JSON, GitHub's annotations, SARIF and JUnit say of a file for each row."""
    files = [folder / f"{number:04}.yaml" for number in range(len(rows))]
    for file, (release, words, _) in zip(files, rows, strict=True):
        file.write_text(yaml.safe_dump(made("Deployment", container(*words, image=_image(release)))), encoding="utf-8")
    forms = {form: str(folder / f"out.{form}") for form in ("github", "sarif", "junit")}
    entry(["check", "--format", ",".join(["json", *(f"{form}={file}" for form, file in forms.items())]), str(folder)])
    results = json.loads(capsys.readouterr().out)["results"]
    by_json = {Path(row["name"]).name[:4]: any(map(_ID.match, _errors(row["findings"]))) for row in results}
    github = [line for line in Path(forms["github"]).read_text().splitlines() if line.startswith("::error")]
    sarif = json.loads(Path(forms["sarif"]).read_text())["runs"][0]["results"]
    cases = ElementTree.parse(forms["junit"]).iter("testcase")
    named = [
        {name for name, refused in by_json.items() if refused},
        {found[1] for line in github if _ID.search(line) and (found := re.search(r"(\d{4})\.yaml,line=\d+", line))},
        {
            Path(row["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]).name[:4]
            for row in sarif
            if row["level"] == "error" and _ID.match(row["ruleId"])
        },
        {
            found[1]
            for case in cases
            if any(_ID.search(ElementTree.tostring(failure, "unicode")) for failure in case.iter("failure"))
            and (found := re.search(r"(\d{4})\.yaml", ElementTree.tostring(case, "unicode")))
        },
    ]
    return [[f"{number:04}" in names for number in range(len(rows))] for names in named]


def _errors(findings: Sequence[dict[str, str]]) -> list[str]:
    return [finding["id"] for finding in findings if finding["level"] == "error"]


def _is_denied(judging: Judge, release: str, words: Sequence[str]) -> bool:
    about = asked(review(made("Deployment", container(*words, image=_image(release)))))
    assert about.manifest is not None
    return _ID.search(response("uid", judging.answer(about.name, about.manifest)).__repr__()) is not None


def _is_refused_by_mcp(release: str, words: Sequence[str]) -> bool:
    command = f"python -m sglang.launch_server --model-path Qwen/Qwen3-8B {shlex.join(words)}"
    said = answer("check", ["gpu=h100", f"engine.version={release}"], command, "launch.sh", False)["answer"]
    return re.search(r"^  error ARG01\d", said, re.MULTILINE) is not None


def differences(rows: Sequence[Case], folder: Path, capsys: pytest.CaptureFixture[str]) -> list[tuple[object, ...]]:
    """The rows of which an output says something else than the release."""
    judging = judge("gpu=h100")
    outputs = dict(zip(("json", "github", "sarif", "junit"), refused_by_check(rows, folder, capsys), strict=True))
    outputs["admission"] = [_is_denied(judging, release, words) for release, words, _ in rows]
    outputs["mcp"] = [_is_refused_by_mcp(release, words) for release, words, _ in rows]
    return [
        (output, *row)
        for output, said in outputs.items()
        for row, refused in zip(rows, said, strict=True)
        if refused != row[2]
    ]


@pytest.mark.parametrize(
    "part", [pytest.param(1, marks=[pytest.mark.long, pytest.mark.timeout(7200)]), 801], ids=["all", "a sample"]
)
def test_each_output_refuses_the_flags_that_the_release_refuses(
    part: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_engines(monkeypatch)
    without_accelerator(monkeypatch)
    rows, wrong = [*cases()][::part], []
    for at in range(0, len(rows), 500):
        (folder := tmp_path / str(at)).mkdir()
        wrong += differences(rows[at : at + 500], folder, capsys)
    assert len(rows) > 25
    assert wrong == []
