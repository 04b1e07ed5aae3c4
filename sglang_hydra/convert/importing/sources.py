"""Recognizes the kind of a source's text, and reads the servers in it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from types import MappingProxyType

import yaml

from sglang_hydra.compose.composer import Composer
from sglang_hydra.convert.importing import mappings
from sglang_hydra.convert.importing.embedded_commands import fenced, is_dockerfile, launches_of_dockerfile, on_one_line
from sglang_hydra.convert.importing.launches import (
    Launch,
    elsewhere,
    filled,
    has_launch_command,
    split_launch,
    with_placeholders,
    without_marks,
    without_opened,
)
from sglang_hydra.convert.importing.manifests import launches_of_compose, launches_of_kubernetes
from sglang_hydra.convert.importing.script import Script
from sglang_hydra.planning.recorded.input_files import StartsNothing
from sglang_hydra.run.diagnose.server_args import CUT, parse_server_args
from sglang_hydra.text.budget import OverBudget, check_items, check_size, cpu_limit, read_documents
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import open_typed
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import Json, JsonObject, json_beside
from sglang_hydra.text.words import program, short


def has_server_arguments(text: str) -> bool:
    """Returns whether a text has a line in which a server logs its arguments."""
    return "server_args=ServerArgs(" in text or "server_args={" in text


def launches_of_log(text: str, place: str, composer: Composer) -> list[Launch]:
    """Returns every server of the log, one for equal arguments, with the release and the GPU that the log shows."""
    from sglang_hydra.run.diagnose.diagnosis import diagnose
    from sglang_hydra.run.diagnose.lines import read_lines
    from sglang_hydra.run.diagnose.replan import gpu_classes_of

    lines = list(read_lines(BytesIO(text.encode("utf-8", "replace"))))
    found: dict[str, tuple[int, dict[str, object]]] = {}
    for number, each in enumerate(lines, 1):
        if "server_args=" in each and (logged := parse_server_args(each)) is not None:
            found.setdefault(repr(logged), (number, logged))
    if not found:
        return []
    diagnosis = diagnose(lines)
    remarks: list[str] = []
    classes = [name for name in gpu_classes_of(diagnosis, composer, remarks) if name is not None]
    return [
        Launch(
            "log",
            f"{place}:{line}" if place else f"line {line}",
            name=str(role) if (role := values.get("disaggregation_mode")) in ("prefill", "decode") else "",
            values={name: value for name, value in values.items() if name != CUT},
            resolved=True,
            version=diagnosis.version,
            gpu_classes=tuple(classes),
            remarks=(*remarks, *(["the line was cut: the rest is not known"] if CUT in values else [])),
        )
        for line, values in found.values()
    ]


LOOKED_FOR = (
    "a command (python -m sglang.launch_server, sglang serve) in a line, a shell script, a Dockerfile or Markdown, "
    "docker run, a container of a Kubernetes or Compose file, backend.sglang_config of an srtctl recipe, a log's "
    "server_args=ServerArgs(...), arguments as for SGLang's --config"
)
_STDIN = "-"
_LONGEST = 8 << 20
_LONGEST_FLAGS = 1 << 18
_YAML = (".yaml", ".yml", ".json")
_UNIT = re.compile(r"^(?:ExecStart=|\[program:)", re.MULTILINE)
_MODEL_FLAGS = ("--model-path", "--model")


@dataclass(frozen=True)
class Source:
    """A text to import: its name for people, the base folder of its paths, and whether it was typed. ``variables`` are
    those that it leaves to its caller. ``elsewhere``: its paths belong to another machine."""

    name: str
    text: str
    folder: Path | None = None
    typed: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    elsewhere: bool = False


def read_source(word: str) -> Source:
    """Reads standard input, a file, or the word itself as text. Raises ConfigError for an unreadable file."""
    if word == _STDIN:
        return Source("stdin", _decoded(sys.stdin.buffer.read(_LONGEST + 1), "stdin"))
    if _is_path(word):
        path = Path(word).expanduser()
        if path.is_dir():
            raise _unreadable(word, "it is a folder", f"name a file in it: {program()} import FILE")
        try:
            with open_typed(path) as file:
                return Source(word, _decoded(file.read(_LONGEST + 1), word), path.parent)
        except (OSError, ValueError) as failure:
            why = failure.strerror if isinstance(failure, OSError) and failure.strerror else str(failure)
            raise _unreadable(word, why, f"{program()} import FILE, import - or import 'COMMAND'") from failure
    return Source("", word.encode("utf-8", "replace").decode("utf-8"), typed=True)


def launches_of(source: Source, composer: Composer) -> list[Launch]:
    """Returns every server that the source starts. Raises ConfigError, listing the recognized kinds, for none, and for
    a source over its reading budget."""
    _refuse_others(source)
    try:
        with within_budget(source):
            found = _found(source, composer)
    except RecursionError:
        found = []
    if source.name.endswith((".md", ".mdx")):  # prose mentions a command without flags
        found = [one for one in found if one.values is not None or any(word[:2] == "--" for word in one.words)]
    if not found:
        raise StartsNothing(_nothing(source))
    return found


@contextlib.contextmanager
def within_budget(source: Source) -> Iterator[None]:
    """Raises ConfigError (IMP002) if the source is too large, or the block takes too long to read it."""
    reader = "log" if has_server_arguments(source.text) else "script"
    try:
        check_size(source.text, reader)
        if reader == "script":
            check_items(source.text.count("\n"), reader, "lines")
        with cpu_limit(reader, len(source.text)), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's warnings on parsed code are not for the user
            yield
    except OverBudget as failure:
        hint = "the part that starts a server, in a file of its own"
        raise _unreadable(source.name or "the text", str(failure), hint) from failure


def _found(source: Source, composer: Composer) -> list[Launch]:
    text, had_conditions = source.text, False
    if not has_server_arguments(text):
        text, had_conditions = with_placeholders(text)
    found = _launches(text, source.name, composer, source.name.endswith(_YAML), source.variables)
    remarks = ("the template's conditions are taken to hold: render it to be sure",) if had_conditions else ()
    found = [
        replace(
            filled(launch, source.variables),
            name=without_opened(launch.name).strip("-"),
            place=without_marks(launch.place),
            remarks=(*launch.remarks, *remarks),
        )
        for launch in found
    ]
    check_items(len(found), "manifest", "servers")
    return list(map(elsewhere, found)) if source.elsewhere else found


def _launches(
    text: str, place: str, composer: Composer, is_yaml: bool, given: Mapping[str, str] = MappingProxyType({})
) -> list[Launch]:
    if has_server_arguments(text):
        return launches_of_log(text, place, composer)
    if blocks := [block for block in fenced(text) if has_launch_command(block.lstrip())]:
        return [launch for block in blocks for launch in _launches(block, place, composer, False, given)]
    if is_dockerfile(text):
        return launches_of_dockerfile(text, place)
    found: list[Launch] = []
    if is_yaml or not has_launch_command(text.split("\n", 1)[0]):
        documents = _documents(text, is_manifest=is_yaml)
        files = {name: content for document in documents for name, content in _config_maps(document)}
        given = {**_variables_of(documents), **given}
        found = [launch for document in documents for launch in _of_document(document, place)]
        if not found and not any(isinstance(document, list) for document in documents):  # of a patch
            texts = list(_texts_in(documents))  # start_command of Truss, a task's run
            mentions = tuple(text for text in texts if "sglang" in text and len(text.split()) == 1)
            commands = [_launches(one, place, composer, False, given) for one in texts if has_launch_command(one)]
            found = [replace(one, mentions=(*one.mentions, *mentions)) for each in commands for one in each]
        for name, count in _accelerators(documents):
            found = [replace(launch, mentions=(*launch.mentions, name), gpu_count=count) for launch in found]
        found = [replace(launch, files={**files, **launch.files}) for launch in found] if files else found
    if found or not (has_launch_command(text) or ("--" in text and len(text) <= _LONGEST_FLAGS)):
        return found
    script = Script(place, lambda body, where: _launches(body, where, composer, True), home=os.path.expanduser("~"))
    return script.launches(on_one_line(text), given)


def _texts_in(node: object) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, list) and any(str(item).partition("=")[0] in _MODEL_FLAGS for item in node):
        yield shlex.join(["sglang", "serve", *map(str, node)])  # the flags of a chart's values
    elif isinstance(node, (dict, list)):
        if isinstance(node, dict) and "vllm/vllm-openai" in str(node.get("image")):
            return
        for item in node.values() if isinstance(node, dict) else node:
            yield from _texts_in(item)


def _config_maps(document: object) -> Iterator[tuple[str, str]]:
    """Yields the files in a document's ConfigMaps, by name."""
    below = document.get("items") if isinstance(document, dict) else ()
    items = [document, *(below if isinstance(below, list) else ())]
    for item in items:
        data = item.get("data") if isinstance(item, dict) and item.get("kind") == "ConfigMap" else None
        for name, content in data.items() if isinstance(data, dict) else ():
            yield str(name), str(content)


