"""The forms of ``check`` that other programs read: annotations of GitHub, SARIF 2.1.0, JUnit. Errors and warnings, each
at the word that it is about."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from sglang_hydra.cli.id_pages import id_record
from sglang_hydra.convert.review.places import Place
from sglang_hydra.planning.finding_meanings import title_of
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import printable
from sglang_hydra.text.version import VERSION

_TOOL = "sglang-hydra"
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


class Judged(NamedTuple):
    """What was judged: its name, whether it is good, and its findings with their places."""

    name: str
    good: bool
    findings: Sequence[tuple[Finding, Place | None]]


def github(results: Sequence[Judged]) -> str:
    """A workflow command for each finding, which GitHub shows at its line."""
    lines = []
    for judged in results:
        for finding, place in judged.findings:
            about: dict[str, object] = {}
            if place is not None:
                about = {"file": place.file, "line": place.line, "endLine": place.line, "col": place.column}
                about["endColumn"] = place.end
            about["title"] = finding.id
            named = ",".join(f"{key}={_escaped(str(value), ',:')}" for key, value in about.items())
            lines.append(f"::{finding.level} {named}::{_escaped(_said(finding))}\n")
    return "".join(lines)


def sarif(results: Sequence[Judged]) -> str:
    """One run, whose rules are the ids of its findings with their pages."""
    found = [item for judged in results for item in judged.findings]
    ids = sorted({finding.id for finding, _ in found})
    driver = {"name": _TOOL, "version": VERSION, "rules": [_rule(id) for id in ids]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, place, ids.index(finding.id)) for finding, place in found],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def junit(results: Sequence[Judged]) -> str:
    """A test case for each thing that was judged; its failure has the findings."""
    from xml.etree import ElementTree

    bad = str(sum(not judged.good for judged in results))
    suites = ElementTree.Element("testsuites", name=_TOOL, tests=str(len(results)), failures=bad)
    suite = ElementTree.SubElement(suites, "testsuite", name="check", tests=str(len(results)), failures=bad, errors="0")
    for judged in results:
        file = next((place.file for _, place in judged.findings if place), judged.name)
        case = ElementTree.SubElement(suite, "testcase", classname=printable(file), name=printable(judged.name))
        listed = "\n".join(_listed(judged.findings))
        if not judged.good:
            worst = sorted((finding for finding, _ in judged.findings), key=lambda finding: finding.level)
            about = {"type": worst[0].id, "message": printable(worst[0].message)} if worst else {}
            ElementTree.SubElement(case, "failure", about).text = listed
        elif listed:
            ElementTree.SubElement(case, "system-out").text = listed
    ElementTree.indent(suites)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ElementTree.tostring(suites, encoding='unicode')}\n"


FORMS = {"github": github, "sarif": sarif, "junit": junit}


def _said(finding: Finding) -> str:
    """The message, and below it a line for each remedy."""
    words = ["hint", *["or"] * len(finding.shown)]
    said = [f"{word}: {remedy}" for word, remedy in zip(words, finding.shown, strict=False)]
    return "\n".join(printable(line) for line in (finding.message, *said))


def _escaped(content: str, more: str = "") -> str:
    """The content without the signs that end a workflow command or its property."""
    for sign in f"%\r\n{more}":
        content = content.replace(sign, f"%{ord(sign):02X}")
    return content


def _listed(findings: Sequence[tuple[Finding, Place | None]]) -> Iterator[str]:
    for finding, place in findings:
        where = f"{printable(place.file)}:{place.line}:{place.column}: " if place else ""
        yield f"{where}{finding.level} {finding.id}: {_said(finding)}"


def _rule(id: str) -> dict[str, Any]:
    page = (id_record(id) or {}).get("page") or id
    about = {"shortDescription": {"text": title_of(id) or id}, "help": {"text": page}}
    return {"id": id, **about}


def _result(finding: Finding, place: Place | None, rule: int) -> dict[str, Any]:
    about: dict[str, Any] = {"ruleId": finding.id, "ruleIndex": rule, "level": finding.level}
    about["message"] = {"text": _said(finding).replace("](", "] (")}  # which would be a link
    if place is not None:
        region = {"startLine": place.line, "startColumn": place.column, "endColumn": place.end}
        where = {"artifactLocation": {"uri": quote(place.file)}, "region": region}
        about["locations"] = [{"physicalLocation": where}]
    return about
