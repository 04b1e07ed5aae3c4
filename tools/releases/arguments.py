"""The arguments of one release: the fields of its ServerArgs and the flags of its command line.

Releases up to 0.5.13 declare each argument twice, as a field and as a call of add_argument; later ones annotate the
field (``A[int, Arg(...)]``), and from 0.5.20 on the fields stand in one class a concern. All three are read here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from releases.values import Missing, Scope, Unknown, class_values, evaluate, scope_of
from releases.wheel import Wheel, WheelError

HOME = "sglang.srt.server_args"
CLASS = "ServerArgs"
_NAMESPACES = "_INPUT_NAMESPACES"
_OPTIONAL = ("Optional", "typing.Optional")
_ANNOTATED = ("A", "Annotated")
_PLAIN_TYPES = {"List": "list", "Dict": "dict", "Tuple": "tuple", "Set": "set", "typing.Any": "Any"}
_GONE = "DeprecatedAction"
"""An old flag that does nothing any more."""

_STATED = ("new_flag", "const_value", "error_message", "help")
_LIMITS = ("choices", "nargs")
_PLAIN = re.compile(r"\b(?:int|float|str|bool)\b")
_ADVICE = re.compile(r"(?:[Uu]se|set) [`']?(--[\w-]+)(?:[`']? to '([\w-]+)')?")


@dataclass
class Argument:
    """One field. ``flags`` is empty where the command line does not have it; ``choices`` None where all is allowed."""

    name: str
    type: str
    default: Any = Missing
    flags: list[str] = field(default_factory=list)
    choices: list[Any] | None = None
    nargs: Any = None
    action: str | None = None
    const: Any = None
    reader: str | None = None

    def record(self) -> dict[str, Any]:
        """Plain values, what is usual left out: the flag that follows from the name, null for no choices."""
        made: dict[str, Any] = {"type": self.type}
        if self.default is not Missing:
            made["default"] = _plain(self.default)
        if self.flags != [_flag_of(self.name)]:
            made["flags"] = self.flags
        for key in ("choices", "nargs", "action", "const", "reader"):
            if (value := getattr(self, key)) is not None:
                made[key] = _plain(value)
        return made


@dataclass(frozen=True)
class OldFlag:
    """A flag that is only still accepted: which one to use, the field that it feeds, and the value it stands for."""

    flag: str
    action: str
    field: str | None
    instead: str | None
    value: Any = None
    nargs: Any = None
    choices: list[Any] | None = None
    reader: str | None = None
    refused: bool | None = None

    def record(self) -> dict[str, Any]:
        made = {name: _plain(value) for name, value in vars(self).items() if name != "flag"}
        return {key: value for key, value in made.items() if value is not None}


def read_arguments(wheel: Wheel) -> tuple[dict[str, Argument], dict[str, OldFlag]]:
    """The fields by name and the flags that are only still accepted. Raises WheelError for a layout of another kind."""
    home = scope_of(wheel, HOME)
    declared = home.classes.get(CLASS)
    if declared is None:
        raise WheelError(f"{wheel.path} has no class {CLASS} in {HOME}")
    found = {argument.name: argument for argument in _fields(declared, home)}
    for space in _namespaces(home):
        for argument in _fields(*space):
            found[argument.name] = argument
    if not found:
        raise WheelError(f"{wheel.path}: {CLASS} has no fields that can be read")
    renamed = _renamed_on_the_way(declared)
    old: dict[str, OldFlag] = {}
    for call, local in _add_argument_calls(declared):
        _read_option(call, home, local, found, renamed, old)
    return found, old


def _namespaces(home: Scope) -> Iterator[tuple[ast.ClassDef, Scope]]:
    listed = home.assigned.get(_NAMESPACES)
    for item in listed.elts if isinstance(listed, ast.List) else []:
        found = home.find(item.id) if isinstance(item, ast.Name) else None
        if found is not None and isinstance(found[1], ast.ClassDef):
            yield found[1], found[0]


def _fields(node: ast.ClassDef, scope: Scope) -> Iterator[Argument]:
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        if ast.unparse(item.annotation).startswith(("ClassVar", "typing.ClassVar")):
            continue
        made = Argument(item.target.id, "")
        annotation = item.annotation
        if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) in _ANNOTATED:
            assert isinstance(annotation.slice, ast.Tuple)
            inner, *marks = annotation.slice.elts
            _read_literal(inner, made, scope)
            for mark in marks:
                # Without help or Arg(...) a field has no flag, or one that add_cli_args adds by hand.
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "Arg":
                    _read_mark(mark, made, scope)
                elif isinstance(evaluate(mark, scope), str) or isinstance(mark, ast.JoinedStr):
                    made.flags = [_flag_of(made.name)]
            annotation = inner
        made.type = type_name(annotation)
        _derive(made)
        made.default = Missing if item.value is None else _default(item.value, scope)
        yield made


def _flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def _derive(made: Argument) -> None:
    """What an annotated field's type says about its flag where no mark does."""
    if not made.flags or made.action is not None or made.reader is not None:
        return
    plain = made.type.removesuffix(" | None")
    if plain == "bool":
        made.action = "store_true"
    elif plain.startswith("list") and made.nargs is None:
        made.nargs = "+"


