"""Finds and hides passwords inside addresses (``redis://user:password@host``): no file and no screen shows them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from sglang_hydra.arguments.secrets import HIDDEN
from sglang_hydra.text.findings import Finding

_PASSWORD = re.compile(r"""(?<=://)([^/@:\s]*:)[^/\s"']+(?=@)""")


def holds_a_password(value: object) -> bool:
    """Returns whether a text, or one inside a list or a mapping, is an address with a password."""
    if isinstance(value, str):
        return _PASSWORD.search(value) is not None
    if isinstance(value, Mapping):
        return any(holds_a_password(item) for pair in value.items() for item in pair)
    return isinstance(value, (list, tuple)) and any(holds_a_password(item) for item in value)


def without_passwords(text: str) -> str:
    """Hides every password of an address in ``text``; keeps the user's name."""
    return _PASSWORD.sub(rf"\1{HIDDEN}", text)


def variable_for(name: str) -> str:
    """Returns the variable that replaces an argument's secret address in a file."""
    return f"SGLANG_HYDRA_{name.upper()}"


def hidden_in(findings: Iterable[Finding]) -> list[Finding]:
    """Hides the passwords of addresses in findings."""
    return [
        replace(finding, message=without_passwords(finding.message)).reworded(without_passwords) for finding in findings
    ]
