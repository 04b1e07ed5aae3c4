"""Records who set what: for each argument every layer that set it, weakest first, with its place.

Arguments from presets (``args`` of the ``gpu`` and ``model`` nodes, the pair file) are weaker than every layer at the
root; among the others the order is Hydra's own."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from sglang_hydra.arguments.every import EVERY, canonical_name
from sglang_hydra.arguments.secrets import is_secret_name, masked
from sglang_hydra.compose.grammar import has_interpolation, unescaped
from sglang_hydra.compose.node_types import problems_at
from sglang_hydra.compose.overrides import Request, value_problem
from sglang_hydra.compose.schema import NODES
from sglang_hydra.compose.variables import has_read
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding, Remedy
from sglang_hydra.text.json_types import Json, JsonDict, JsonObject
from sglang_hydra.text.locations import conf_dir, shown_path
from sglang_hydra.text.origins import Named, Origin
from sglang_hydra.text.words import nearest, program

HIDES = " hides "
"""The word between an app's preset and the one of ours with the same name, in every message about it."""
_PRESETS = ("gpu", "model", "gpu_model")
PROGRAMS = (("engine", "python"), ("topology", "router", "python"))
"""The keys of programs that planning may run."""


_WORD = "{} --help WORD finds arguments"
_MOUNT = (
    "an app may have keys of its own beside our tree if our tree is under a node. Two lines of the defaults list: "
    "'- /sglang_hydra@server' and '- override /gpu@server.gpu: h200'; then server.tp_size=8 (docs/mounts.md)"
)
_NOBODY = Origin("", None, where="a file")


