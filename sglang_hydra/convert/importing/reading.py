"""Reads the flags of all servers of a source: with the release that it names, else with one that fits all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sglang_hydra.arguments.reading import Typed as TypedOption
from sglang_hydra.arguments.release_guess import Guess
from sglang_hydra.arguments.tables.table import known_versions, nearest_known
from sglang_hydra.compose.composer import Composer
from sglang_hydra.convert.frameworks.adapters import trainer_in
from sglang_hydra.convert.importing.flags import PLACEHOLDERS, Arguments, read_arguments
from sglang_hydra.convert.importing.launches import Launch
from sglang_hydra.convert.importing.reduction import preset_for
from sglang_hydra.convert.importing.sources import Source
from sglang_hydra.convert.importing.typed import Typed
from sglang_hydra.planning.choosing.catalog import models
from sglang_hydra.releases.records import default_release
from sglang_hydra.text.findings import Finding

_BUILD = r"(?:\.dev\d+)?(?:\+[A-Za-z0-9]+(?:\.[A-Za-z0-9]+)*)?"
"""A version's suffix in a private build."""
_VERSION = re.compile(
    rf"sglang(?:\[[\w,-]{{0,80}}\])?(?:[:@](?:[\w-]+-)?v?|==|\+v|-v)(\d+\.\d+\.\d+(?:[.-]?(?:post|rc)\d+)?{_BUILD})"
)
_REMARK = re.compile(r"(?:^|(?<=[ \t]))#.*$", re.MULTILINE)
_PIN = re.compile(rf"\bsglang(?:\[[\w,-]{{0,80}}\])?==(\d+\.\d+\.\d+(?:\.?(?:post|rc)\d+)?{_BUILD})")
_NODE_RANK = "node_rank"
_AS_WORDS = 'write the whole command, each word an item: ["python3", "-m", "sglang.launch_server", "--model-path", ...]'
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def read_launches(
    launches: Sequence[Launch], typed: Typed, source: Source, composer: Composer
) -> Iterator[tuple[Launch, Arguments]]:
    """Reads the flags of a source's servers with its release, each server once."""
    read = [_read(launch, typed, source, composer) for launch in launches]
    return _of_one_server(_of_one_release(read, source, composer))


def _read(launch: Launch, typed: Typed, source: Source, composer: Composer) -> tuple[Launch, Arguments]:
    named = typed.nodes.get("engine.version") or launch.version or version_in(launch.mentions)
    trainer = None if launch.pinned else trainer_in(source.text)
    pinned, framework = (trainer.release, trainer.title) if trainer else (launch.pinned, launch.kind)
    installed = set(_PIN.findall(_REMARK.sub("", source.text)))  # pip install sglang==0.5.10
    version = named or (installed.pop() if len(installed) == 1 else pinned)

    def classes(options: Sequence[TypedOption]) -> Sequence[str]:
        """Returns the architectures of the model that is typed after the source, or that a flag names."""
        flags = ("served_model_name", "model_path")  # the path counts first
        paths = [item.values[-1] for item in options if item.values and item.name in flags]
        named = (preset for preset in models(composer) if preset.name == typed.choices.get("model"))
        presets = (preset_for(path, composer) for path in (*paths, launch.model or ""))
        preset = next(named, None) or next(filter(None, presets), None)
        return [str(item) for item in ((preset and preset.facts.config) or {}).get("architectures") or ()]

    known = str(version) if version and nearest_known(str(version)) else None
    arguments = read_arguments(launch, known, source.folder, classes)
    if version and not nearest_known(str(version)):
        message = f"the source is for SGLang {version}, which is not in the table of releases"
        message += f": planned for {default_release()}"
        arguments.findings.append(Finding("warning", "IMP004", message, ("engine.version",)))
    if version == pinned and not named and known:
        message = f"SGLang {version} is what {framework} pins"
        hint = "put engine.version=... behind the source"
        arguments.findings.append(Finding("info", "IMP017", message, ("engine.version",), hint))
    if launch.nodes is not None and launch.nodes > 1 and "nnodes" not in arguments.values:
        arguments.values["nnodes"] = launch.nodes
        if arguments.left_open.pop("nnodes", None):
            arguments.findings = [item for item in arguments.findings if item.fields != ("nnodes",)]
    _take_hidden_model(launch, arguments)
    is_trainer = launch.kind == "command" and not launch.mentions  # its own script may name the model
    if "model_path" not in arguments.values and (is_trainer or not PLACEHOLDERS.isdisjoint(launch.words)):
        arguments.left_open.setdefault("model_path", "MODEL")
    for remark in launch.remarks:
        arguments.findings.append(Finding("warning", "IMP011", remark))
    if launch.fault is not None:
        hint = "count the ranks from 0" if "--node-rank" in launch.fault else _AS_WORDS
        arguments.findings.append(Finding("error", "IMP020", launch.fault, hint=hint))
    return launch, arguments


