"""A plan for other programs: SGLang's flags, keyword arguments, variables and its own ``--config`` file.

Thin ways to what the exports write, for code that has a ``Plan``: ``Plan.as_argv()`` and its like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang_hydra.errors import ConfigError
from sglang_hydra.findings import Finding
from sglang_hydra.launch.export.engine_kwargs import keyword_arguments
from sglang_hydra.launch.export.job import Job, flags_of
from sglang_hydra.launch.export.words import by_option

if TYPE_CHECKING:
    from sglang_hydra.plans import Plan


def as_argv(plan: Plan, node: int = 0) -> list[str]:
    from sglang_hydra.launch.nodes import node_intents

    job = Job(plan, ())
    return flags_of(plan, node_intents(job.intent, job.nodes)[node])


def as_engine_kwargs(plan: Plan, node: int = 0) -> dict[str, Any]:
    return keyword_arguments(Job(plan, ()))[node]


def as_env(plan: Plan) -> dict[str, str]:
    return {**Job(plan, ()).environment()}


def as_yaml(plan: Plan, node: int = 0) -> str:
    """SGLang writes ``--KEY`` and the value's text for each entry, so the keys are flags and every value must come
    back as the same word. Raises ConfigError (EXP020) for adapters, which it refuses there (0.5.23:
    srt/utils/server_args_config_parser.py), and for values that begin with a dash, which it reads as flags."""
    from sglang_hydra.launch.export.yaml_text import yaml_text

    entries: dict[str, Any] = {}
    for option, *values in by_option(as_argv(plan, node)):
        flag, equals, _ = str(option).partition("=")
        name = flag[2:].replace("-", "_")
        dashed = equals or any(str(value).startswith("-") for value in values)
        if dashed or name == "lora_paths":
            what = "a value that begins with a dash" if dashed else "adapters"
            message = f"{name}: SGLang's --config file cannot hold {what}"
            raise ConfigError(Finding("error", "EXP020", message, (name,), "as_argv() can"))
        read = [_number(str(value)) for value in values]
        entries[flag[2:]] = True if not read else read[0] if len(read) == 1 else read
    return yaml_text([entries])


def _number(word: str) -> int | float | str:
    """The number that YAML reads and Python writes as this very word; else the word."""
    for kind in (int, float):
        try:
            value = kind(word)
        except ValueError:
            continue
        if str(value) == word and word.lower() not in ("nan", "inf", "-inf"):
            return value
    return word