class Layers:
    """Collects the origins while composing. ``findings`` are the mistakes in files, ``shadowed`` the presets that hide
    ours, ``warnings`` are for what composes but is probably not meant."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.shadowed: list[str] = []
        self.warnings: list[Finding] = []
        self._origins: dict[str, list[Origin]] = {}
        self._inside: dict[tuple[str, ...], Origin] = {}
        self._programs: dict[tuple[str, ...], Origin] = {}

    def copy(self) -> Layers:
        twin = copy.copy(self)
        twin.findings, twin.shadowed = list(self.findings), list(self.shadowed)
        twin.warnings = list(self.warnings)
        twin._origins = {name: list(chain) for name, chain in self._origins.items()}
        twin._inside = dict(self._inside)
        twin._programs = dict(self._programs)
        return twin

    def absorb(self, above: Layers) -> None:
        """Adds everything from ``above``, after what is already here."""
        self.findings += above.findings
        self.shadowed += above.shadowed
        for name, chain in above._origins.items():
            self._origins.setdefault(name, []).extend(chain)
        self._inside.update(above._inside)
        self._programs.update(above._programs)

    def add_file(self, layer: str, content: JsonObject, file: str, at: tuple[str, ...], config: str = "") -> None:
        """Adds the keys of one file below our root. ``at`` is the path of our root inside the file; ``config`` names a
        config without a file (``recipe/deepseek_v3-h200-8``)."""
        for name, value in content.items():
            origin = Origin(layer, value, file=file or None, keys=(*at, name), where="" if file else config or layer)
            if name in EVERY:
                self._named(name, origin)
            elif name in NODES:
                self._add_node((name,), value, layer, file, at)
            else:
                self._unknown(name, origin)

    def add_preset(self, group: str, content: JsonObject, file: str) -> None:
        """Adds the file of a ``gpu`` or ``model`` option; its content is that node."""
        self._add_node((group,), content, group, file, (), inside=True)
        ours = conf_dir() / group / f"{file.rpartition('/')[2]}"
        if file and ours.exists() and str(ours) != file:
            self.shadowed.append(f"{shown_path(file)}{HIDES}{shown_path(str(ours))} of sglang_hydra")

    def add_option(self, package: tuple[str, ...], content: JsonObject, file: str, config: str) -> None:
        """Adds the programs in the file of an option of another group (``engine/mine.yaml``)."""
        for path in _leaves(package, content):
            if path in PROGRAMS:
                keys = path[len(package) :]
                value = functools.reduce(lambda node, name: node[name], keys, content)
                self._programs[path] = Origin(package[0], value, file=file or None, keys=keys, where=config)

    def typed(self, key: str, value: Json, request: Request) -> None:
        """Adds a value from an override, already checked."""
        origin = Origin(request.layer, unescaped(value), where=request.place)
        if key in EVERY:
            self._origins.setdefault(key, []).append(origin)
            return
        for path in _leaves(tuple(key.split(".")), value):
            self._inside[path] = origin._replace(value=masked(path[-1], origin.value))
            if path in PROGRAMS:
                self._programs[path] = origin

    def lift(self, layer: str, name: str, value: Json, path: tuple[str, ...]) -> None:
        """Adds the origin of an argument from a preset, or from an override inside it (``model.args.tp_size=8``)."""
        inside = self._inside.get(path, Origin(layer, None))
        self._named(name, Origin(layer, value, inside.where or layer, inside.file, inside.keys))

    def lift_extra(self, name: str, value: Json, root: JsonDict) -> None:
        """Moves an argument from ``extra``, used in files of earlier versions, to ``root``."""
        origin = self._inside.pop(("extra", name), None) or self._inside.pop(("extra",), _NOBODY)
        known = canonical_name(name)
        if known is not None:
            root[known] = value
        self._named(known or name, origin._replace(value=value))

    def _named(self, name: str, origin: Origin) -> None:
        if name not in EVERY:
            self._unknown(name, origin)
            return
        problem = value_problem(name, origin.value)
        if problem:
            if isinstance(origin.value, bool):
                hint = f'quote it if a word was meant: {name}: "{"on" if origin.value else "off"}"'
                problem = problem.said(hint)
            self.findings.append(replace(problem, message=f"{origin.place}: {problem.message}"))
        self._origins.setdefault(name, []).append(origin)

    def _add_node(
        self, keys: tuple[str, ...], value: Json, layer: str, file: str, at: tuple[str, ...], inside: bool = False
    ) -> None:
        for problem in problems_at(keys, value):
            path = tuple(problem.key.split("."))[1 if inside else 0 :]
            place = Origin(layer, value, file=file or None, keys=(*at, *path), where=layer).place
            self.findings.append(problem.finding(place))
        for path in _leaves(keys, value):
            origin = Origin(layer, None, file=file or None, keys=(*at, *(path[1:] if inside else path)), where=layer)
            self._inside[path] = origin
            if path in PROGRAMS:
                self._programs[path] = origin

    def _unknown(self, name: str, origin: Origin) -> None:
        near = nearest(name, [*EVERY, *NODES])
        message = f"{origin.place}: {name!r} is neither an argument of SGLang nor a key of ours"
        hint = Remedy.meant(near) if near else _MOUNT if origin.layer == "primary" else _WORD.format(program())
        self.findings.append(Finding("error", "CLI001", message, (name,), hint))

    def check_nodes(self, root: JsonObject) -> None:
        """Checks the nodes again with interpolations resolved. Raises ConfigError for a wrong value."""
        problems = [problem for node in NODES for problem in problems_at((node,), root[node], resolved=True)]
        if problems:
            raise ConfigError(*(one.finding(self.place_of(one.key) or one.key) for one in problems))

    def winners(self, root: JsonObject) -> JsonDict:
        """Returns the value of every named argument: that of the root, else of the strongest preset."""
        intent: JsonDict = {}
        for name, chain in self._origins.items():
            chain.sort(key=lambda origin: _PRESETS.index(origin.layer) if origin.layer in _PRESETS else len(_PRESETS))
            last = chain[-1]
            intent[name] = last.value if last.layer in _PRESETS else root[name]
            if has_interpolation(last.value) and (problem := value_problem(name, intent[name])):
                if has_read(intent[name]):  # cut short, it could not be recognised any more
                    kind = type(intent[name]).__name__
                    message = f"it gives a {kind}, and {name} is {EVERY[name].type}"
                    problem = Finding("error", "CLI002", message, (name,))
                place = f"{last.place}: {name}={last.value}"
                self.findings.append(replace(problem, message=f"{place}: {problem.message}"))
        return {name: intent[name] for name in EVERY if name in intent}

    def place_of(self, key: str) -> str | None:
        """Returns the place that last set an argument or a key of a node; None if nobody did."""
        chain = self._origins.get(key)
        origin = chain[-1] if chain else self._inside.get(tuple(key.split(".")))
        return origin.place if origin else None

    def origin_at(self, key: str) -> Origin | None:
        """Returns the last origin of an argument, of a key of a node or of a key above it; None without one."""
        path = tuple(re.sub(r"\[(\w+)\]", r".\1", key).split("."))
        for depth in range(len(path), 0, -1):
            chain = self._origins.get(path[0]) if depth == 1 else None
            origin = chain[-1] if chain else self._inside.get(path[:depth])
            if origin is not None:
                return origin
        return None

    def was_typed(self, key: str) -> bool:
        """Returns whether the last origin of an argument is a typed word."""
        chain = self._origins.get(key)
        origin = chain[-1] if chain else None
        if origin is not None and origin.layer in _PRESETS:  # lifted from the preset's node
            origin = self._inside.get((origin.layer, "args", key))
        return origin is not None and origin.layer == "cli"

    def named(self) -> frozenset[str]:
        """Returns every argument and key of a node that a file or override sets, as ``gpu.count``."""
        return frozenset((*self._origins, *(".".join(path) for path in self._inside)))

    def programs(self, root: JsonObject) -> dict[str, Named]:
        """Returns the programs in the configuration by key, each with who named it."""
        found = {}
        for path in PROGRAMS:
            value: Json = functools.reduce(lambda node, name: node[name], path, root)
            if value is not None:
                found[".".join(path)] = Named(str(value), self._programs.get(path, _NOBODY))
        return found

    def settings(self) -> dict[str, Origin]:
        """Returns the keys inside nodes that are set by something else than the preset's own file, as ``gpu.count``."""
        return {
            ".".join(path): origin
            for path, origin in self._inside.items()
            # A preset that only names another one sets nothing itself.
            if not (origin.layer in _PRESETS and (origin.keys or len(path) == 1)) and path[1:2] != ("args",)
        }

    def chains(self) -> dict[str, tuple[Origin, ...]]:
        """Returns the origins of each argument, with secrets as references."""
        return {
            name: tuple(origin._replace(value=masked(name, origin.value)) for origin in chain)
            if is_secret_name(name)
            else tuple(chain)
            for name, chain in self._origins.items()
        }


def _leaves(path: tuple[str, ...], value: Json) -> Iterator[tuple[str, ...]]:
    """Yields the path of every value below ``path``, at most as deep as the arguments of a preset."""
    if isinstance(value, Mapping) and len(path) < 3 and value:
        for name, item in value.items():
            yield from _leaves((*path, str(name)), item)
    else:
        yield path