def _take_hidden_model(launch: Launch, arguments: Arguments) -> None:
    """Takes the hub name from elsewhere in the source if the path is a variable or a recipe's short name."""
    path = arguments.values.get("model_path")
    is_short = launch.kind == "srtctl" and isinstance(path, str) and "/" not in path
    if not is_short and "model_path" not in arguments.left_open:
        return
    served = arguments.values.get("served_model_name")
    name = next((text for text in (launch.model, served) if isinstance(text, str) and _HUB_NAME.fullmatch(text)), None)
    if name is None:
        return
    arguments.values["model_path"] = name
    arguments.left_open.pop("model_path", None)
    arguments.findings = [item for item in arguments.findings if item.fields != ("model_path",)]
    where = "served_model_name" if name == served and launch.model is None else "the source"
    message = f"model_path={name} is taken from {where}: the path is {path or 'a variable'}"
    arguments.findings.append(Finding("info", "IMP007", message, ("model_path",)))


def _of_one_release(
    read: Sequence[tuple[Launch, Arguments]], source: Source, composer: Composer
) -> Sequence[tuple[Launch, Arguments]]:
    """Gives all servers of one source the same release: of several guesses, the newest that fits all."""
    guesses = [arguments.guess for _, arguments in read if arguments.guess is not None]
    known = known_versions()
    first = max((known.index(guess.first) for guess in guesses), default=0)
    last = min((known.index(guess.last) for guess in guesses), default=0)
    evidence = tuple(dict.fromkeys(word for guess in guesses for word in guess.evidence))
    joined = Guess(known[min(first, last)], known[max(first, last)], evidence)
    if len(guesses) < 2 or len(set(guesses)) == 1 or all(item.version is None for _, item in read):
        return read
    again = Typed(nodes={"engine.version": joined.last})
    made = []
    for launch, arguments in read:
        if arguments.guess is not None:
            launch, arguments = _read(launch, again, source, composer)
            arguments.guess = joined
        made.append((launch, arguments))
    return made


def _of_one_server(read: Sequence[tuple[Launch, Arguments]]) -> Iterator[tuple[Launch, Arguments]]:
    """Merges the commands of several nodes into one server: they differ only in their rank."""
    seen: list[tuple[object, ...]] = []
    for launch, arguments in sorted(read, key=lambda item: int(item[1].values.get(_NODE_RANK) or 0)):
        same = {name: value for name, value in arguments.values.items() if name != _NODE_RANK}
        key = (same, launch.name)
        nodes = arguments.values.get("nnodes", 1)
        if isinstance(nodes, int) and nodes > 1:
            if key in seen:
                continue
            if 0 <= int(arguments.values.get(_NODE_RANK, nodes)) < nodes:
                arguments.left_open[_NODE_RANK] = str(arguments.values.pop(_NODE_RANK))
        seen.append(key)
        yield launch, arguments


def version_in(texts: Sequence[str]) -> str | None:
    """Returns the release of an image or a package in ``texts``, or None."""
    for text in texts:
        if found := _VERSION.search(text):
            return found[1].replace("-", ".")
    return None
