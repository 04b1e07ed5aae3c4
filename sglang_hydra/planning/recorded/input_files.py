"""Reads files that hold a configuration as overrides: YAML that people write, and plans that we write."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.compose.grammar import typed_word
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import NODES
from sglang_hydra.facts.trust import refused_search_path
from sglang_hydra.planning.plan import Recorded
from sglang_hydra.planning.recorded.saved import NotAPlan, OtherSchema, parse_plan
from sglang_hydra.text.budget import FILE_S, READERS, OverBudget, allow_more, read_json
from sglang_hydra.text.budget import read_yaml as load_yaml
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import CONFIG_BYTES, RECORD_BYTES, link_problem, read_text, reason_of
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import Json, JsonDict
from sglang_hydra.text.locations import SUFFIXES, file_of, shown_path
from sglang_hydra.text.origins import key_lines
from sglang_hydra.text.words import short

_SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm")
_OF_YAML = ("defaults", "hydra", "recipe", "experiment")
_OURS = {*EVERY, *NODES, *_OF_YAML}
_GROUPS = {*NODES} - {"model"}
"""Keys that no file of flags has: --model is one of SGLang's."""
_NAMES_A_MODEL = re.compile(r"(?m)^ *(?:- )?(?:/?model|model_path|model-path|defaults|--model)")
_VALUES_OF_A_CHART = re.compile(r".*values.*\.ya?ml")
_OF_A_FRAMEWORK = re.compile(
    r"^ *(?:_target_: *[\"']?sglang\.|actor_rollout_ref:|(?:backend|strategy_name|allocation_mode): *[\"']?sglang\b)",
    re.MULTILINE,
)
"""Marks of a framework's config that starts SGLang itself, or of a node for ``hydra.utils.instantiate``."""
_STARTS = re.compile(r"sglang|launch_server|vllm|--model|rollout", re.IGNORECASE)
"""Words without which no foreign file starts a server."""
_MANIFEST = re.compile(r"^(?:---\s*$|apiVersion:|services:)", re.MULTILINE)


class Document(NamedTuple):
    """The requests of one file. A plan adds its facts, so that nothing is probed anew; a foreign file adds the findings
    on how it was read, and the classes of which its GPU may be one (empty: any), None where it names its GPU."""

    requests: Sequence[Request]
    recorded: Recorded | None = None
    findings: tuple[Finding, ...] = ()
    gpus: tuple[str, ...] | None = None


ReadOthers = Callable[[Path, str], Sequence[tuple[str, Document]]]
"""Reads a foreign file and its text: each server that it starts, by its name, preceded by all of them as one topology
(``WHOLE``) where the file says so. Raises ConfigError, and StartsNothing for a file without a server."""
WHOLE = ""


class StartsNothing(ConfigError):
    """A file that starts no server, or a JSON file with other content."""


def is_document(word: str) -> bool:
    """Returns True for a word that names a file or folder, not an override; FILE#NAME is one server."""
    named = file_of(word)
    return "=" not in word and "\0" not in word and (named.endswith(SUFFIXES) or os.path.exists(named))


def documents(
    requests: Sequence[Request], others: ReadOthers | None = None
) -> Iterator[tuple[str, Document | ConfigError]]:
    """Yields each file's name with its document, or the error of reading it; ``others`` reads foreign files.

    A folder means all files below it; files there that start no server are skipped."""
    for request in requests:
        is_folder = os.path.isdir(request.text)
        scripts = _SCRIPTS if others is not None else ()
        files = _files_below(request.text, scripts) if is_folder else [Path(request.text)]
        if is_folder and _is_environment(request.text):
            why = f"it is a Python environment; engine.python={request.text}/bin/python plans for the SGLang in it"
            yield request.text, _unreadable(request.text, why)
            continue
        if not files:
            yield request.text, _unreadable(request.text, "there is no .yaml or .json file in it")
        if is_folder and len(files) > (most := READERS["folder"].items):
            yield request.text, _unreadable(request.text, f"it has {len(files)} files; at most {most} are read")
            continue
        allow_more(FILE_S * len(files))
        for file in files:
            problem = link_problem(file, Path(request.text)) if is_folder else None
            if problem is not None:
                yield shown_path(str(file)), _unreadable(shown_path(str(file)), problem)
                continue
            try:
                yield from named_documents(str(file), others, in_folder=is_folder)
            except ConfigError as failure:
                if not (is_folder and isinstance(failure, StartsNothing)):
                    yield shown_path(str(file)), failure


