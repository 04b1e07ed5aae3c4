"""Writes sglang_hydra/schemas/config.schema.json: what an editor knows of our YAML, for completion and hover help.

    python tools/config_schema.py [--check] [--config-dir FOLDER ...] [--out FILE]

With ``--check`` nothing is written, and the exit code is 1 where the file is stale. ``--config-dir`` adds the options
of an experiment repo's own presets, for a schema of its own: name another file with ``--out``.
"""

from __future__ import annotations

import argparse
import json
import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that a bare checkout will do

from sglang_hydra.arguments.every import EVERY  # noqa: E402
from sglang_hydra.arguments.fields import Field  # noqa: E402
from sglang_hydra.arguments.tables.table import known_versions, release  # noqa: E402
from sglang_hydra.compose.composer import Composer  # noqa: E402
from sglang_hydra.compose.node_types import types_of, without_none  # noqa: E402
from sglang_hydra.compose.recipes import recipes  # noqa: E402
from sglang_hydra.compose.schema import NODES, Root  # noqa: E402
from sglang_hydra.show.key_help import GROUPS, keys  # noqa: E402
from tools.generated import write_or_check  # noqa: E402

SCHEMA = ROOT / "sglang_hydra" / "schemas" / "config.schema.json"
_INTERPOLATION = {"$ref": "#/$defs/interpolation"}
_KINDS: Mapping[str, Any] = {
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    # YAML reads some texts as numbers; they are text where text is wanted.
    "str": {"type": ["string", "number"]},
    "Any": {},
}


def schema(config_dirs: Sequence[str] = ()) -> dict[str, Any]:
    """The schema of one YAML file: an experiment, a primary config, or a file for ``check``."""
    composer = Composer(config_dirs)
    groups = {group: composer.options(group) for group in composer.groups()}
    groups["recipe"] = sorted({*groups.get("recipe", ()), *recipes()})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "sglang_hydra.config/1",
        "title": "A configuration of sglang-hydra: arguments of SGLang at the root, ours beside them",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "defaults": _defaults(groups),
            "hydra": {"type": "object", "description": "Hydra's own settings"},
            **{name: _argument(field) for name, field in EVERY.items()},
            **{name: _node_or_choice(name, groups.get(name, ())) for name in NODES},
        },
        "$defs": {
            "interpolation": {
                "type": "string",
                "pattern": "\\$\\{.+\\}",
                "description": "a value that is known when it is composed: ${oc.env:NAME}, ${gpu.count}",
            }
        },
    }


def _defaults(groups: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for group, options in groups.items():
        for key in (group, f"/{group}", f"override {group}", f"override /{group}"):
            chosen[key] = _choice(group, options)
    own = {"type": ["string", "null", "array"]}
    return {
        "description": "presets to begin with; later entries win over earlier ones",
        "type": "array",
        "items": {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "minProperties": 1,
                    "maxProperties": 1,
                    "properties": chosen,
                    "patternProperties": {"^(override )?/?hydra/": own, "^(?!override /?)[^@]+$": own, "@": own},
                    "additionalProperties": False,
                },
            ]
        },
    }


def _choice(group: str, options: Sequence[str]) -> dict[str, Any]:
    kinds: list[Any] = [{"enum": [*options, None]}, _INTERPOLATION]
    if group == "model":
        kinds.append({"type": "string", "pattern": "/", "description": "org/name of the hub, or a folder"})
    return {"anyOf": kinds, "description": f"an option of the group {group}"}


def _every_choice(name: str) -> tuple[Any, ...] | None:
    """Returns the values that some release takes for an argument; None where one takes any value."""
    found: dict[Any, None] = {}
    for version in known_versions():
        argument = release(version).arguments.get(name)
        if argument is not None:
            if argument.choices is None:
                return None
            found |= dict.fromkeys(argument.choices)
    return tuple(found)


