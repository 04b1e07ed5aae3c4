"""The SGLang release that this package's arguments and rules follow."""

from __future__ import annotations

SPECIFIED_VERSION = "0.5.2"
