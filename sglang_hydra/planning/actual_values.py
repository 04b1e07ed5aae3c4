"""The values of an argument in the form in which a plan and a server are compared."""

from __future__ import annotations

from typing import Any

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.secrets import is_secret_name
from sglang_hydra.text.json_types import NOT_FINITE, plain

IS_SET = "set"


_DRAWN = ("lora_id",)
"""Keys inside a value that every construction of it draws anew."""


def comparable(name: str, value: Any) -> Any:
    """One argument's value in the form in which plan and server are compared.

    JSON's types; a secret only says whether it is set; what each construction draws is left out; what JSON cannot say
    (inf) is the null that a server writes in its place.
    """
    is_float = name in FIELDS and FIELDS[name].kind == "float"
    if is_secret_name(name):
        return None if value is None else IS_SET
    made = _without_drawn(plain(value))
    if isinstance(made, str) and made in NOT_FINITE and is_float:
        return None
    if isinstance(made, int) and not isinstance(made, bool) and is_float:
        return float(made)
    return made


def _without_drawn(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_drawn(item) for key, item in value.items() if key not in _DRAWN}
    if isinstance(value, list):
        return [_without_drawn(item) for item in value]
    return value