def named_documents(word: str, others: ReadOthers | None, *, in_folder: bool = False) -> list[tuple[str, Document]]:
    """Returns the documents of FILE, or of FILE#NAME, each by its name: several where a foreign file starts several
    servers. Raises ConfigError like ``read_document``, and for an unknown NAME."""
    file = Path(file_of(word))
    name = shown_path(str(file))
    chosen = word[len(str(file)) + 1 :] if word != str(file) and "#" in word else ""
    content = content_of(file) if others is not None else ""
    is_foreign = file.suffix not in SUFFIXES or content.startswith("apiVersion:")
    if in_folder and others is not None and is_foreign and not _STARTS.search(content):  # cheaper than reading it
        raise StartsNothing.of("IMP001", f"{short(name)} starts no SGLang server")
    is_in_chart = (file.parent / "Chart.yaml").is_file() or (in_folder and not _NAMES_A_MODEL.search(content))
    if others is not None and _VALUES_OF_A_CHART.fullmatch(file.name) and is_in_chart:
        message = f"{short(name)} holds the values of a Helm chart, and the chart's templates start the servers"
        hint = f"helm template {shown_path(str(file.parent))} > rendered.yaml, and rendered.yaml as the word"
        raise StartsNothing.of("IMP001", message, hint=hint)
    if others is None or is_ours(file, content):
        return [(name, read_document(file))]
    try:
        found = list(others(file, content))
    except StartsNothing:
        if file.suffix not in SUFFIXES or _MANIFEST.search(content) or _is_of_another_tool(content):
            raise
        return [(name, read_document(file))]
    if not chosen and found[0][0] == WHOLE:
        return [(name, found[0][1])]
    found = [item for item in found if item[0] != WHOLE]
    if chosen and chosen not in dict(found):
        message = f"{short(name)} starts no server {short(chosen)!r}; it starts {', '.join(key for key, _ in found)}"
        raise ConfigError.of("CLI017", message, hint=f"{name}#{found[0][0]}" if len(found) > 1 else name)
    several = len(found) > 1
    return [(f"{name}#{key}" if several else name, item) for key, item in found if chosen in ("", key)]


def is_ours(file: Path, content: str) -> bool:
    """Returns whether a file is our experiment, group option or record, not a foreign file."""
    if file.suffix == ".json":
        return is_record(content) or _is_json_experiment(content)
    if file.suffix not in SUFFIXES or _OF_A_FRAMEWORK.search(content):
        return False
    loaded = _loaded(content)
    if isinstance(loaded, Exception):
        # Several documents or a template are a manifest; for other invalid YAML our reader reports the place.
        return not _MANIFEST.search(content)
    if isinstance(loaded, list):  # a mapping with a dash before each line
        return all(isinstance(item, Mapping) and len(item) == 1 and {*item} <= {*EVERY, *NODES} for item in loaded)
    if not isinstance(loaded, Mapping):
        return not isinstance(loaded, str)
    keys = {str(key) for key in _arguments_in(loaded)}
    ours = keys & _OURS
    if "defaults" in keys or keys == ours or {"gpu", "model"} <= keys:
        return True
    dashed = any("-" in key for key in keys) and not keys & _GROUPS
    if {"apiVersion", "kind"} <= keys or keys & {"services", "backend"} or dashed:
        return False
    return file.absolute().parent.name in NODES or len(keys) - len(ours) <= len(ours)


def _loaded(content: str) -> object:
    """Returns the value of YAML, or the error of reading it."""
    try:
        return load_yaml(content, "manifest")
    except (yaml.YAMLError, ValueError) as failure:
        return failure


def _arguments_in(loaded: Mapping[object, object]) -> Iterable[object]:
    key = _key_too_many(loaded)
    below = loaded if key is None else loaded[key]
    return below if isinstance(below, Mapping) else ()


def _key_too_many(loaded: Mapping[object, object]) -> str | None:
    """Returns the only key of a file under which all of our keys are (``server: {model_path: x, tp_size: 4}``), or
    None."""
    key, below = next(iter(loaded.items())) if len(loaded) == 1 else (None, None)
    keys = set(below) if isinstance(below, Mapping) and key not in _OURS else set()
    return str(key) if keys & {"model", "model_path"} and keys <= {*EVERY, *NODES} else None


def is_experiment(file: Path, content: str) -> bool:
    """Returns whether a file is ours and sets our groups or has a defaults list, unlike any file of flags."""
    if not is_ours(file, content) or is_record(content):
        return False
    loaded = _loaded(content)
    return isinstance(loaded, Mapping) and bool({*map(str, _arguments_in(loaded))} & {*_GROUPS, *_OF_YAML})


