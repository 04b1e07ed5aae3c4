"""Refuses unanswered questions, by name."""

from __future__ import annotations

import sys
import traceback
from types import FrameType
from typing import Any

PREFIX = "unanswered question: "
_ASKING = ("sglang", "transformers", "huggingface_hub")


class Unanswered(BaseException):
    """A question of the release that no fact answers; the text names it and the asking line. It is no Exception, so
    that the release cannot take it for an answer."""


class Asked:
    """The questions of one case: the first refused one, even if the release swallowed the refusal, and the facts that
    were assumed and not declared."""

    first: str | None = None
    changed: str | None = None
    """The first file that differs from its wheel, for the rest of the process."""
    missing: list[tuple[str, str]] = []
    """Files that a wheel has and that were not fetched: its folder, and their names in it."""
    assumed: dict[str, Any] = {}
    at_start: dict[str, Any] = {}
    """The assumptions of the release's import, which hold for each case."""
    is_running = False
    """Whether the release has been imported. A later import happens in the first case that needs the module: its
    questions and settings are in no answer, so that the order of the cases makes no difference."""

    @classmethod
    def clear(cls) -> None:
        cls.first, cls.assumed, cls.missing = None, dict(cls.at_start), []


def refuse(question: str) -> Unanswered:
    """Returns the refusal of a question, to be raised, and keeps it, so that no handler of the release can lose it."""
    frame = asking_frame()
    place = f" ({short_path(frame.f_code.co_filename)}:{frame.f_lineno})" if frame else ""
    text = f"{PREFIX}{question}{place}"
    Asked.first = Asked.first or text
    return Unanswered(text)


def asking_frame() -> FrameType | None:
    """Returns the innermost frame of a release or its libraries, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame and str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _ASKING:
        frame = frame.f_back
    return frame


def asking_package() -> str:
    """Returns the top-level package of the innermost frame of a release or its libraries; else empty."""
    frame = asking_frame()
    return str(frame.f_globals["__name__"]).partition(".")[0] if frame else ""


def is_importing() -> bool:
    """Returns whether a module is being imported somewhere up the stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame and frame.f_globals.get("__name__") != "importlib._bootstrap":
        frame = frame.f_back
    return frame is not None


def short_path(filename: str) -> str:
    """Returns ``server_args.py`` for a path in an unpacked wheel, relative to sglang/srt if it is below it."""
    for package in ("/sglang/srt/", "/sglang/", "/transformers/", "/huggingface_hub/"):
        if package in filename:
            return filename.rpartition(package)[2]
    return filename.rpartition("/")[2]


def frames_of(error: BaseException) -> list[traceback.FrameSummary]:
    """Returns the places of a traceback, outermost first, without reading their files."""
    return traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False)
