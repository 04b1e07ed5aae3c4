"""Joins one override that was typed as several words: ``--tp-size 8``, ``tp_size = 8``, ``gpu h200``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.vllm import counterpart
from sglang_hydra.compose.corrections import key_meant, may_be, mistyped
from sglang_hydra.compose.schema import NO_CHOICE, NODES
from sglang_hydra.text.words import is_digits

if TYPE_CHECKING:
    from sglang_hydra.compose.overrides import Request

_NUMBER = re.compile(r"^ ?\d[\d., ]*$")
_UNIT = re.compile(r"[kmgt]i?b?|%|percent|pct|gpus?|req(uest)?s?|steps?|layers?|tok(en)?s?|m?s(ec)?", re.IGNORECASE)


def joined(requests: Iterable[Request]) -> Iterator[Request]:
    """Yields the requests, with ``--tp-size`` and ``8`` joined, or ``tp_size``, ``=`` and ``8``, as one mistake."""
    waiting: list[Request] = []
    for request in requests:
        if waiting and _belongs_to(waiting, request):
            waiting.append(request)
            continue
        yield from _as_one(waiting)
        waiting = [request]
    yield from _as_one(waiting)


def _belongs_to(waiting: Sequence[Request], request: Request) -> bool:
    """Returns whether a word is the value of the key before it, or the sign between them."""
    first, text = waiting[0], request.text
    if request.key is not None or first.key is not None or re.match("-(?![0-9.])", text):
        return False
    if first.text[:1].isdigit() and is_digits(first.text):  # 2 gpus, 8 x h100
        is_counted = len(waiting) == 1 or (len(waiting) == 2 and waiting[1].text == "x")
        return is_counted and "=" not in text and (text in ("x", "gpu", "gpus", "GPUs") or may_be("gpu", text))
    if first.is_flag or (first.key is None and counterpart(first.text) is not None):
        several = is_digits(text) and _takes_list(first.text)
        return (len(waiting) == 1 or several) and "=" not in text
    so_far = " ".join(item.text for item in waiting)
    key, equals, value = so_far.partition("=")
    left_open = value[:1] in ("[", "{") and value.count(value[0]) > value.count({"[": "]", "{": "}"}[value[0]])
    left_open = left_open or (value.endswith(",") and len(value) > 1)
    if equals and (left_open or _NUMBER.search(value)):  # [1, 2 and 128 k
        goes_on = _UNIT.fullmatch(text) is not None or (is_digits(text) and _takes_list(key.strip()))
        return "=" not in text and (left_open or goes_on)
    known = key.strip(": ") in (*EVERY, *NO_CHOICE) or ("=" in so_far + text[:1] and key_meant(key.strip(": ")))
    known = known or (re.match(r"\d[\d.,]*[km]?$", text, re.IGNORECASE) and _is_name(key))
    if not known or so_far.count("=") > 1:
        return False
    if so_far.endswith("="):
        return "=" not in text and text != ""
    if len(waiting) > 1 or "=" in so_far or text in EVERY or text in NODES:
        return False
    return "=" not in text or text.startswith("=")


def _is_name(word: str) -> bool:
    """Returns whether a word before a number means an argument: it has several parts, or takes a number."""
    meant = key_meant(word) or mistyped(word) or ""
    return bool(meant) and ("-" in word or "_" in word or (meant in EVERY and EVERY[meant].kind == "int"))


def _as_one(waiting: Sequence[Request]) -> Iterator[Request]:
    if len(waiting) < 2:
        yield from waiting
        return
    first, words = waiting[0], tuple(item.text for item in waiting)
    sign = "=" if first.text.startswith("-") else " "
    text = f"{words[0]}=[{','.join(words[1:])}]" if sign == "=" and len(words) > 2 else sign.join(words)
    yield first._replace(text=text, words=words)


def _takes_list(flag: str) -> bool:
    field = EVERY.get(flag.lstrip("-").replace("-", "_"))
    return field is not None and field.is_list