def _is_of_another_tool(content: str) -> bool:
    """Returns whether YAML has none of our keys and nested keys, which no experiment has, even a mistyped one."""
    loaded = _loaded(content)
    if not isinstance(loaded, Mapping) or {*map(str, loaded)} & _OURS:
        return False
    below = [item for value in loaded.values() for item in (value, *(value if isinstance(value, list) else ()))]
    return any(isinstance(item, Mapping) for item in below)


def is_record(content: str) -> bool:
    """Returns whether a JSON file was written by this program: a plan, a result."""
    return '"sglang_hydra.' in content


def _is_json_experiment(content: str) -> bool:
    """Returns whether JSON holds an experiment: arguments and groups, which SGLang's own ``--config`` lacks."""
    try:
        loaded = read_json(content, "config")
    except (ValueError, RecursionError):
        loaded = _loaded(content)  # YAML allows a comma at the end
    keys = set(map(str, loaded)) if isinstance(loaded, Mapping) else set()
    return bool(keys & set(NODES)) and len(keys - _OURS) < len(keys & _OURS)


def read_document(file: Path) -> Document:
    """Reads one file.

    YAML is a mapping of arguments and groups (``gpu: h100``, ``tp_size: 8``), or an experiment with a defaults list
    (``- override /gpu: h100``); in a folder named like a group it is an option there, unless it names a GPU or a model.
    JSON is a plan, or arguments and groups as in YAML. Raises ConfigError naming the file, and the line where there is
    one."""
    content = content_of(file)
    is_plan = file.suffix == ".json" and not _is_json_experiment(content)
    return _from_plan(file, content) if is_plan else Document(read_yaml(file, content))


def content_of(file: Path) -> str:
    try:
        newline = None if file.suffix in SUFFIXES else ""  # a shell reads \r as a letter
        return read_text(file, RECORD_BYTES if file.suffix == ".json" else CONFIG_BYTES, newline=newline)
    except (OSError, ValueError) as failure:
        raise _unreadable(shown_path(str(file)), reason_of(failure)) from failure


def _files_below(folder: str, scripts: tuple[str, ...] = ()) -> list[Path]:
    """Lists the files below a folder, without hidden files (.gitlab-ci.yml), hidden folders (.git, .github) and Python
    environments."""
    found: list[Path] = []
    for here, inner, names in os.walk(folder):
        inner[:] = [name for name in inner if not name.startswith(".")]
        if _is_environment(here):
            inner.clear()
            continue
        found += [Path(here, name) for name in names if name.endswith((*SUFFIXES, *scripts)) and name[0] != "."]
    return sorted(found)


def _is_environment(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "pyvenv.cfg"))


def read_yaml(file: Path, content: str) -> list[Request]:
    """Returns the requests in ``content``, read as the YAML of ``file``. Raises ConfigError like ``read_document``."""
    from sglang_hydra.compose.hydra_internals import yaml_loader

    name = shown_path(str(file))
    try:
        loaded = load_yaml(content, "config", yaml_loader())
    except OverBudget as failure:
        raise _unreadable(name, str(failure)) from failure
    except yaml.MarkedYAMLError as failure:
        mark = failure.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise _unreadable(f"{name}{place}", f"it is no YAML: {_problem(failure.problem)}") from failure
    except yaml.YAMLError as failure:
        raise _unreadable(name, f"it is no YAML: {failure}") from failure
    if not isinstance(loaded, Mapping):
        what = {type(None): "nothing", list: "a list", str: "text"}.get(type(loaded), f"a {type(loaded).__name__}")
        colon = isinstance(loaded, str) and re.search(r"\w:\S", loaded)
        why = f"it holds {what}, not a mapping of arguments" + (": a space belongs after each colon" if colon else "")
        is_python = isinstance(loaded, str) and re.match(r"\w[\w.]*\s*=", loaded)
        raise _unreadable(name, f"{why}: YAML has a colon and a space for =" if is_python else why)
    lines = key_lines(str(file))
    if too_many := _key_too_many(loaded):
        loaded = loaded[too_many]
        lines = {keys[1:]: line for keys, line in lines.items() if keys[0] == too_many}
    group = file.absolute().parent.name
    of_server = {"gpu", "model", "recipe", *(["model_path"] if group != "model" else [])}  # no option of a group
    group = group if group in NODES and not of_server & set(loaded) else ""
    requests = list(_from_defaults(name, loaded.get("defaults") or [], lines.get(("defaults",), 1), group))
    for key, value in loaded.items():
        if group and key != "defaults":
            place = f"{name}:{lines.get((str(key),), 1)}"
            requests.append(Request.typed(f"{group}.{key}", value, place, group, interpolate=True))
        elif key == "hydra":
            requests += _of_hydra(file, value, lines, ("hydra",))
        elif key != "defaults":
            requests += _flattened(name, (str(key),), value, lines)
    return requests