def _variables_of(documents: Sequence[object]) -> dict[str, str]:
    """Returns the variables that a task sets for its script (SkyPilot's ``envs``, ``env`` of a workflow or dstack)."""
    nodes = [document.get(key) for document in documents if isinstance(document, dict) for key in ("envs", "env")]
    pairs = [pair for node in nodes if isinstance(node, dict) for pair in node.items()]
    words = [item for node in nodes if isinstance(node, list) for item in node if isinstance(item, str)]
    pairs += [word.partition("=")[::2] for word in words if "=" in word]
    pairs += [("SKYPILOT_NUM_GPUS_PER_NODE", count) for _, count in _accelerators(documents)]
    return {str(name): str(value) for name, value in pairs if isinstance(value, (str, int, float))}


def _accelerators(documents: Sequence[object]) -> list[tuple[str, int]]:
    """Returns the GPUs per node of a SkyPilot task (``accelerators: H100:8``) with their number; none for a task with
    alternatives."""
    resources = [document.get("resources") for document in documents if isinstance(document, dict)]
    wanted = [node.get("accelerators") for node in resources if isinstance(node, dict)]
    texts = [f"{name}:{count}" for each in wanted if isinstance(each, dict) for name, count in each.items()]
    texts += [each for each in wanted if isinstance(each, str)]
    found = [re.fullmatch(r"([\w-]+)(?::(\d{1,4}))?", text) for text in texts]
    return [(each[1], int(each[2] or 1)) for each in found if each] if len(texts) == 1 else []


