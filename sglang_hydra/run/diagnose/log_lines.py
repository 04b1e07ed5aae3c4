"""The table of lines by which a log shows how a server is; ``log_lines.yaml`` has it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sglang_hydra.text.quick_yaml import quick_load

LOG_LINES: Mapping[str, Any] = quick_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
