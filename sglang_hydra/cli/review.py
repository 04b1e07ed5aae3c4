"""``check --base`` and ``check --format``: reads what was typed, judges both states, prints one of the forms."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.judged import is_good
from sglang_hydra.cli.review_forms import FORMS, Judged
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.convert.review.base import Tree, base_tree
from sglang_hydra.convert.review.judging import Review, review
from sglang_hydra.convert.review.markdown import comment
from sglang_hydra.convert.review.places import placed
from sglang_hydra.convert.review.summary import sentence
from sglang_hydra.planning.recorded.input_files import is_document
from sglang_hydra.show.verdicts import Checked, verdict_lines, verdict_record
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import Line, print_json, text, write
from sglang_hydra.text.words import nearest, program, short

IN_FILES = ("markdown", *FORMS)
"""The forms that can be written to files."""
FORMATS = ("text", "json", *IN_FILES)


def check(invocation: Invocation) -> int:
    """Judges each thing named, beside what it was in the base. 2 if any of them has an error as it is now."""
    forms = _forms(invocation)
    revision = invocation.value("base")
    with contextlib.nullcontext() if revision is None else base_tree(revision) as base:
        reviews = _reviews(invocation, base)
        verdicts = [(item.name, item.after) for item in reviews if item.after is not None]
        each = [is_good(invocation, verdict.made, verdict.findings) for _, verdict in verdicts]
        good = all(each)
        places = placed(verdicts) if FORMS.keys() & forms else ()
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
        from sglang_hydra.convert.review.chosen import without_others

        requests = without_others(requests, composer_of(invocation))
        if not any(is_document(item.text) for item in requests):
            return []
    return review(requests, invocation.config_dirs, invocation.value("config_name"), base, invocation.variables)


def _forms(invocation: Invocation) -> dict[str, str | None]:
    """The forms that were asked for, each with the file to write it to. Raises ConfigError for another form, for two on
    the screen, and for a file of a form that is only shown."""
    asked = invocation.value("format") or ("json" if invocation.has("json") else "text")
    forms = {form: file or None for form, _, file in (item.partition("=") for item in asked.split(","))}
    for form in forms:
        if form not in FORMATS:
            near = nearest(form, FORMATS)
            message = f"--format {short(form)} is none of {', '.join(FORMATS)}"
            raise ConfigError(Finding("error", "REV001", message, hint=f"--format {near or 'markdown'}"))
    if any(file and form not in IN_FILES for form, file in forms.items()):
        message = f"a file is written of {', '.join(IN_FILES)} alone"
        raise ConfigError(Finding("error", "REV001", message, hint="--format text,sarif=check.sarif"))
    on_screen = [form for form, file in forms.items() if file is None]
    on_screen += ["json"] if invocation.has("json") and "json" not in forms else []
    if len(on_screen) > 1:
        message = f"{' and '.join(on_screen)} are two forms on one screen"
        raise ConfigError(Finding("error", "REV001", message, hint=f"leave one out, or --format {asked}=FILE"))
    if invocation.has("multirun"):
        message = "-m judges combinations of overrides, and --format and --base go with files"
        hint = f"{program()} check --format markdown gpu=l40s FILES, once for each GPU class"
        raise ConfigError(Finding("error", "REV001", message, hint=hint))
    return forms


def _print(form: str, reviews: list[Review], base: str | None, good: bool) -> None:
    if form == "json":
        results = [_record(item) for item in reviews]
        print_json({"schema": "sglang_hydra.check/1", "ok": good, "base": base, "results": results})
    else:
        write(line for item in reviews for line in _lines(item))


def _write(message: str, file: str | None) -> None:
    if file is not None:
        Path(file).write_text(message, encoding="utf-8")
        return
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(message.encode(encoding, "xmlcharrefreplace").decode(encoding))
    sys.stdout.flush()


def _record(review: Review) -> dict[str, Any]:
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
