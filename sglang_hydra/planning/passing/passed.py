"""Passes a plan to SGLang: its flags, keyword arguments, variables and its own ``--config`` file."""

from __future__ import annotations

from collections.abc import Mapping

from sglang_hydra.arguments.rendering import by_option
from sglang_hydra.arguments.secrets import SECRET_FIELDS, is_secret
from sglang_hydra.planning.fields import PlanFields
from sglang_hydra.planning.passing import fabric
from sglang_hydra.planning.passing.nodes import node_intents, unknown_head
from sglang_hydra.text.errors import ConfigError

KEY_VARIABLE = "SGLANG_API_KEY"
"""The variable with the API key where an export runs. SGLang itself does not read it."""

PYTHON_VARIABLE = "SGLANG_PYTHON"
"""The variable with SGLang's interpreter where an export runs."""

IMAGE_VARIABLE = "SGLANG_IMAGE"
"""The variable with the container image, where the table of images has none."""

OWN_VARIABLES = (KEY_VARIABLE, PYTHON_VARIABLE, IMAGE_VARIABLE)
"""Variables of the exports. SGLang reads none of them."""


def intent_of(plan: PlanFields) -> dict[str, object]:
    """Returns SGLang's arguments: the intent and a drawn seed, without the API key."""
    intent = {name: value for name, value in plan.intent.items() if value is not None}
    for name in SECRET_FIELDS:
        intent.pop(name, None)
    seed = plan.values["random_seed"]
    return intent if seed is None else {**intent, "random_seed": seed}


def flags_of(plan: PlanFields, intent: Mapping[str, object]) -> list[str]:
    """Returns SGLang's own flags for an intent, as its engine writes them. Raises ConfigError (ENG005) for a value that
    no flag can express."""
    try:
        return plan.release.render(intent)
    except ValueError as failure:
        raise ConfigError.of("ENG005", str(failure), hint="leave it at its default") from None


def flags_of_nodes(plan: PlanFields) -> list[list[str]]:
    """Returns SGLang's own flags of each node, node 0 first, without interpreter and API key."""
    return [flags_of(plan, intent) for intent in _of_each_node(plan)]


def keyword_arguments(plan: PlanFields) -> list[dict[str, object]]:
    """Returns the keyword arguments of each node, node 0 first, under the release's names. ``host`` is left out: an
    engine without a server listens nowhere."""
    passed = [plan.release.accept(intent).arguments for intent in _of_each_node(plan)]
    return [{name: value for name, value in each.items() if name != "host"} for each in passed]


def _of_each_node(plan: PlanFields) -> list[dict[str, object]]:
    return node_intents(intent_of(plan), int(plan.values["nnodes"]), unknown_head(plan))


def environment_of(plan: PlanFields, *, interface: str | None = None) -> dict[str, str]:
    """Returns the variables to set, without secrets. The plan's own values take priority over ``fabric``."""
    both = {**plan.inherited, **plan.environment}
    own = {name: value for name, value in both.items() if not is_secret(name, value) and name not in OWN_VARIABLES}
    return {**fabric.variables(plan.nodes.fabric, interface=interface), **own}


def as_yaml(plan: PlanFields, node: int = 0) -> str:
    """Writes YAML whose keys are flags: SGLang makes ``--KEY`` and the value's text of each entry, so every value must
    come back as the same word. Raises ConfigError (EXP020) for adapters, which it refuses there (0.5.23:
    srt/utils/server_args_config_parser.py), and for values with a leading dash, which it reads as flags."""
    from sglang_hydra.text.yaml_text import yaml_text

    entries: dict[str, object] = {}
    for option, *values in by_option(flags_of_nodes(plan)[node]):
        flag, equals, _ = str(option).partition("=")
        name = flag[2:].replace("-", "_")
        dashed = equals or any(str(value).startswith("-") for value in values)
        if dashed or name == "lora_paths":
            what = "a value that begins with a dash" if dashed else "adapters"
            message = f"{name}: SGLang's --config file cannot hold {what}"
            raise ConfigError.of("EXP020", message, name, hint="as_argv() can")
        read = [_number(str(value)) for value in values]
        entries[flag[2:]] = True if not read else read[0] if len(read) == 1 else read
    return yaml_text([entries])


def _number(word: str) -> int | float | str:
    """Returns the number if YAML reads it and Python writes it as this exact word; else the word."""
    for kind in (int, float):
        try:
            value = kind(word)
        except ValueError:
            continue
        if str(value) == word and word.lower() not in ("nan", "inf", "-inf"):
            return value
    return word