def _argument(field: Field) -> dict[str, Any]:
    """One argument: its help, its type, its choices where nothing may add to them."""
    kind = dict(_KINDS[field.kind])
    choices = field.arg.choices and _every_choice(field.name)
    kinds: list[Any] = [kind]
    if choices is not None:
        kinds = [{"enum": list(choices)}]
        if isinstance(field.arg.choices, list):  # a plug-in of SGLang may add some
            kinds.append(kind)
    if field.arg.secret:
        kinds = []  # a secret is referred to, and never stands in a file
    if field.is_list:
        kinds = [{"type": "array", "items": {"anyOf": [*kinds, _INTERPOLATION]}}]
    if field.optional:
        kinds.append({"type": "null"})
    said = [field.arg.help]
    if field.arg.unit:
        said.append(f"Unit: {field.arg.unit}.")
    if field.arg.none:
        said.append(f"null: {field.arg.none}.")
    made: dict[str, Any] = {"description": " ".join(said), "anyOf": [*kinds, _INTERPOLATION]}
    if not field.required:
        made["default"] = field.default
    return made


def _node_or_choice(name: str, options: Sequence[str]) -> dict[str, Any]:
    made = _typed(types_of(Root)[name], name)
    key = keys().get(name)
    if key is not None and key.choices:
        made = {"enum": [*key.choices, None]}
    if options:
        choice = _choice(name, options)
        return {"description": choice["description"], "anyOf": [made, *choice["anyOf"]]}
    return {"anyOf": [made, _INTERPOLATION]} if "description" not in made else made


def _said_of(path: str) -> dict[str, Any]:
    """What a key of ours is, for who hovers over it; nothing for a node, which says it itself."""
    key = keys().get(path)
    if key is None:
        return {}
    return {"description": key.about + (f"; null: {key.null}" if key.null else "")}


def _typed(kind: Any, path: str = "") -> dict[str, Any]:
    """The schema of a type of ours: a dataclass, a list, a mapping, a plain value or None."""
    if is_dataclass(kind):
        properties = {
            item.name: {**_said_of(f"{path}.{item.name}"), **_key(item.type, item.default, path, item.name)}
            for item in fields(kind)
        }
        return {
            "type": "object",
            "description": GROUPS[path],
            "additionalProperties": False,
            "properties": properties,
        }
    plain = without_none(kind)
    nullable = plain is not kind and kind is not Any
    origin = typing.get_origin(plain)
    if origin is dict:
        made: dict[str, Any] = {"type": "object", "additionalProperties": _open(typing.get_args(plain)[1])}
    elif origin is list:
        made = {"type": "array", "items": _open(typing.get_args(plain)[0])}
    else:
        made = dict(_KINDS[plain.__name__ if isinstance(plain, type) else "Any"])
    return {"anyOf": [made, {"type": "null"}]} if nullable and made else made


def _key(kind: Any, default: Any, path: str, name: str) -> dict[str, Any]:
    made = _open(kind, f"{path}.{name}")
    key = keys().get(f"{path}.{name}")
    choices = key.choices if key else ()
    if choices and kind in (str, str | None):
        made = {"anyOf": [{"enum": [*choices, None] if kind is not str else [*choices]}, _INTERPOLATION]}
    if default is not NO_DEFAULT:
        made["default"] = default
    return made


def _open(kind: Any, path: str = "") -> dict[str, Any]:
    made = _typed(kind, path)
    return dict(made) if not made or "properties" in made else {"anyOf": [made, _INTERPOLATION]}


def text(made: Mapping[str, Any]) -> str:
    return json.dumps(made, indent=1, ensure_ascii=True) + "\n"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--config-dir", action="append", default=[])
    parser.add_argument("--out", type=Path, default=SCHEMA)
    given = parser.parse_args(words)
    return write_or_check(given.out, text(schema(given.config_dir)), ["--check"] if given.check else [])


if __name__ == "__main__":
    raise SystemExit(main())
