"""Why a server failed, from its exit state and its log: its own, or one that somebody brings.

``diagnose(lines, exit_code)`` gives a ``Diagnosis``. What can go wrong is declared in ``classes/``, one entry a
class; ``reader`` reads a log of any size once, ``verdict`` chooses the line that decides, ``remedy``
plans what to change. Nothing here starts, stops or asks a server.
"""

from __future__ import annotations

from sglang_hydra.run.diagnose.diagnosis import Diagnosis, diagnose
from sglang_hydra.run.diagnose.failure_class import UNKNOWN

__all__ = ["UNKNOWN", "Diagnosis", "diagnose"]