def _read_mark(mark: ast.Call, made: Argument, scope: Scope) -> None:
    """What ``Arg(...)`` says."""
    given = {word.arg: word.value for word in mark.keywords if word.arg}
    value = {
        name: evaluate(node, scope) for name, node in given.items() if name not in ("help", "action", "type_parser")
    }
    if value.get("no_cli") is True:
        made.flags = []
        return
    own = value.get("cli_name")
    made.flags = [own if isinstance(own, str) else _flag_of(made.name), *(value.get("aliases") or [])]
    choices = value.get("choices")
    made.choices = _listed(choices) if choices is not None and not isinstance(choices, Unknown) else made.choices
    made.nargs, made.const = value.get("nargs"), value.get("const")
    if "action" in given:
        made.action = ast.unparse(given["action"]).rpartition(".")[2]
    if "type_parser" in given:
        made.reader = ast.unparse(given["type_parser"])
    if "action_kwargs" in value and isinstance(value["action_kwargs"], dict):
        made.nargs = value["action_kwargs"].get("nargs", made.nargs)


def _read_literal(node: ast.expr, made: Argument, scope: Scope) -> None:
    """The choices that ``Literal["a", "b"]`` names."""
    if isinstance(node, ast.Subscript):
        head = ast.unparse(node.value).rpartition(".")[2]
        if head == "Literal":
            inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            made.choices = [evaluate(item, scope) for item in inner]
        elif head == "Optional":
            _read_literal(node.slice, made, scope)


def _add_argument_calls(declared: ast.ClassDef) -> Iterator[tuple[ast.Call, dict[str, ast.expr]]]:
    """Every add_argument of add_cli_args in its order, with the function's own names as they stand by then."""
    for item in declared.body:
        if not isinstance(item, ast.FunctionDef) or item.name != "add_cli_args":
            continue
        local: dict[str, ast.expr] = {}
        for node in _in_order(item.body):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                local[node.targets[0].id] = node.value
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                called = node.value.func
                if isinstance(called, ast.Attribute) and called.attr == "add_argument":
                    yield node.value, dict(local)


