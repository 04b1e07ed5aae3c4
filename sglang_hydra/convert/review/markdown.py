"""Renders a review as a Markdown comment. Foreign text cannot format, link, mention or break out.

GitHub cuts comments at 65536 characters, so the end counts the omitted parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from sglang_hydra.convert.review.judging import Review
from sglang_hydra.planning.comparing.difference import plans_of
from sglang_hydra.planning.plan import Plan
from sglang_hydra.show.comparison import shown_value
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.show.verdicts import Checked
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import printable
from sglang_hydra.text.words import number, plural, short

_MOST_MOVES = 4
_WHERE = ("topology", "servers", "gpu.name", "engine")
# These follow the model, which is already named.
_FOLLOWING = ("tokenizer_path", "served_model_name")

Word = Callable[[str], str]


def sentence(review: Review, word: Word = str) -> str:
    """Returns ``This change moves mem_fraction_static from 0.831 to 0.78 and no longer fits l40s.``

    ``word`` escapes foreign text for the target format."""
    before, after = review.before, review.after
    if review.state == "removed":
        return "Removed by this change."
    if after is None or review.state == "new":
        return ""
    if review.state == "added":
        return "Added by this change."
    if review.state == "same" or before is None:
        return "This change moves nothing in it."
    if after.made is None:
        was = "could not be composed before either" if before.made is None else "could be composed before"
        return f"It cannot be composed; it {was}."
    if before.made is None:
        return f"It can be composed now, and could not before: {_state(after)}."
    clauses = [*_moves(review, word), *_verdicts(before, after, word)]
    return f"This change {_listed(clauses)}."


def _state(verdict: Checked) -> str:
    if verdict.made is None:
        return "it cannot be composed"
    if verdict.launchable is None:
        return "it is not known whether it can be launched"
    if verdict.launchable:
        return "it can be launched"
    return "SGLang would accept it and then fail" if verdict.ok else "SGLang would refuse it"


def _moves(review: Review, word: Word) -> Iterator[str]:
    """Yields the changes: of the platform first, then typed values, then values that rules changed."""
    facts = [item for item in review.differences if item.key.rpartition(": ")[2] in _WHERE]
    values = [item for item in review.differences if item.kind in ("value", "environment")]
    values = [item for item in values if item.key.rpartition(": ")[2] not in _FOLLOWING]
    values.sort(key=lambda item: all(one == "default" or one[:6].rstrip("0123456789:").isupper() for one in item.why))
    shown = [*facts, *values] or [item for item in review.differences if item.key.rpartition(": ")[2] != "fits"]
    pieces = [
        f"{word(item.key)} from {word(shown_value(item.before))} to {word(shown_value(item.after))}" for item in shown
    ]
    rest = len(pieces) - _MOST_MOVES
    if rest > 0:
        pieces = [*pieces[:_MOST_MOVES], f"{rest} more value{'s' if rest > 1 else ''}"]
    if pieces:
        yield f"moves {_listed(pieces)}"


_TURNS: Mapping[tuple[bool | None, bool | None], str] = {
    (None, True): "leads to an answer",
    (True, None): "leaves it open",
    (False, True): "fixes it",
    (False, None): "fixes it",
}
"""What a change does to a verdict: before it, after it."""


def _verdicts(before: Checked, after: Checked, word: Word) -> Iterator[str]:
    explained = False
    for role, plan in plans_of(after.made).items():
        there = plans_of(before.made).get(role)
        if there is None or plan.fit is None or there.fit is None or plan.fit.fits == there.fit.fits:
            continue
        gpu = word(plan.gpu.name) + (f" ({word(role)})" if role else "")
        same_gpu = there.gpu.name == plan.gpu.name
        if plan.fit.fits is False:
            explained = True
            yield f"no longer fits {gpu}" if same_gpu and there.fit.fits else f"does not fit {gpu}"
        elif plan.fit.fits:
            yield f"fits {gpu} now" if same_gpu else f"fits {gpu}"
        else:
            yield f"leaves open whether it fits {gpu}"
    if before.launchable is not False and after.launchable is False and not (explained and after.ok):
        ids = ", ".join(word(id) for id in after.error_ids)
        how = "SGLang refuses it"
        if after.ok:
            was = "it could be launched before" if before.launchable else f"before {_state(before)}"
            how = f"{was}, and SGLang would accept it and then fail"
        yield f"breaks it: {how} ({ids})"
    elif what := _TURNS.get((before.launchable, after.launchable)):
        yield f"{what}: {_state(after)}, and before {_state(before)}"
    elif before.error_ids != after.error_ids and not explained:
        was, now = (", ".join(map(word, side.error_ids)) or "none" for side in (before, after))
        yield f"changes its errors from {was} to {now}"


def _listed(pieces: list[str]) -> str:
    if len(pieces) < 2:
        return "".join(pieces) or "changes nothing that a server would notice"
    return f"{', '.join(pieces[:-1])} and {pieces[-1]}"


MARK = "<!-- sglang-hydra check -->"
"""The first line, by which a workflow finds its earlier comment."""

_LONGEST = 60_000
_MOST_ROWS = 30
_MOST_FINDINGS = 20
_WIDEST = 200
_LONGEST_LINE = 1000
# Inside an HTML block only HTML and mentions need escapes, not Markdown.
_IN_PRE = " \n_,.:;/=+()%{}'\"-?"
_PLAIN = re.compile(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*|-?\d{1,15}\.\d{1,15}")
_IN_TICKS = re.compile(r"(?!.*(?:://|www\.))[\w .,:;/=+()%{}\"'-]*")


def comment(reviews: Sequence[Review], base: str | None, good: bool) -> str:
    """Returns the whole comment. ``good`` is the overall verdict of ``check``."""
    parts = [MARK, f"### sglang-hydra check: {_headline(reviews, good)}", ""]
    parts += [_summary(reviews, base), ""]
    length, left_out = sum(map(len, parts)), 0
    for review in sorted(reviews, key=_rank):
        if _is_quiet(review):
            continue
        block = "\n".join(_block(review))
        if length + len(block) > _LONGEST:
            left_out += 1
            continue
        length += len(block)
        parts.append(block)
    if left_out:
        parts += [f"{plural(left_out, 'more file')} with changes or errors: too long for a comment.", ""]
    parts += _quiet([review for review in reviews if _is_quiet(review)], _LONGEST - length)
    return "\n".join(parts).rstrip() + "\n"


def word(content: str) -> str:
    """Writes foreign text within a sentence: a plain word or number bare, others as code."""
    return content if _PLAIN.fullmatch(content) and len(content) < _WIDEST else code(content)


def code(content: str) -> str:
    """Writes text as code: in backticks if the text cannot end them or a table cell, else as entities."""
    content = printable(short(content, _WIDEST))
    if content.strip() and content.isascii() and _IN_TICKS.fullmatch(content):
        return f"`{content}`"
    return f"<code>{entities(content)}</code>"


def entities(content: str, kept: str = " ,") -> str:
    """Encodes every character that Markdown, HTML or a forge may interpret as a number, except those in ``kept``."""
    return "".join(char if char.isalnum() or char in kept else f"&#{ord(char)};" for char in content)


def _headline(reviews: Sequence[Review], good: bool) -> str:
    found = [review.after.launchable for review in reviews if review.after]
    bad, open = found.count(False), found.count(None)
    unknown = f"of {open} of {plural(len(reviews), 'file')} it is not known whether it can be launched"
    if good and not bad:
        return unknown if open else "all can be launched"
    return f"{bad} of {plural(len(reviews), 'file')} cannot be launched{f', {unknown}' if open else ''}"


def _summary(reviews: Sequence[Review], base: str | None) -> str:
    if base is None:
        return f"{plural(len(reviews), 'launch file')} judged; nothing to compare with."
    states = [review.state for review in reviews]
    counts = [f"{states.count(state)} {state}" for state in ("changed", "added", "removed", "same") if state in states]
    return f"{plural(len(reviews), 'launch file')} against {code(base)}: {', '.join(counts) or 'none'}."


def _rank(review: Review) -> tuple[bool, bool]:
    """Sorts newly broken files first, then those that were broken before, then other changes."""
    broken = review.after is not None and review.after.launchable is False
    return (not (broken and review.before is not None and review.before.launchable is not False), not broken)


def _is_quiet(review: Review) -> bool:
    if review.after is None or review.state == "same":
        return review.after is None or review.after.launchable is True
    warned = any(finding.level == "warning" for finding in review.after.findings)
    return review.state == "new" and review.after.launchable is True and not warned


def _block(review: Review) -> Iterator[str]:
    mark = {True: "✅", False: "❌", None: "❔"}[review.after is None or review.after.launchable]
    yield f"#### {mark} {code(review.name)}"
    yield ""
    after = review.after or Checked(None, ())
    what = sentence(review, word)
    plan = next(iter(plans_of(after.made).values()), None)
    yield " ".join(piece for piece in (f"{_about(plan)}." if plan else "", what, _verdict(after)) if piece)
    yield ""
    yield from _table(review)
    yield from _findings(after.findings, plan)


def _about(plan: Plan) -> str:
    count = f"{number(plan.gpu.count)} x " if plan.gpu.count else ""
    model = str(plan.intent.get("model_path"))
    return f"{code(model)} on {count}{word(plan.gpu.name)}, SGLang {word(str(plan.engine.version))}"


def _verdict(after: Checked) -> str:
    said = _state(after)
    said = said[0].upper() + said[1:]
    if after.made is not None and after.launchable is None:
        return f"**{said}:** {word(after.why)}"
    return "" if after.made is not None and after.launchable else f"**{said}.**"


def _table(review: Review) -> Iterator[str]:
    if not review.differences:
        return
    yield "| what | before | after | because |"
    yield "| --- | --- | --- | --- |"
    for item in review.differences[:_MOST_ROWS]:
        reasons = " → ".join(code(reason) for reason in dict.fromkeys(item.why) if reason)
        yield f"| {code(item.key)} | {code(shown_value(item.before))} | {code(shown_value(item.after))} | {reasons} |"
    more = len(review.differences) - _MOST_ROWS
    if more > 0:
        yield f"| {plural(more, 'more value')} | | | |"
    yield ""


def _findings(findings: Sequence[Finding], plan: Plan | None) -> Iterator[str]:
    shown = [finding for finding in findings if finding.level != "info"]
    if not shown:
        return
    lines = ["".join(content for content, _ in line).rstrip() for line in finding_lines(shown[:_MOST_FINDINGS], plan)]
    text = "\n".join(short(line, _LONGEST_LINE) for line in lines).strip()
    yield f"<pre>{entities(text, _IN_PRE)}</pre>"
    yield ""
    if len(shown) > _MOST_FINDINGS:
        yield f"{plural(len(shown) - _MOST_FINDINGS, 'more finding')}."
        yield ""


def _quiet(reviews: Sequence[Review], room: int) -> Iterator[str]:
    if not reviews:
        return
    yield f"<details><summary>{plural(len(reviews), 'file')} without a change or an error</summary>"
    yield ""
    for place, review in enumerate(reviews):
        description = sentence(review, word) or "It can be launched."
        line = f"- {code(review.name)}: {description}"
        room -= len(line) + 1
        if room < 0:
            yield f"- {len(reviews) - place} more"
            break
        yield line
    yield ""
    yield "</details>"
