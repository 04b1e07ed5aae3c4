"""``check --base`` and ``check --format``: reads the words, judges both states, prints or writes the forms."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from sglang_hydra.cli.id_pages import id_record
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of, is_good
from sglang_hydra.convert.review.base import Tree, base_tree
from sglang_hydra.convert.review.judging import Review, review
from sglang_hydra.convert.review.markdown import comment, sentence
from sglang_hydra.convert.review.places import Place, placed
from sglang_hydra.planning.finding_meanings import title_of
from sglang_hydra.planning.recorded.input_files import is_document
from sglang_hydra.show.verdicts import Checked, verdict_lines, verdict_record
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import Line, print_json, printable, text, write
from sglang_hydra.text.version import VERSION
from sglang_hydra.text.words import nearest, program, short, without_secret_forms


def check(invocation: Invocation) -> int:
    """Judges each subject and compares it with the base. Returns 2 if any has an error now."""
    forms = _forms(invocation)
    revision = invocation.value("base")
    with contextlib.nullcontext() if revision is None else base_tree(revision) as base:
        reviews = _reviews(invocation, base)
        verdicts = [(item.name, item.after) for item in reviews if item.after is not None]
        each = [is_good(invocation, verdict.made, verdict.findings) for _, verdict in verdicts]
        good = all(each)
        before = base.counterpart if base is not None else lambda file: ""
        places = placed(verdicts, before) if FORMS.keys() & forms else ()
        judged = [Judged(*item) for item in zip((name for name, _ in verdicts), each, places, strict=False)]
        for form, file in forms.items():
            if form in FORMS:
                _write(FORMS[form](judged), file)
            elif form == "markdown":
                _write(comment(reviews, revision, good), file)
            else:
                _print(form, reviews, revision, good)
    return 0 if good else 2


def _reviews(invocation: Invocation, base: Tree | None) -> list[Review]:
    requests = invocation.requests
    if invocation.has("skip_others"):
        from sglang_hydra.convert.review.judging import without_others

        requests = without_others(requests, composer_of(invocation))
        if not any(is_document(item.text) for item in requests):
            return []
    return review(requests, invocation.config_dirs, invocation.value("config_name"), base, invocation.variables)


def _forms(invocation: Invocation) -> dict[str, str | None]:
    """Returns the typed forms, each with its file or None. Raises ConfigError for an unknown form, two forms on the
    screen, and a file for a form that is only shown."""
    asked = invocation.value("format") or ("json" if invocation.has("json") else "text")
    forms = {form: file or None for form, _, file in (item.partition("=") for item in asked.split(","))}
    for form in forms:
        if form not in FORMATS:
            near = nearest(form, FORMATS)
            message = f"--format {short(form)} is not one of {', '.join(FORMATS)}"
            raise ConfigError.of("REV001", message, hint=f"--format {near or 'markdown'}")
    if any(file and form not in IN_FILES for form, file in forms.items()):
        message = f"only {', '.join(IN_FILES)} can be written to a file"
        raise ConfigError.of("REV001", message, hint="--format text,sarif=check.sarif")
    on_screen = [form for form, file in forms.items() if file is None]
    on_screen += ["json"] if invocation.has("json") and "json" not in forms else []
    if len(on_screen) > 1:
        message = f"{' and '.join(on_screen)} cannot both go to the screen"
        raise ConfigError.of("REV001", message, hint=f"leave one out, or --format {asked}=FILE")
    if invocation.has("multirun"):
        message = "-m judges combinations of overrides; --format and --base judge files"
        hint = f"{program()} check --format markdown gpu=l40s FILES, once for each GPU class"
        raise ConfigError.of("REV001", message, hint=hint)
    return forms


def _print(form: str, reviews: list[Review], base: str | None, good: bool) -> None:
    if form == "json":
        results = [_record(item) for item in reviews]
        print_json({"schema": "sglang_hydra.check/1", "ok": good, "base": base, "results": results})
    else:
        write(line for item in reviews for line in _lines(item))


def _write(message: str, file: str | None) -> None:
    message = without_secret_forms(message)
    if file is not None:
        Path(file).write_text(message, encoding="utf-8")
        return
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(message.encode(encoding, "xmlcharrefreplace").decode(encoding))
    sys.stdout.flush()


def _record(review: Review) -> dict[str, object]:
    record = verdict_record(review.name, review.after or Checked(None, ()))
    changes = [item.to_json() for item in review.differences]
    return {**record, "state": review.state, "sentence": sentence(review), "differences": changes}


def _lines(review: Review) -> Iterator[Line]:
    if review.after is not None:
        yield from verdict_lines(review.name, review.after)
    message = sentence(review)
    if message:
        head = [text("  ")] if review.after is not None else [text(f"{review.name}: ")]
        yield [*head, text(message, "cyan")]


_TOOL = "sglang-hydra"
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


class Judged(NamedTuple):
    """A judged subject: its name, whether it is good, and its findings with their places."""

    name: str
    good: bool
    findings: Sequence[tuple[Finding, Place | None]]


def github(results: Sequence[Judged]) -> str:
    """Returns a workflow command for each finding, which GitHub shows at its line."""
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
    """Returns SARIF with one run, whose rules are the ids of its findings with their pages."""
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
    """Returns JUnit XML with a test case for each judged subject; a failure contains the findings."""
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
    """Returns the message, and a line for each remedy below."""
    words = ["hint", *["or"] * len(finding.shown)]
    said = [f"{word}: {remedy}" for word, remedy in zip(words, finding.shown, strict=False)]
    return "\n".join(printable(line) for line in (finding.message, *said))


def _escaped(content: str, more: str = "") -> str:
    """Returns the content with the signs escaped that end a workflow command or its property."""
    for sign in f"%\r\n{more}":
        content = content.replace(sign, f"%{ord(sign):02X}")
    return content


def _listed(findings: Sequence[tuple[Finding, Place | None]]) -> Iterator[str]:
    for finding, place in findings:
        where = f"{printable(place.file)}:{place.line}:{place.column}: " if place else ""
        yield f"{where}{finding.level} {finding.id}: {_said(finding)}"


def _rule(id: str) -> dict[str, object]:
    page = (id_record(id) or {}).get("page") or id
    return {"id": id, "shortDescription": {"text": title_of(id) or id}, "help": {"text": page}}


def _result(finding: Finding, place: Place | None, rule: int) -> dict[str, object]:
    about: dict[str, object] = {"ruleId": finding.id, "ruleIndex": rule, "level": finding.level}
    about["message"] = {"text": _said(finding).replace("](", "] (")}  # which would be a link
    if place is not None:
        region = {"startLine": place.line, "startColumn": place.column, "endColumn": place.end}
        where = {"artifactLocation": {"uri": quote(place.file)}, "region": region}
        about["locations"] = [{"physicalLocation": where}]
    return about


IN_FILES = ("markdown", *FORMS)
"""The forms that can be written to files."""
FORMATS = ("text", "json", *IN_FILES)
