"""Finds secrets, which are never shown or written: the API key, and variables with a secret's name."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, MutableMapping

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.tables.table import every_variable
from sglang_hydra.text.findings import Finding, Level
from sglang_hydra.text.json_types import Json, json_beside
from sglang_hydra.text.words import SECRET_FORM, without_secret_forms

SECRET_FIELDS = tuple(name for name, field in FIELDS.items() if field.arg.secret)
API_KEY_REFERENCE = "${oc.env:SGLANG_HYDRA_API_KEY}"
"""Replaces the key wherever a configuration is shown or recorded."""
HIDDEN = "***"

API_KEY_VARIABLE = "SGLANG_HYDRA_API_KEY"

_TYPED_KEY = re.compile(r"^(?P<key>\+{0,2}(?:[\w.@/-]+\.)?api_key)=(?P<value>.+)$", re.DOTALL)
_TABLE: Mapping[str, frozenset[str]] = {name: frozenset(text.split()) for name, text in json_beside(__file__).items()}
"""Parts of the names of secrets. ``later``: arguments of releases after 0.5.2. ``anywhere``: marks a secret anywhere in
a name, in any case. ``words``: as a whole word of a variable's name, without trailing digits (``words_in_any_case``:
also of an argument); TOKENS are a model's tokens, except after one of ``owners``. ``ends``: at the end of a word, but
not ``no_ends``. A name that ends with one of ``sizes`` is a number or a place (TOKEN_BUDGET, PIN_MEMORY). The address
(``addresses``) of one of ``stores`` contains its password (DATABASE_URL)."""
_ENDS = tuple(_TABLE["ends"])
_PLAIN = frozenset(("OLDPWD", "PWD"))
"""A shell's working directories."""


