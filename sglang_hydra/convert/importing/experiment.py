"""Writes an imported server as YAML for conf/experiment/ and as a command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import yaml

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.fields import LoRARef
from sglang_hydra.compose.grammar import literal, written
from sglang_hydra.compose.node_types import is_text
from sglang_hydra.text.json_types import Json, tree_of
from sglang_hydra.text.screen import printable
from sglang_hydra.text.words import program

_SAFE = re.compile(r"(?!null$)[\w./:@%+-]+", re.ASCII)
_MARK = 2  # blanks before a remark behind a value


def experiment_yaml(
    choices: Mapping[str, str],
    values: Mapping[str, object],
    nodes: Mapping[str, object],
    *,
    remarks: Mapping[str, str],
    heading: Sequence[str],
) -> str:
    """Returns an option of an ``experiment`` group, which ``check FILE`` reads directly.

    ``choices`` are options of groups, ``values`` arguments, ``nodes`` dotted keys of ours. A text that is one
    ``${oc.env:NAME}`` is a reference; every other text is literal. ``remarks`` follow their arguments."""
    # Hydra looks for the package only in the first line.
    lines = ["# @package _global_"]
    lines += [f"# {printable(line)}".rstrip() for line in heading]
    if choices:
        lines.append("defaults:")
        lines += [f"  - override /{group}: {yaml_value(option)}" for group, option in choices.items()]
    for name in (name for name in EVERY if name in values):
        remark = f"{' ' * _MARK}# {printable(remarks[name])}" if name in remarks else ""
        lines.append(f"{name}: {yaml_value(values[name])}{remark}")
    lines += _nested(tree_of(nodes), 0)
    return "\n".join(lines) + "\n"


def command_line(choices: Mapping[str, str], values: Mapping[str, object], nodes: Mapping[str, object]) -> str:
    """Returns the experiment as a command for a shell."""
    words = [f"{group}={option}" for group, option in choices.items()]
    words += [override(name, values[name]) for name in EVERY if name in values]
    words += [override(key, value) for key, value in nodes.items()]
    return " ".join([program(), *(shlex.quote(printable(word)) for word in words)])


def override(key: str, value: object) -> str:
    """Returns ``key=value`` in Hydra's grammar, without quotes if possible."""
    plain = _plain(value)
    if is_reference(plain):
        return f"{key}={plain}"
    field = EVERY.get(key)  # of a text, 0.0.0.0 and 1 need no quotes
    takes_text = is_text(key.split(".")) if field is None else field.kind == "str" and not field.is_list
    if isinstance(plain, str) and (_is_bare(plain) or (takes_text and _SAFE.fullmatch(plain))):
        return f"{key}={plain}"
    try:
        return written(key, literal(plain))
    except ValueError:
        return f"{key}={plain}"  # a mapping with keys that only a file can spell


def _is_bare(text: str) -> bool:
    return (
        bool(text)
        and text.isascii()
        and text[0].isalpha()
        and all(char.isalnum() or char in "_-./" for char in text)
        and text.lower() not in ("null", "true", "false", "nan", "inf", "none", "yes", "no", "on", "off", "y", "n")
    )


def is_reference(value: object) -> bool:
    return isinstance(value, str) and value.startswith("${oc.env:") and value.endswith("}") and value.count("{") == 1


def _plain(value: object) -> Json:
    if isinstance(value, LoRARef):
        return {"lora_name": value.lora_name, "lora_path": value.lora_path, "pinned": value.pinned}
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(item) for item in value), key=str)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    content = text if _is_bare(text) or is_reference(text) else literal(text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", content, style=None if _is_bare(text) else '"')


_Dumper.add_representer(str, _represent)


def yaml_value(value: object) -> str:
    """Returns a value as YAML on one line; a text that is one ``${oc.env:NAME}`` is a reference."""
    flow = partial(yaml.dump, Dumper=_Dumper, default_flow_style=True, allow_unicode=True, sort_keys=False)
    return str(flow(_plain(value), width=1 << 30)).removesuffix("\n").removesuffix("\n...")


def _nested(tree: Mapping[str, object], depth: int) -> Iterator[str]:
    for key, value in tree.items():
        head = f"{'  ' * depth}{yaml_value(key)}:"
        if isinstance(value, dict) and value and depth < 2:
            yield head
            yield from _nested(value, depth + 1)
        else:
            yield f"{head} {yaml_value(value)}"
