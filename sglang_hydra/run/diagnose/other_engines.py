"""Whose log it is: another engine's looks alike, but its failures have other reasons and other remedies."""

from __future__ import annotations

import re

from sglang_hydra.run.diagnose.log_lines import LOG_LINES

_LOOKED_AT = 2000
_LONGEST = 600
_OWN = re.compile(r"sglang|sgl[_-]kernel|SGLang|server_args=ServerArgs", re.IGNORECASE)
_NAMES = tuple(LOG_LINES["other_engines"])
_PATTERN = re.compile("|".join(f"({'|'.join(patterns)})" for patterns in LOG_LINES["other_engines"].values()))


class Others:
    """Looks at the first lines of a log. ``name`` is the other engine's, None where SGLang is in it or nothing says."""

    def __init__(self) -> None:
        self._own = False
        self._name: str | None = None
        self._count = 0

    @property
    def name(self) -> str | None:
        return None if self._own else self._name

    def read(self, raw: str, text: str) -> None:
        """Looks at one line, whole and without its prefixes: a container or an actor can have any engine's name.

        After a word of SGLang, or after enough lines without another engine's, it looks no more.
        """
        if self._own or (self._name is None and self._count >= _LOOKED_AT):
            return
        self._count += 1
        if _OWN.search(text) is not None:
            self._own = True
        elif self._name is None:
            found = _PATTERN.search(raw[:_LONGEST])
            if found is not None and found.lastindex is not None:
                self._name = _NAMES[found.lastindex - 1]