def _documents(text: str, *, is_manifest: bool) -> list[object]:
    """Returns the documents of YAML or JSON; none for other text. Raises OverBudget for a manifest over its budget."""
    try:
        return [document for document in read_documents(text, "manifest") if isinstance(document, (dict, list))]
    except OverBudget:
        if is_manifest or "apiVersion:" in text:
            raise
        return []
    except yaml.YAMLError:
        return []


def _of_document(document: Json, place: str) -> list[Launch]:
    if isinstance(document, list):
        return _of_list(document, place)
    if isinstance(document.get("items"), list) and "kind" in document:
        return [launch for item in document["items"] if isinstance(item, dict) for launch in _of_document(item, place)]
    readers: Iterable[tuple[bool, Callable[[JsonObject, str], list[Launch]]]] = (
        ("apiVersion" in document and "kind" in document, launches_of_kubernetes),
        ("services" in document, launches_of_compose),
        (mappings.is_recipe(document), mappings.launches_of_recipe),
        (True, mappings.launches_of_frameworks),
        (True, mappings.launches_of_config),
        (True, mappings.launches_below_keys),
        (True, launches_of_kubernetes),  # a pod's template, a chart's values: containers at any place
    )
    return next((found for fits, read in readers if fits and (found := read(document, place))), [])


def _of_list(document: Sequence[object], place: str) -> list[Launch]:
    """Reads a list of words, or a list of such lists and mappings, each one server."""
    if document and all(isinstance(item, str) for item in document):
        words = [str(item) for item in document]  # SGLang's flags alone, or the whole command
        split = split_launch(words)
        flags = split[1] if split else words if words[0].startswith("--") else None
        return [] if flags is None else [Launch("flags", place, words=tuple(flags))]
    return [
        launch
        for item in document[:64]
        if isinstance(item, (dict, list))
        for launch in (_of_list(item, place) if isinstance(item, list) else _of_document(item, place))
    ]


def _is_path(word: str) -> bool:
    """Returns whether the word names a file: it exists, or the word looks like a path."""
    if "\0" in word or len(word) > 4096 or "\n" in word:
        return False
    try:
        if os.path.exists(os.path.expanduser(word)):
            return True
    except ValueError:
        return False
    return not any(char.isspace() for char in word) and not word.startswith("--")


def _decoded(content: bytes, name: str) -> str:
    if len(content) > _LONGEST:
        raise _unreadable(name, f"it is longer than {_LONGEST >> 20} MiB", "cut out the part with the command")
    return content.decode("utf-8", "replace").removeprefix("\ufeff")


def _unreadable(name: str, why: str, hint: str) -> ConfigError:
    return ConfigError(Finding("error", "IMP002", f"{short(name, 300)} cannot be read: {why}", hint=hint))


def _refuse_others(source: Source) -> None:
    """Raises StartsNothing for a unit of systemd or supervisor, a makefile or a Python program, which have their own
    rules for commands."""
    is_other = source.name.endswith((".mk", ".py")) or source.text.startswith(("import ", "from "))
    is_other = is_other or source.name.rpartition("/")[2].lower() in ("makefile", "gnumakefile")
    is_other = is_other or _UNIT.search(source.text) is not None
    if is_other and has_launch_command(source.text) and not has_server_arguments(source.text):
        name = source.name or "the text"
        message = f"{name} is a unit of systemd or supervisor, a makefile or a program: these are not read"
        hint = f"{program()} import 'COMMAND', with the command that it has"
        raise StartsNothing(Finding("error", "IMP001", message, hint=hint))


def _nothing(source: Source) -> Finding:
    where = source.name or "the text"
    if not source.text.strip():
        return Finding("error", "IMP001", f"{where} is empty", hint=LOOKED_FOR)
    others = json_beside(__file__)["others"]
    hint = next((row["hint"] for row in others if all(word in source.text for word in row["has"])), None)
    said = hint.format(program=program(), where=where) if hint else None
    return Finding("error", "IMP001", f"{where} starts no SGLang server; looked for {LOOKED_FOR}", hint=said)
