"""Provides an artifact's variables, and passes secrets to its server by the names of variables, never by value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from sglang_hydra.arguments.secrets import SECRET_FIELDS, is_secret
from sglang_hydra.planning.passing.passed import KEY_VARIABLE
from sglang_hydra.planning.plan import Plan

HUB_TOKEN = "HF_TOKEN"

_WITH_KEY = Path(__file__).with_name("with_key.txt").read_text(encoding="utf-8")


def key_program(module: str) -> str:
    """Returns the program that runs ``module`` with the variable's API key: ``python3 -c PROGRAM [its flags]``."""
    return _WITH_KEY.replace("VARIABLE", KEY_VARIABLE).replace("MODULE", module)


KEY_PROGRAM = key_program("sglang.launch_server")
"""Starts SGLang with its API key.

SGLang 0.5.2 to 0.5.23 take the key only from ``--api-key``. Everyone on the machine can read the command line of a
process, but not ``sys.argv`` inside it, where this program adds the key. SGLang logs all its arguments at startup, so
the program masks the key in the log. The rest equals ``python3 -m sglang.launch_server``."""

KEY_WHY = (
    f"SGLang takes its API key from the command line only. The program below adds it from {KEY_VARIABLE} inside the",
    "process: it is in no process list and not in the log. It is in the environment that the process was given.",
)

_REFERENCE = re.compile(r"\$\{")


def has_key(plan: Plan) -> bool:
    return any(plan.intent.get(name) is not None for name in SECRET_FIELDS)


def without_secrets(words: Sequence[str], plan: Plan) -> list[str]:
    """Replaces each secret in the overrides by a reference to a variable."""
    known = [*plan.secrets.literals(), *(value for name, value in plan.environment.items() if is_secret(name, value))]
    return [_without_secret(word, [value for value in known if value]) for word in words]


def _without_secret(word: str, values: Sequence[str]) -> str:
    key, equals, value = word.partition("=")
    name = key.rpartition(".")[2].lstrip("+~")
    if equals and is_secret(name, value) and value != "null" and not _REFERENCE.search(value):
        return f"{key}=${{oc.env:{KEY_VARIABLE if name in SECRET_FIELDS else name}}}"
    for secret in values:
        word = word.replace(secret, "***")
    return word
