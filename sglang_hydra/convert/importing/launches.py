"""One server that a text starts, before its flags are read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OPEN, CLOSE = "\ue000", "\ue001"
"""Around what only the machine that runs the text would know: a variable that nobody set, the output of a command."""

BEHIND_A_ROUTER = "sglang_router.launch_server"
"""Starts a router and the servers behind it."""
_MODULES = (
    "sglang.launch_server",
    "sglang.srt.launch_server",
    "dynamo.sglang",
    "dynamo.sglang.worker",
    BEHIND_A_ROUTER,
)
CONTAINERS = ("docker", "podman", "nerdctl")
"""Programs that run a container."""
_SCRIPTS = ("launch_server.py", "launch_server")
_MARKER = re.compile(
    r"sglang(?:_router|\.srt)?\.launch_server|\blaunch_server\.py\b|dynamo\.sglang\b|\bsglang\s+serve\b"
)
_IMAGE = re.compile(r"(?![-/.])[\w.${}()/-]*sglang[\w./-]*(?:[:@][\w.@:-]+)?")
_MODEL_FLAGS = ("--model-path", "--model", "--config")
_OPENED = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")


@dataclass(frozen=True)
class Launch:
    """One server. ``words`` are SGLang's flags, or ``values`` its arguments where the source has them typed (by any
    spelling that SGLang knows); ``resolved`` where these are what SGLang made of them.

    ``environment`` is what the source sets for the process. ``mentions`` are texts that may name the hardware or the
    release; ``gpu_count`` the GPUs that the process gets, ``nodes`` how many machines run it. ``files`` are texts that
    the source writes, by their paths. ``remarks`` say what of the source was passed over. ``behind_router``: the
    command starts ``--dp-size`` servers of one replica each, and a router for them.
    """

    kind: str
    place: str
    name: str = ""
    words: tuple[str, ...] = ()
    values: Mapping[str, Any] | None = None
    resolved: bool = False
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    mentions: tuple[str, ...] = ()
    version: str | None = None
    gpu_count: int | None = None
    gpu_classes: tuple[str, ...] = ()
    nodes: int | None = None
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    remarks: tuple[str, ...] = ()
    behind_router: bool = False


def has_launch_command(text: str) -> bool:
    """Whether a text contains a command that starts an SGLang server."""
    return _MARKER.search(text) is not None


def opened(name: str) -> str:
    """Marks ``name`` as unknown, as it is written in the source."""
    return f"{OPEN}{name.replace(OPEN, '').replace(CLOSE, '')}{CLOSE}"


def without_opened(text: str) -> str:
    """Removes the unknown parts of a text."""
    return _OPENED.sub("", text)


def is_open(text: str) -> bool:
    return OPEN in text


def open_names(text: str) -> list[str]:
    """Returns the unknown parts of a text, as the source writes them."""
    return _OPENED.findall(text)


def without_marks(text: str) -> str:
    """Returns the text as the source has it, without marks."""
    return text.replace(OPEN, "").replace(CLOSE, "")


def split_launch(words: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """Splits a command into the words before SGLang's flags and the flags; None for a command that starts no SGLang
    server."""
    for at, word in enumerate(words):
        if word in _MODULES or (word.rpartition("/")[2] in _SCRIPTS and at > 0 and word != "launch_server"):
            return list(words[: at + 1]), list(words[at + 1 :])
        if word == "serve" and at and words[at - 1].rpartition("/")[2] == "sglang":
            return list(words[: at + 1]), _with_model(list(words[at + 1 :]))
    return _by_image(words)


def _with_model(flags: list[str]) -> list[str]:
    """Adds the flag for ``sglang serve MODEL``, which names the model without one."""
    return ["--model-path", *flags] if flags and not flags[0].startswith("-") else flags


def _by_image(words: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """Splits a container command of an SGLang image whose entry point starts the server."""
    if not any(word.rpartition("/")[2] in CONTAINERS for word in words):
        return None
    for at, word in enumerate(words):
        rest = words[at + 1 :]
        if _IMAGE.fullmatch(without_marks(word)) and rest and rest[0].startswith("--"):
            if any(flag.partition("=")[0] in _MODEL_FLAGS for flag in rest):
                return list(words[: at + 1]), list(rest)
            return None
    return None


def bare_flags(words: Sequence[str]) -> list[str] | None:
    """Returns the words if all of them are SGLang's flags, else None."""
    if words and words[0].startswith("--") and any(word.partition("=")[0] in _MODEL_FLAGS for word in words):
        return list(words)
    return None