def _in_order(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        for inner in ("body", "orelse"):
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield from _in_order(getattr(node, inner, []))


def _renamed_on_the_way(declared: ast.ClassDef) -> dict[str, str]:
    """``args.tp_size = args.tensor_parallel_size`` of from_cli_args: the destination and the field it feeds."""
    renamed = {}
    for item in declared.body:
        if isinstance(item, ast.FunctionDef) and item.name == "from_cli_args":
            for node in item.body:
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
                    target = node.targets[0]
                    if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "args":
                        renamed[node.value.attr] = target.attr
    return renamed


def _read_option(
    call: ast.Call,
    scope: Scope,
    local: dict[str, ast.expr],
    found: dict[str, Argument],
    renamed: dict[str, str],
    old: dict[str, OldFlag],
) -> None:
    flags = [flag for node in call.args if isinstance(flag := evaluate(node, scope, local), str)]
    given = {word.arg: word.value for word in call.keywords if word.arg}
    if not flags:
        return
    long = next((flag for flag in flags if flag.startswith("--")), flags[0])
    dest = evaluate(given["dest"], scope, local) if "dest" in given else long.lstrip("-").replace("-", "_")
    name = renamed.get(dest, dest)
    action = ast.unparse(given["action"]).strip("'\"").rpartition(".")[2] if "action" in given else None
    argument = found.get(name)
    deprecated = action is not None and action.startswith("Deprecated")
    if deprecated or argument is None or argument.flags:
        if name not in found and not deprecated:
            return  # --config and its like: no argument of the server's own
        for flag in flags:
            old[flag] = _old_flag(flag, action or "store", name if name in found else None, given, scope, local)
        return
    argument.flags = flags
    argument.action = action
    for key in ("nargs", "const"):
        if key in given:
            setattr(argument, key, _known(evaluate(given[key], scope, local)))
    if "choices" in given:
        choices = evaluate(given["choices"], scope, local)
        argument.choices = None if isinstance(choices, Unknown) else _listed(choices)
    argument.reader = _reader_of(given, argument.type)


def _reader_of(given: dict[str, ast.expr], type: str = "") -> str | None:
    """The function that reads the words, where it is not the one that the field's type has first."""
    reader = ast.unparse(given["type"]) if "type" in given else None
    first = _PLAIN.search(type)
    return None if first is not None and first[0] == reader else reader


def _old_flag(
    flag: str, action: str, feeds: str | None, given: dict[str, ast.expr], scope: Scope, local: dict[str, ast.expr]
) -> OldFlag:
    stated = {key: _known(evaluate(node, scope, local)) for key, node in given.items() if key in _STATED}
    advice = _ADVICE.search(str(stated.get("error_message") or stated.get("help") or ""))
    instead = stated.get("new_flag") or (advice[1] if advice and advice[1] != flag else None)
    value = stated.get("const_value")
    if action == "DeprecatedStoreTrueAction":
        value = True
    if action == _GONE:
        feeds, value = None, advice[2] if advice and advice[1] != flag else None
    choices, nargs = (_known(evaluate(given[key], scope, local)) if key in given else None for key in _LIMITS)
    refused = True if action == _GONE and ("error_message" in stated or _raises(scope)) else None
    reader = _reader_of(given, "str")
    return OldFlag(flag, action, feeds, instead, value, nargs, choices and _listed(choices), reader, refused)


def _raises(scope: Scope) -> bool:
    """Whether the release's DeprecatedAction raises whatever it is given."""
    found = scope.find(_GONE)
    return found is not None and any(isinstance(node, ast.Raise) for node in ast.walk(found[1]))


def _known(value: Any) -> Any:
    return None if isinstance(value, Unknown) else value


def _listed(value: Any) -> list[Any]:
    return sorted(value, key=str) if isinstance(value, (set, frozenset)) else list(value)


def _default(node: ast.expr, scope: Scope) -> Any:
    """A default, also one that a factory makes: ``field(default_factory=list)``, ``... lambda: list(NAMES)``."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "field":
        given = {word.arg: word.value for word in node.keywords}
        if "default" in given:
            return evaluate(given["default"], scope)
        factory = given.get("default_factory")
        if isinstance(factory, ast.Lambda):
            return evaluate(factory.body, scope)
        if isinstance(factory, ast.Name) and factory.id in ("list", "dict", "set"):
            return {"list": [], "dict": {}, "set": []}[factory.id]
        return Missing if factory is None else Unknown(ast.unparse(factory))
    return evaluate(node, scope)


def type_name(node: ast.expr) -> str:
    """An annotation as Python 3.10 and later write it: ``int | None``, ``list[str]``."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return type_name(ast.parse(node.value, mode="eval").body)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _union([type_name(node.left), type_name(node.right)])
    if isinstance(node, ast.Subscript):
        head = ast.unparse(node.value)
        short = head.rpartition(".")[2]
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if head in _OPTIONAL:
            return _union([type_name(inner[0]), "None"])
        if short == "Union":
            return _union([type_name(item) for item in inner])
        if short == "Literal":
            return _of_literals(inner)
        return f"{_PLAIN_TYPES.get(short, short)}[{', '.join(type_name(item) for item in inner)}]"
    written = ast.unparse(node)
    return _PLAIN_TYPES.get(written, written)


def _of_literals(items: list[ast.expr]) -> str:
    kinds = {type(item.value).__name__ for item in items if isinstance(item, ast.Constant)}
    return _union(sorted("None" if kind == "NoneType" else kind for kind in kinds))


def _union(parts: list[str]) -> str:
    flat = list(dict.fromkeys(piece for part in parts for piece in part.split(" | ")))
    return " | ".join([*(piece for piece in flat if piece != "None"), *(["None"] if "None" in flat else [])])


def _plain(value: Any) -> Any:
    """A value in JSON's types; what is unknown inside it is its source."""
    if isinstance(value, Unknown):
        return {"computed": value.source}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(item) for item in value), key=str)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


__all__ = ["Argument", "OldFlag", "class_values", "read_arguments", "type_name"]
