"""What a change does to one launch file, in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sglang_hydra.convert.review.judging import Review
from sglang_hydra.planning.comparing.difference import Difference, plans_of
from sglang_hydra.show.comparison import shown_value
from sglang_hydra.show.verdicts import Checked

_MOST_MOVES = 4
_WHERE = ("topology", "servers", "gpu.name", "engine")
# They follow the model that is named already.
_FOLLOWING = ("tokenizer_path", "served_model_name")

Word = Callable[[str], str]


def sentence(review: Review, word: Word = str) -> str:
    """``This change moves mem_fraction_static from 0.831 to 0.78 and no longer fits l40s.``

    ``word`` makes text from outside harmless in what the sentence is written into.
    """
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
    """Where it runs comes first, then what was typed otherwise, then what the rules made of it."""
    facts = [item for item in review.differences if item.key.rpartition(": ")[2] in _WHERE]
    values = [item for item in review.differences if item.kind in ("value", "environment")]
    values = [item for item in values if item.key.rpartition(": ")[2] not in _FOLLOWING]
    values.sort(key=lambda item: not _is_typed(item))
    shown = [*facts, *values] or [item for item in review.differences if item.key.rpartition(": ")[2] != "fits"]
    pieces = [
        f"{word(item.key)} from {word(shown_value(item.before))} to {word(shown_value(item.after))}" for item in shown
    ]
    rest = len(pieces) - _MOST_MOVES
    if rest > 0:
        pieces = [*pieces[:_MOST_MOVES], f"{rest} more value{'s' if rest > 1 else ''}"]
    if pieces:
        yield f"moves {_listed(pieces)}"


def _is_typed(item: Difference) -> bool:
    """Whether a layer, and no rule, decided the value on a side."""
    return any(reason != "default" and not reason[:6].rstrip("0123456789:").isupper() for reason in item.why)


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
    elif after.launchable and before.launchable is None:
        yield f"leads to an answer: {_state(after)}, and before {_state(before)}"
    elif after.launchable is None and before.launchable:
        yield f"leaves it open: {_state(after)}, and before {_state(before)}"
    elif after.launchable is not False and before.launchable is False:
        yield f"mends it: {_state(after)}, and before {_state(before)}"
    elif before.error_ids != after.error_ids and not explained:
        yield f"changes its errors from {_ids(before, word)} to {_ids(after, word)}"


def _ids(verdict: Checked, word: Word) -> str:
    return ", ".join(word(id) for id in verdict.error_ids) or "none"


def _listed(pieces: list[str]) -> str:
    if len(pieces) < 2:
        return "".join(pieces) or "changes nothing that a server would notice"
    return f"{', '.join(pieces[:-1])} and {pieces[-1]}"
