"""Checks that the packages for measuring and reporting are installed."""

from __future__ import annotations

from importlib.util import find_spec

from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import install_command


def check_packages(verb: str, *names: str, extra: str = "bench") -> None:
    """Raises MachineError if one of the packages, which ``extra`` installs, is missing."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        message = f"{verb} needs {' and '.join(missing)}, which this environment does not have"
        raise MachineError(Finding("error", "RNR007", message, hint=install_command(extra)))
