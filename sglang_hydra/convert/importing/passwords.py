"""Replaces tokens, and passwords in addresses (``redis://user:password@host``): no file and no screen shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import without_secret_forms


def variable_for(name: str) -> str:
    """Returns the variable that replaces an argument's secret address in a file."""
    return f"SGLANG_HYDRA_{name.upper()}"


def hidden_in(findings: Iterable[Finding]) -> list[Finding]:
    """Hides tokens and the passwords of addresses in findings."""
    hide = without_secret_forms
    return [replace(finding, message=hide(finding.message)).reworded(hide) for finding in findings]