@functools.lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Returns whether an argument or a variable of this name holds a secret (api_key, HF_TOKEN, POD_SIGNING_KEY)."""
    if name in SECRET_FIELDS or name in _TABLE["later"]:
        return True
    telling = any(word in name.upper() for word in _TABLE["anywhere"]) and name not in FIELDS
    # The variables that SGLang's releases read are flags, sizes and paths.
    return (telling or _has_secret_word(name)) and name not in every_variable()


def is_secret(name: str, value: object) -> bool:
    """Returns whether a variable or a setting holds a secret, by its name or by the form of its value."""
    return is_secret_name(name) or has_secret_form(value)


def has_secret_form(value: object) -> bool:
    """Returns whether a value, or one inside it, has the form of a token or is an address with a password."""
    if isinstance(value, str):
        return len(value) > 6 and re.search(SECRET_FORM, value) is not None
    if isinstance(value, Mapping):
        return any(map(has_secret_form, value)) or any(map(has_secret_form, value.values()))
    return isinstance(value, (list, tuple)) and any(map(has_secret_form, value))


def _has_secret_word(name: str) -> bool:
    words = [word.rstrip("0123456789") for word in name.upper().split("_")]
    if name in _PLAIN or name in FIELDS or words[-1] in _TABLE["sizes"] or "KEY_VALUE" in name:
        return False
    if name.islower():  # most are arguments of a release: an eos_token, a hash_key
        return not _TABLE["words_in_any_case"].isdisjoint(words)
    return (
        not (_TABLE["words"] | _TABLE["words_in_any_case"]).isdisjoint(words)
        or (name.isupper() and any(word.endswith(_ENDS) and word not in _TABLE["no_ends"] for word in words))
        or any(f"{owner}_TOKENS" in name for owner in _TABLE["owners"])
        or not (_TABLE["stores"].isdisjoint(words) or _TABLE["addresses"].isdisjoint(words))
    )


def without_secrets(text: str) -> str:
    """Hides keys, tokens and passwords in a text of others, such as a line of a log: by the name before the value, by
    the header or flag that holds it, and by the form of the value."""
    for pattern, replacement in _IN_TEXT:  # compiled when they are needed: no plan needs them
        text = re.sub(pattern, replacement, text, flags=re.IGNORECASE)
    kept, at = [], 0
    for pair in re.finditer(_PAIR, text):
        is_behind = "-" in pair[1] or pair[0].strip("'\" ") != pair[1] or looks_drawn(pair[2])
        if pair.start() >= at and is_behind and _is_told(pair[1].strip("-").replace("-", "_"), pair[2]):
            kept += [text[at : pair.end()], HIDDEN]
            at = pair.end(2)
    return without_secret_forms("".join([*kept, text[at:]]))


def hidden_in(record: Json) -> Json:
    """Returns a record of others with every secret in it hidden, by its key or as in a text."""
    if isinstance(record, Mapping):
        return {key: HIDDEN if _is_told(str(key), item) else hidden_in(item) for key, item in record.items()}
    if isinstance(record, (list, tuple)):
        return [hidden_in(item) for item in record]
    return without_secrets(record) if isinstance(record, str) else record


def _is_told(name: str, value: object) -> bool:
    """Returns whether a name says that the text behind it is a secret. In small letters it may be an argument of a
    release (eos_token), so the text has to look drawn."""
    if not isinstance(value, str) or value.lower() in ("none", "null", "bearer", "basic"):
        return False
    is_drawn = "_" in name and name not in FIELDS and looks_drawn(value)
    return is_secret_name(name) or (is_drawn and is_secret_name(name.upper()))


def looks_drawn(value: str) -> bool:
    """Returns whether a text looks as keys do: 12 letters and digits or more, of both kinds."""
    return re.fullmatch(r"(?=\D*\d)(?=.*[A-Za-z])[\w+=-]{12,}", value) is not None


_PAIR = (
    r"""(?<![\w-])(--[A-Za-z][\w-]{1,63}(?=[= ])|[A-Za-z0-9]+_\w+(?=[ ])|[A-Za-z][\w-]{1,63}(?=['"]?[ ]?[=:]))"""
    r"""['"]?[ ]?[=: ][ ]?['"]?"""
    r"""(?=([^'",\s)}\]]{4,400}))"""
)
_IN_TEXT = (
    (r"\b(hf_|gh[pousr]_|github_pat_|xox[abprs]-|glpat-|nvapi-|(?-i:eyJ))[\w.-]{12,}", r"\1***"),
    (r"\b(sk-)[\w-]{20,}|\b((?-i:A[KS]IA))(?-i:[A-Z0-9]{16})\b", r"\1\2***"),
    (r"(authorization['\"]?\s?[=:]\s?['\"]?\w{1,20} )\S+", r"\1***"),
    (r"\b(Bearer) [\w.~+/=-]{4,}", r"\1 ***"),
    (
        r"((?<![a-z]_)token['\"]?\s?[=:]\s?['\"]?)(?!none\b|null\b)(?=\S*[a-z])[^'\",\s)]{6,}",
        r"\1***",
    ),
    (r"(--[\w-]{0,40}(?:api-key|-token|password|secret)[= ])\S+", r"\1***"),
    (r"([?&;][\w-]{0,20}(?:sig|signature|key|token|code|auth)=)[^&\s'\"]{6,}", r"\1***"),
    (r"(://[^/\s:@]{0,80}:)[^@/\s]{1,200}@", r"\1***@"),
)


def shown_by_processes(intent: Mapping[str, object], level: Level) -> list[Finding]:
    """Returns a finding (SEC003) for each argument whose value has the form of a secret."""
    why = "which the list of processes on the server's machine shows to everyone"
    return [
        Finding(level, "SEC003", f"{name} holds a secret, {why}", (name,), f"a value of {name} without it")
        for name, value in intent.items()
        if has_secret_form(value)
    ]


def hide_typed_keys(words: list[str], environ: MutableMapping[str, str]) -> None:
    """Replaces an API key among a command line's ``words`` by its reference, and puts the key into ``environ``.

    For apps that pass their command line to Hydra unchanged: Hydra writes every override into its run folder before any
    code of the app runs."""
    for position, word in enumerate(words):
        typed = _TYPED_KEY.match(word)
        if typed and "${" not in typed["value"] and typed["value"] != "null":
            environ[API_KEY_VARIABLE] = typed["value"].strip("'\"")
            words[position] = f"{typed['key']}={API_KEY_REFERENCE}"


def masked(name: str, value: object) -> object:
    """Returns ``value`` of the key ``name`` with every secret in it masked."""
    if isinstance(value, Mapping):
        return {key: masked(str(key), item) for key, item in value.items()}
    if value is None or not is_secret(name, value):
        return value
    return API_KEY_REFERENCE if name in SECRET_FIELDS else HIDDEN


def secret_keys(node: Mapping[str, object], path: str = "") -> list[str]:
    """Returns the keys of secrets at or below ``path``, such as ``engine.env.HF_TOKEN``."""
    found: list[str] = []
    for name, value in node.items():
        key = f"{path}.{name}" if path else str(name)
        if isinstance(value, dict):
            found += secret_keys(value, key)
        elif value is not None and is_secret(str(name), value):
            found.append(key)
    return found


def masked_word(word: str) -> str:
    """Masks the value of ``key=value`` or ``--flag=value`` where it is a secret and not a reference."""
    key, _, value = word.partition("=")
    is_open = not value or "${" in value or not (holds_secret(key, value) or has_secret_form(value))
    return word if is_open else f"{key}={HIDDEN}"


def holds_secret(key: str, value: str = "") -> bool:
    """Returns whether a typed key or flag takes a secret: ``engine.env.HF_TOKEN``, ``--api-key``."""
    return _is_told(key.lstrip("+-").replace("-", "_").rpartition(".")[2], value.strip("'\""))
