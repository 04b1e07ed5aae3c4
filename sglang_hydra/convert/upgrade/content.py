"""The new file: an experiment with its changes made in place, a plan, a script; never over one that is there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.secrets import API_KEY_REFERENCE, SECRET_FIELDS, is_secret_name
from sglang_hydra.compose.composer import Composer
from sglang_hydra.convert.export.job import job_of
from sglang_hydra.convert.export.registry import render
from sglang_hydra.convert.importing.experiment import experiment_yaml, schema_path, yaml_value
from sglang_hydra.convert.importing.typed import value_at
from sglang_hydra.convert.upgrade.inputs import EXPERIMENT, IMPORTED
from sglang_hydra.convert.upgrade.upgraded import Upgrade, composable
from sglang_hydra.planning.input_files import read_yaml
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding

YAML, JSON, SHELL = "experiment", "plan", "shell"
_SUFFIXES = {".json": JSON, ".sh": SHELL, ".bash": SHELL}
_PATHS_OF_NODES = ("engine.version", "engine.env.", "extra.")


def kind_of(made: Upgrade, output: Path | None) -> str | None:
    """What is written for ``output``, by its name, and what is shown where there is none: the experiment of a file
    that was read; None for overrides, a recipe and a plan, whose command says it all."""
    if output is not None:
        return _SUFFIXES.get(output.suffix, YAML)
    return YAML if made.subject.kind in (EXPERIMENT, IMPORTED) else None


def content_of(made: Upgrade, kind: str, composer: Composer, output: Path | None) -> str:
    """The new file. Raises ConfigError where a plan cannot be written as a script."""
    if kind == JSON:
        return json.dumps(made.plan.to_json(), indent=2, allow_nan=False) + "\n"
    if kind == SHELL:
        if not made.plan.command:
            message = "no script can be written of it: it has no command"
            raise ConfigError(Finding("error", "UPG005", message, hint="-o FILE.yaml writes an experiment"))
        return render("shell", job_of(made.plan, made.words)).text
    if made.subject.content is not None and made.subject.file is not None:
        edited = _edited(made, made.subject.content)
        if edited is not None and _is_the_same(edited, made, made.subject.file, composer):
            return edited
    return _written_anew(made, composer, output)


def _written_anew(made: Upgrade, composer: Composer, output: Path | None) -> str:
    """Writes an experiment of all requests."""
    composition = composer.compose(composable(made.requests))
    groups = set(composer.groups())
    choices: dict[str, str] = {}
    values: dict[str, Any] = {}
    nodes: dict[str, Any] = {}
    for request in made.requests:
        key = request.key or request.text.lstrip("+~").partition("=")[0]
        written = request.value if request.key else request.text.partition("=")[2]
        refers = isinstance(written, str) and written.startswith("${oc.env:")
        if key in FIELDS:
            hidden = API_KEY_REFERENCE if key in SECRET_FIELDS else composition.intent.get(key)
            values[key] = written if refers else hidden
        elif key in groups and composition.choices.get(key):
            choices[key] = str(composition.choices[key])
        elif key not in groups:
            nodes[key] = (
                written if refers else _without_secrets(key.rpartition(".")[2], value_at(composition.nodes, key))
            )
    if made.subject.recorded is not None:
        choices |= {group: str(made.plan.choices[group]) for group in ("gpu", "model") if made.plan.choices.get(group)}
    lines = [
        f"Upgraded from SGLang {made.start.version} to {made.version} ({made.start.why})",
        *(f"Left out: {item.message}" for item in made.steps.broken),
    ]
    return experiment_yaml(choices, values, nodes, remarks={}, heading=lines, schema=schema_path(output))


def _without_secrets(name: str, value: Any) -> Any:
    """Replaces every secret in a setting by a reference to a variable of its name."""
    if isinstance(value, Mapping):
        return {str(key): _without_secrets(str(key), item) for key, item in value.items()}
    return f"${{oc.env:{name}}}" if value is not None and is_secret_name(name) else value


def _edited(made: Upgrade, content: str) -> str | None:
    """Edits the text of an experiment line by line and comments out what is gone; None where its form cannot be
    edited so."""
    try:
        root = yaml.compose(content, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return None
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        return None
    places = dict(_places(root, ()))
    if any(is_secret_name(key.rpartition(".")[2]) for key in places):
        return None  # it may hold the secret itself
    lines = content.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    gone = {item.key: item for item in made.steps.broken}
    renamed = {f"engine.env.{item.name}": item.instead for item in made.variables if item.state == "renamed"}
    for key, (first, last) in places.items():
        if key in gone:
            for at in range(first, last + 1):
                lines[at] = f"# {lines[at]}"
            lines[first] = f"# SGLang {made.version}: {gone[key].hint or 'gone'}\n{lines[first]}"
        elif key in renamed:
            lines[first] = lines[first].replace(key.rpartition(".")[2], str(renamed[key]), 1)
    wanted = {
        request.key: request.value
        for request in made.requests
        if request.key is not None
        and request.place == "upgrade"
        and request.key.startswith(_PATHS_OF_NODES)
        and request.key.removeprefix("engine.env.") not in renamed.values()
    }
    for key, value in wanted.items():
        if not _put(lines, places, key, value):
            return None
    for request in made.requests:
        if request.place == "upgrade" and request.key in FIELDS:
            lines.append(f"{request.key}: {yaml_value(request.value)}\n")
    return "".join(lines)


def _places(node: Any, above: tuple[str, ...]) -> Any:
    """The first and last line of every key of block mappings, by its dotted name."""
    for key, value in node.value:
        name = (*above, str(key.value))
        last = value.end_mark.line
        if value.end_mark.column == 0 and last > key.start_mark.line:
            last -= 1  # a block ends where the next token begins
        yield ".".join(name), (key.start_mark.line, last)
        if isinstance(value, yaml.MappingNode) and not value.flow_style and len(name) < 3:
            yield from _places(value, name)


def _put(lines: list[str], places: Mapping[str, tuple[int, int]], key: str, value: Any) -> bool:
    """Sets one key of a node: in its line, below its node, or at the end. False where that is not possible here."""
    name = key.rpartition(".")[2]
    if key in places:
        first, last = places[key]
        matched = re.match(r"(\s*[\w.-]+\s*:\s*)([^#\n]*?)(\s*(#.*)?\n)", lines[first])
        if first != last or matched is None:
            return False
        lines[first] = f"{matched[1]}{yaml_value(value)}{matched[3]}"
        return True
    node = key.rpartition(".")[0]
    if node not in places:
        if node.partition(".")[0] in places:
            return False
        head, *below = node.split(".")
        lines.append(f"{head}:\n")
        for depth, part in enumerate(below, 1):
            lines.append(f"{'  ' * depth}{part}:\n")
        lines.append(f"{'  ' * (len(below) + 1)}{name}: {yaml_value(value)}\n")
        return True
    inside = [at for other, (at, _) in places.items() if other.rpartition(".")[0] == node]
    if not inside:
        return False
    indent = re.match(r"\s*", lines[inside[0]])
    lines[inside[0]] = f"{indent[0] if indent else '  '}{name}: {yaml_value(value)}\n{lines[inside[0]]}"
    return True


def _is_the_same(content: str, made: Upgrade, file: Path, composer: Composer) -> bool:
    """Whether the edited text and the new requests make the same plan. Overrides behind the file are in neither."""
    typed = [request for request in made.requests if request.place.startswith("argument ")]
    if typed:
        return False
    try:
        again = composer.compose(composable(read_yaml(file, content)))
    except ConfigError:
        return False
    wanted = composer.compose(composable(made.requests))
    return again.intent == wanted.intent and again.nodes == wanted.nodes and again.choices == wanted.choices
