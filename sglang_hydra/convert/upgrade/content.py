"""Makes the new file: an experiment edited in place, a plan, or a script; never overwrites a file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.secrets import API_KEY_REFERENCE, SECRET_FIELDS, is_secret, is_secret_name
from sglang_hydra.compose.composer import Composer
from sglang_hydra.convert.export.job import job_of
from sglang_hydra.convert.export.registry import render
from sglang_hydra.convert.importing.experiment import experiment_yaml, yaml_value
from sglang_hydra.convert.upgrade.inputs import EXPERIMENT, IMPORTED
from sglang_hydra.convert.upgrade.upgraded import Upgrade, composable
from sglang_hydra.planning.recorded.input_files import read_yaml
from sglang_hydra.text.budget import yaml_nodes
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import Json, value_at

YAML, JSON, SHELL = "experiment", "plan", "shell"
_SUFFIXES = {".json": JSON, ".sh": SHELL, ".bash": SHELL}
_RELEASE = "engine.version"


def kind_of(made: Upgrade, output: Path | None) -> str | None:
    """Returns the kind of the file ``output`` by its name. Without ``output`` returns the kind to show: the experiment
    of a source file; None for overrides, a recipe and a plan, whose command says it all."""
    if output is not None:
        return _SUFFIXES.get(output.suffix, YAML)
    return YAML if made.subject.kind in (EXPERIMENT, IMPORTED) else None


def content_of(made: Upgrade, kind: str, composer: Composer) -> str:
    """Returns the new file. Raises ConfigError for a plan that no script can start."""
    if kind == JSON:
        return json.dumps(made.plan.to_json(), indent=2, allow_nan=False) + "\n"
    if kind == SHELL:
        if not made.plan.command:
            message = "no script can be written: the plan has no command"
            raise ConfigError(Finding("error", "UPG005", message, hint="-o FILE.yaml writes an experiment"))
        return render("shell", job_of(made.plan, made.words)).text
    if made.subject.content is not None and made.subject.file is not None:
        edited = _edited(made, made.subject.content)
        if edited is not None and _is_the_same(edited, made, made.subject.file, composer):
            return edited
    return _written_anew(made, composer)


def _written_anew(made: Upgrade, composer: Composer) -> str:
    composition = composer.compose(composable(made.requests))
    groups = set(composer.groups())
    choices: dict[str, str] = {}
    values: dict[str, object] = {}
    nodes: dict[str, object] = {}
    for request in made.requests:
        key = request.name
        written = request.value if request.key else request.text.partition("=")[2]
        refers = isinstance(written, str) and written.startswith("${oc.env:")
        if key in EVERY:
            hidden = API_KEY_REFERENCE if key in SECRET_FIELDS else composition.intent.get(key)
            values[key] = written if refers else hidden
        elif key in groups and composition.choices.get(key):
            choices[key] = str(composition.choices[key])
        elif key not in groups:
            nodes[key] = (
                written if refers else _without_secrets(key.rpartition(".")[2], value_at(composition.nodes.plain, key))
            )
    if made.subject.recorded is not None:
        choices |= {group: str(made.plan.choices[group]) for group in ("gpu", "model") if made.plan.choices.get(group)}
    lines = [
        f"Upgraded from SGLang {made.start.version} to {made.version} ({made.start.why})",
        *(f"Left out: {item.message}" for item in made.steps.broken),
    ]
    return experiment_yaml(choices, values, nodes, remarks={}, heading=lines)


def _without_secrets(name: str, value: object) -> object:
    """Replaces every secret in a setting by a reference to a variable of its name."""
    if isinstance(value, Mapping):
        return {str(key): _without_secrets(str(key), item) for key, item in value.items()}
    return f"${{oc.env:{name}}}" if value is not None and is_secret(name, value) else value


def _edited(made: Upgrade, content: str) -> str | None:
    """Edits the text of an experiment line by line and comments out removed keys; None if its form does not allow
    that."""
    try:
        (root,) = yaml_nodes(content, "config", yaml.SafeLoader)
    except (yaml.YAMLError, ValueError):
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
        elif key.removeprefix("extra.") in made.steps.renamed:
            _rename(lines, first, last, key.rpartition(".")[2], made)
        elif key in renamed:
            lines[first] = lines[first].replace(key.rpartition(".")[2], str(renamed[key]), 1)
    now = {made.steps.renamed[key] for key in places if key in made.steps.renamed}
    if not _put_release(lines, places, made.version):
        return None
    for request in made.requests:
        if request.place == "upgrade" and request.key in EVERY and request.key not in now:
            lines.append(f"{request.key}: {yaml_value(request.value)}\n")
    return "".join(lines)


def _rename(lines: list[str], first: int, last: int, name: str, made: Upgrade) -> None:
    """Renames an argument in place, and puts its new value there if that fits one line."""
    now = made.steps.renamed[name]
    matched = re.match(r"(\s*)[\w.-]+(\s*:\s*)[^#\n]*?(\s*(#.*)?\n)", lines[first])
    if first == last and matched is not None:
        lines[first] = f"{matched[1]}{now}{matched[2]}{yaml_value(made.steps.arguments[now])}{matched[3]}"
    else:
        lines[first] = lines[first].replace(name, now, 1)


def _places(node: Json, above: tuple[str, ...]) -> Json:
    """Yields the first and last line of every key of block mappings, by its dotted name."""
    for key, value in node.value:
        name = (*above, str(key.value))
        last = value.end_mark.line
        if value.end_mark.column == 0 and last > key.start_mark.line:
            last -= 1  # a block ends where the next token begins
        yield ".".join(name), (key.start_mark.line, last)
        if isinstance(value, yaml.MappingNode) and not value.flow_style and len(name) < 3:
            yield from _places(value, name)


def _put_release(lines: list[str], places: Mapping[str, tuple[int, int]], version: str) -> bool:
    """Sets ``engine.version``: in its line, below ``engine``, or at the end. False if ``engine`` is on one line."""
    inside = [at for key, (at, _) in places.items() if key.startswith("engine.")]
    if _RELEASE in places:
        at = places[_RELEASE][0]
        lines[at] = re.sub(
            r"(:\s*)[^#\n]*?(?=\s*(?:#.*)?$)", lambda found: found[1] + yaml_value(version), lines[at], count=1
        )
    elif inside:
        indent = lines[inside[0]][: -len(lines[inside[0]].lstrip())]
        lines[inside[0]] = f"{indent}version: {yaml_value(version)}\n{lines[inside[0]]}"
    elif "engine" in places:
        return False
    else:
        lines.append(f"engine:\n  version: {yaml_value(version)}\n")
    return True


def _is_the_same(content: str, made: Upgrade, file: Path, composer: Composer) -> bool:
    """Returns whether the edited text and the new requests make the same plan; False with overrides after the file,
    which the text lacks."""
    typed = [request for request in made.requests if request.place.startswith("argument ")]
    if typed:
        return False
    try:
        again = composer.compose(composable(read_yaml(file, content)))
    except ConfigError:
        return False
    wanted = composer.compose(composable(made.requests))
    return again.intent == wanted.intent and again.nodes == wanted.nodes and again.choices == wanted.choices
