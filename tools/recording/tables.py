"""The two tables of a release: its fields with their defaults, and its command line."""

from __future__ import annotations

import argparse
import dataclasses
import re
from typing import Any

from .outcome import default_of
from .released import Released


def defaults(released: Released) -> list[dict[str, Any]]:
    """Every field of ServerArgs in its order: name, type as Python prints it, whether it must be given, default."""
    rows: list[dict[str, Any]] = []
    for field in dataclasses.fields(released.server_args.ServerArgs):
        row = {"name": field.name, "type": _type_name(field.type), "required": default_of(field) is dataclasses.MISSING}
        rows.append(row if row["required"] else {**row, "default": default_of(field)})
    return rows


def _type_name(annotation: Any) -> str:
    """`int`, `typing.Optional[str]`, ...: classes of the package stand without their module."""
    plain = annotation.__name__ if type(annotation) is type else repr(annotation)
    return re.sub(r"\bsglang(\.\w+)*\.(?=\w+)", "", plain)


def command_line(released: Released) -> dict[str, Any]:
    """Every option of the parser in its order, and the lists that its choices and the checks are made of."""
    module = released.server_args
    parser = argparse.ArgumentParser()
    module.ServerArgs.add_cli_args(parser)
    actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    dests = {action.dest for action in actions}
    fields = [field.name for field in dataclasses.fields(module.ServerArgs)]
    fed = _fed_by(module.ServerArgs, dests)
    constants = {name: list(vars(module)[name]) for name in sorted(vars(module)) if name.endswith("_CHOICES")}
    return {
        "options": [_option(action) for action in actions],
        "dest_to_field": {dest: field for field, dest in fed.items() if dest != field},
        "fields_without_option": [name for name in fields if name not in fed],
        "dests_without_field": [action.dest for action in actions if action.dest not in fed.values()],
        "reasoning_parser_choices": list(module.ReasoningParser.DetectorMap),
        "tool_call_parser_choices": list(module.FunctionCallParser.ToolCallParserEnum),
        "lora_supported_target_modules": list(module.SUPPORTED_LORA_TARGET_MODULES),
        "lora_target_all_modules": module.LORA_TARGET_ALL_MODULES,
        "constants": constants,
        "zmq_tcp_port_delta": module.ZMQ_TCP_PORT_DELTA,
        "multimodal_model_archs": list(released.model_config.multimodal_model_archs),
        "multimodal_disabled_by_default": released.text_only,
    }


def _option(action: argparse.Action) -> dict[str, Any]:
    return {
        "option_strings": list(action.option_strings),
        "dest": action.dest,
        "nargs": action.nargs,
        "const": action.const,
        "choices": None if action.choices is None else list(action.choices),
        "default": action.default,
        "required": action.required,
        "action": type(action).__name__,
        "type": getattr(action.type, "__name__", None),
    }


class _Parsed(argparse.Namespace):
    """What a parser would give, each value being the name of the option's destination; anything else reads None."""

    def __getattr__(self, name: str) -> None:
        return None


def _fed_by(server_args_class: Any, dests: set[str]) -> dict[str, str]:
    """For each field that an option feeds the destination that it comes from, as from_cli_args passes them on."""
    given: dict[str, Any] = {}
    unresolved = type("Unresolved", (server_args_class,), {"__init__": lambda self, **values: given.update(values)})
    unresolved.from_cli_args(_Parsed(**{dest: dest for dest in dests}))  # type: ignore[attr-defined]
    return {field: dest for field, dest in given.items() if dest is not None}
