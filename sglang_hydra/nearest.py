"""Did you mean ...?"""

from __future__ import annotations

import re
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant: ignoring case and separators first, then by similarity."""
    import difflib

    flat = {_flat(candidate): candidate for candidate in names}
    wanted = _flat(name)[:80]
    if wanted in flat:
        return flat[wanted]
    close = difflib.get_close_matches(wanted, flat, n=1)
    return flat[close[0]] if close else None


def _flat(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()
