"""Explains why a server failed, from its exit code and its log. Accepts the log of any server.

``diagnose(lines, exit_code)`` returns a ``Diagnosis``. ``classes/`` declares the failures, one entry for each class;
``reader`` reads a log of any size once, ``verdict`` chooses the deciding line, and ``remedy`` plans changes. Nothing
here starts, stops or contacts a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["UNKNOWN", "Diagnosis", "diagnose"]

if TYPE_CHECKING:
    from sglang_hydra.run.diagnose.diagnosis import Diagnosis, diagnose
    from sglang_hydra.run.diagnose.failure_class import UNKNOWN


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.diagnosis"), name)  # 90 patterns: reading a command needs none
