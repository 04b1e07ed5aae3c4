"""What must never be shown or written down: the API key, and variables whose name says that they hold a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from typing import Any

from sglang_hydra.arguments.fields import FIELDS

SECRET_FIELDS = tuple(name for name, field in FIELDS.items() if field.arg.secret)
API_KEY_REFERENCE = "${oc.env:SGLANG_HYDRA_API_KEY}"
"""Stands for the key wherever a configuration is shown or recorded."""
HIDDEN = "***"

API_KEY_VARIABLE = "SGLANG_HYDRA_API_KEY"

_TYPED_KEY = re.compile(r"^(?P<key>\+{0,2}(?:[\w.@/-]+\.)?api_key)=(?P<value>.+)$", re.DOTALL)
_LATER_SECRETS = ("admin_api_key", "ssl_keyfile_password", "watermark_key", "watermark_key_b", "watermark_config")
"""Arguments of releases after 0.5.2."""
_TELLING = (
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "JWT",
    "CREDENTIAL",
    "API_KEY",
    "APIKEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
)
_OWNERS = ("ACCESS", "API", "AUTH", "BEARER", "HF", "HUB", "REFRESH", "SESSION", "SGLANG", "SGL")
"""Words before TOKEN that say whose key it is. Before TOKENS, and in the variables of SGLANG, it is else what models
read and write (SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK, SGLANG_USE_AITER_FP8_PER_TOKEN)."""


def is_secret_name(name: str) -> bool:
    """Whether an argument or a variable of this name holds a secret (api_key, HF_TOKEN, AWS_SECRET_ACCESS_KEY)."""
    telling = name.isupper() and (any(word in name for word in _TELLING) or _names_a_token(name))
    return telling or name in SECRET_FIELDS or name in _LATER_SECRETS


def _names_a_token(name: str) -> bool:
    """Whether a variable's TOKEN lets somebody in, and is no piece of text (TOKENIZERS_PARALLELISM)."""
    words = name.split("_")
    for before, word in zip(["", *words], words, strict=False):
        if word in ("TOKEN", "TOKENS") and before in _OWNERS:
            return True
        if word.endswith("TOKEN") and words[0] not in ("SGLANG", "SGL"):
            return True
    return False


def hide_typed_keys(words: list[str], environ: MutableMapping[str, str]) -> None:
    """Replaces an API key among a command line's ``words`` by its reference, and puts the key into ``environ``.

    For apps that hand their command line to Hydra as it is: Hydra writes every override into its run folder before
    any code of the app runs.
    """
    for position, word in enumerate(words):
        typed = _TYPED_KEY.match(word)
        if typed and "${" not in typed["value"] and typed["value"] != "null":
            environ[API_KEY_VARIABLE] = typed["value"].strip("'\"")
            words[position] = f"{typed['key']}={API_KEY_REFERENCE}"


def masked(name: str, value: Any) -> Any:
    """``value`` of the key ``name`` with every secret in it replaced by what stands for it."""
    if isinstance(value, Mapping):
        return {key: masked(str(key), item) for key, item in value.items()}
    if value is None or not is_secret_name(name):
        return value
    return API_KEY_REFERENCE if name in SECRET_FIELDS else HIDDEN


def secret_keys(node: Mapping[str, Any], path: str = "") -> list[str]:
    """The keys at or below ``path`` where a secret stands, as ``engine.env.HF_TOKEN``."""
    found: list[str] = []
    for name, value in node.items():
        key = f"{path}.{name}" if path else str(name)
        if isinstance(value, dict):
            found += secret_keys(value, key)
        elif value is not None and is_secret_name(str(name)):
            found.append(key)
    return found
