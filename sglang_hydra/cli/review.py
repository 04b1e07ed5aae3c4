"""``check --base`` and ``check --format``: reads what was typed, judges both states, prints one of the forms."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.judged import is_good
from sglang_hydra.cli.review_forms import FORMS, Judged
from sglang_hydra.convert.review.base import base_tree
from sglang_hydra.convert.review.judging import Review, review
from sglang_hydra.convert.review.markdown import comment
from sglang_hydra.convert.review.places import placed
from sglang_hydra.convert.review.summary import sentence
from sglang_hydra.show.verdicts import Checked, verdict_lines, verdict_record
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import Line, print_json, text, write
from sglang_hydra.text.words import nearest, program, short

FORMATS = ("text", "markdown", "json", *FORMS)


def check(invocation: Invocation) -> int:
    """Judges each thing named, beside what it was in the base. 2 if any of them has an error as it is now."""
    form = _format(invocation)
    revision = invocation.value("base")
    with contextlib.nullcontext() if revision is None else base_tree(revision) as base:
        reviews = review(invocation.requests, invocation.config_dirs, invocation.value("config_name"), base)
        verdicts = [(item.name, item.after) for item in reviews if item.after is not None]
        each = [is_good(invocation, verdict.made, verdict.findings) for _, verdict in verdicts]
        good = all(each)
        if form in FORMS:
            named = zip(verdicts, each, placed(verdicts), strict=True)
            _write(FORMS[form]([Judged(name, is_one, findings) for (name, _), is_one, findings in named]))
        else:
            _print(form, reviews, invocation.value("base"), good)
    return 0 if good else 2


def _format(invocation: Invocation) -> str:
    """The form that was asked for. Raises ConfigError for another one, and for two at a time."""
    form = invocation.value("format") or ("json" if invocation.has("json") else "text")
    if form not in FORMATS:
        near = nearest(form, FORMATS)
        message = f"--format {short(form)} is none of {', '.join(FORMATS)}"
        raise ConfigError(Finding("error", "REV001", message, hint=f"--format {near or 'markdown'}"))
    if invocation.has("json") and form != "json":
        raise ConfigError(Finding("error", "REV001", f"--json and --format {form} are two forms", hint="leave one out"))
    if invocation.has("multirun"):
        message = "-m judges combinations of overrides, and --format and --base go with files"
        hint = f"{program()} check --format markdown gpu=l40s FILES, once for each GPU class"
        raise ConfigError(Finding("error", "REV001", message, hint=hint))
    return form


def _print(form: str, reviews: list[Review], base: str | None, good: bool) -> None:
    if form == "markdown":
        _write(comment(reviews, base, good))
    elif form == "json":
        results = [_record(item) for item in reviews]
        print_json({"schema": "sglang_hydra.check/1", "ok": good, "base": base, "results": results})
    else:
        write(line for item in reviews for line in _lines(item))


def _write(message: str) -> None:
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