def _from_defaults(name: str, entries: object, line: int, group: str) -> Iterator[Request]:
    """Yields the choices of a defaults list; in an option of ``group`` a bare name is another of its options.

    Raises ConfigError for an entry that can only be composed in place."""
    for entry in entries if isinstance(entries, list) else [entries]:
        if entry == "_self_" or entry == "sglang_hydra_schema":
            continue
        if group and isinstance(entry, str):
            entry = {group: entry}
        if not isinstance(entry, Mapping) or any(isinstance(option, (list, dict)) for option in entry.values()):
            why = f"the entry {entry!r} of its defaults list includes another config"
            named, slash, option = entry.partition("/") if isinstance(entry, str) else ("", "", "")
            meant = f"; '- {named}: {option}' chooses an option" if slash and named in NODES else ""
            raise _unreadable(f"{name}:{line}", f"{why}{meant}")
        for group, option in entry.items():
            words = str(group).split()
            if words[-1].startswith("hydra."):
                message = f"{name}:{line}: {words[-1]} is a key, and a defaults list names only groups"
                hint = f"beside the list: hydra: {{{words[-1].removeprefix('hydra.')}: ...}}"
                raise ConfigError.of("CLI017", message, words[-1], hint=hint)
            yield Request(
                f"{words[-1].lstrip('/')}={'null' if option is None else option}", f"{name}:{line}", "experiment"
            )


def _of_hydra(
    file: Path, value: Json, lines: Mapping[tuple[str, ...], int], keys: tuple[str, ...]
) -> Iterator[Request]:
    """Yields ``hydra.run.dir=x`` for ``hydra: {run: {dir: x}}``. Raises ConfigError for a refused search path."""
    key = ".".join(keys)
    if isinstance(value, Mapping) and value and key != "hydra.sweeper.params":
        for name, inner in value.items():
            yield from _of_hydra(file, inner, lines, (*keys, str(name)))
        return
    is_path = key == "hydra.searchpath"
    if is_path and (finding := refused_search_path(str(file), [str(path) for path in value or ()], True)) is not None:
        raise ConfigError(finding)
    word = typed_word(key, value)
    place = f"{shown_path(str(file))}:{lines.get(keys, 1)}"
    yield Request(word if is_path or key == "hydra.mode" else f"++{word}", place, "experiment")


def _flattened(name: str, keys: tuple[str, ...], value: object, lines: Mapping[tuple[str, ...], int]) -> list[Request]:
    """Returns ``gpu.count=4`` for ``gpu: {count: 4}``; a group's name with a word is the choice of its option."""
    if keys[0] in NODES and isinstance(value, Mapping) and len(keys) == 1:
        return [item for key, inner in value.items() for item in _flattened(name, (*keys, str(key)), inner, lines)]
    place = f"{name}:{lines.get(keys, 1)}"
    return [Request.typed(".".join(keys), value, place, "experiment", interpolate=True)]


def _from_plan(file: Path, content: str) -> Document:
    try:
        saved = parse_plan(shown_path(str(file)), content)
    except OtherSchema as failure:
        raise StartsNothing(*_unreadable(failure.place, str(failure)).findings) from failure
    except NotAPlan as failure:
        raise _unreadable(failure.place, str(failure)) from failure
    plan = saved.record
    typed: JsonDict = {
        "gpu": "none",
        "model": "unset",
        "engine": plan["engine"]["name"],
        "engine.version": plan["engine"]["version"],
        "ignore": sorted({finding["id"] for finding in plan["ignored"]}),
    }
    typed |= {f"engine.env.{variable}": value for variable, value in plan["environment"].items()}
    typed |= saved.intent
    return Document([Request.typed(key, value, saved.name, "lock") for key, value in typed.items()], saved.recorded)


def _unreadable(place: str, why: str) -> ConfigError:
    return ConfigError.of("CLI017", f"{place} cannot be read: {why}")


def _problem(problem: str | None) -> str:
    """Returns the parser's words; our own for a tab, since parsers differ there."""
    is_tab = problem is not None and ("'\\t'" in problem or "tab character" in problem)
    return "a tab is where only spaces may be" if is_tab else str(problem)
