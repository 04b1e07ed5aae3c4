"""Whether the wheels of a release that the user named may be fetched now, and who is shown the progress."""

from __future__ import annotations

import os
from collections.abc import Callable

OFFLINE_VARIABLE = "SGLANG_HYDRA_OFFLINE"
"""Set to anything, nothing is fetched; ``--offline`` does it for one command."""

_progress: Callable[[str], None] | None = None


def allow(progress: Callable[[str], None]) -> None:
    """From now on this process may fetch; ``progress`` gets a line for each wheel. The command line calls it; a library
    call never fetches."""
    global _progress
    _progress = progress


def progress_if_allowed() -> Callable[[str], None] | None:
    """Where to show the progress of fetching; None where nothing may be fetched."""
    return None if os.environ.get(OFFLINE_VARIABLE) else _progress
