"""Asks an installed release with its own libraries, torch among them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_TOOLS = Path(__file__).resolve().parents[1]
_PROGRAM = f"import sys; sys.path.insert(0, {str(_TOOLS)!r}); from recording.with_torch import main; sys.exit(main())"


def ask_with_torch(
    python: str, machine: Mapping[str, Any], cases: Sequence[Mapping[str, Any]], timeout_s: float = 600.0
) -> list[dict[str, Any]]:
    """The answers of the SGLang of ``python`` to cases on one kind of machine, in the form of ``with_torch``.

    Raises CalledProcessError where it does not run, TimeoutExpired after ``timeout_s`` seconds for all.
    """
    done = subprocess.run(
        [python, "-I", "-B", "-X", "utf8", "-W", "ignore", "-c", _PROGRAM],
        input="".join(json.dumps(line) + "\n" for line in (machine, *cases)),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env={name: value for name, value in os.environ.items() if not name.startswith("SGLANG_")},
        timeout=timeout_s,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()][1:]
