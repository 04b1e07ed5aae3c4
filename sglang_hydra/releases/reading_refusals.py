"""Reads where a release refuses: each raise, assertion and logged error, with the conditions above it.

The sources are read as syntax and never run. Of a condition only what can be evaluated again is kept, as nested lists:
``["&", ...]``, ``["|", ...]``, ``["!", one]``, ``["==", left, right]`` (and the other comparisons), ``["%", left,
right]`` (and the other operations), ``["a", field]`` an argument, ``["$", name]`` a variable, ``["@", name]`` a
question to the platform, ``["c", constant]``, and ``["?", ...]`` anything else, with the arguments, variables and
questions in it. Of a message only what identifies it is kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sglang_hydra.releases.child.source import LEAVES
from sglang_hydra.text.json_types import Json

Term = list[Json]
"""A condition or a value in it."""

HOLE = "{}"
"""The hole of a value in a message."""
LOGGED = "log"
ANY = "any"
"""The kind of a place that raises an exception from elsewhere."""
_LOG_LEVELS = ("error", "critical", "exception", "fatal")
_LEAST_LETTERS, _MOST_LETTERS = 28, 90
_SOURCES = frozenset(("server_args", "args", "cfg", "view", "sa", "resolved", "config_view"))
_ARGUMENTS = frozenset(("server_args", "_server_args", "cfg"))
_PLATFORM = re.compile(
    r"^_?(?:is|support|use|has|can)_\w*(?:cuda|hip|rocm|npu|xpu|hpu|cpu|musa|mps|sm\d+|blackwell|hopper|gfx|aiter)\w*$"
    r"|^get_(?:device_\w+|amdgpu_\w+|cuda_version)$|^(?:device_sm|current_platform)$"
)
_PASSED_ON = ("str", "int", "float", "bool", "from_string", "lower", "upper", "strip")
_COMPARED: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Is: "==", ast.IsNot: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
    ast.GtE: ">=", ast.In: "in", ast.NotIn: "notin",
}  # fmt: skip
_OPERATIONS: Mapping[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Div: "/", ast.Mod: "%",
}  # fmt: skip
_DEEPEST = 6
_MOST_NAMES = 12


class Site(NamedTuple):
    """A place that refuses. ``kind`` is the exception's class, ``log`` for a logged error; ``message`` its words with
    holes; ``guards`` all hold when it is reached."""

    file: str
    function: str
    line: int
    kind: str
    message: str
    guards: list[Term]


@dataclass(slots=True)
class _Scope:
    """The names of a function: the last value of each, and which of them are the server's arguments."""

    values: dict[str, ast.expr] = field(default_factory=dict)
    aliases: set[str] = field(default_factory=set)
    parameters: frozenset[str] = frozenset()
    attributes: Mapping[str, ast.expr] = field(default_factory=dict)
    of_arguments: bool = False
    """Whether ``self`` is the ServerArgs."""


class Reader:
    """Reads the sources of one release, whose arguments are ``fields``."""

    def __init__(self, fields: Collection[str], sources: Iterable[tuple[str, str]]) -> None:
        self._fields = frozenset(fields)
        self._trees: list[tuple[str, ast.Module]] = []
        for name, text in sources:
            try:
                self._trees.append((name, ast.parse(text)))
            except (SyntaxError, ValueError):
                continue
        self._reads: dict[str, frozenset[str]] = {}
        self._learn()

    def sites(self) -> Iterator[Site]:
        """Yields every refusing place, in the order of the files."""
        for name, tree in self._trees:
            yield from self._in_block(name, tree.body, "<module>", _Scope(), [])

    def _learn(self) -> None:
        """Records for each function with a unique name which arguments it reads."""
        seen: dict[str, set[str] | None] = {}
        for _, tree in self._trees:
            for function in _functions(tree.body):
                found = {
                    one.attr
                    for one in ast.walk(function)
                    if isinstance(one, ast.Attribute) and one.attr in self._fields and _is_source(one.value, None)
                }
                seen[function.name] = None if function.name in seen else found
        self._reads = {name: frozenset(found) for name, found in seen.items() if found and len(found) <= _MOST_NAMES}

    # ------------------------------------------------------------------ statements

    def _in_block(
        self, file: str, body: Sequence[ast.stmt], function: str, scope: _Scope, guards: list[Term]
    ) -> Iterator[Site]:
        """Yields the sites below these statements. A condition that left the block earlier did not hold at them."""
        held = list(guards)
        for node in body:
            yield from self._in_statement(file, node, function, scope, held)
            if isinstance(node, ast.If) and isinstance(node.body[-1], LEAVES) and not node.orelse:
                held = [*held, *_parts(_negated(self._condition(node.test, scope)))]

    def _in_statement(
        self, file: str, node: ast.stmt, function: str, scope: _Scope, guards: list[Term]
    ) -> Iterator[Site]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                names = frozenset(one.arg for one in arguments)
                typed = {one.arg for one in arguments if one.annotation and "ServerArgs" in ast.unparse(one.annotation)}
                aliases = scope.aliases | typed
                inner = _Scope(dict(scope.values), aliases, names, scope.attributes, scope.of_arguments)
                yield from self._in_block(file, node.body, node.name, inner, [])
            case ast.ClassDef():
                inner = _Scope(attributes=_attributes(node), of_arguments=node.name in ("ServerArgs", "PortArgs"))
                yield from self._in_block(file, node.body, function, inner, [])
            case ast.If():
                test = self._condition(node.test, scope)
                yield from self._in_block(file, node.body, function, scope, [*guards, *_parts(test)])
                yield from self._in_block(file, node.orelse, function, scope, [*guards, *_parts(_negated(test))])
            case ast.Assert():
                reached = [*guards, *_parts(_negated(self._condition(node.test, scope)))]
                words = _shortened(self._message(node.msg, scope))
                yield Site(file, function, node.lineno, "AssertionError", words, _kept(reached))
            case ast.Raise(exc=ast.expr() as raised):
                kind, first = _last_name(getattr(raised, "func", raised)), next(iter(getattr(raised, "args", ())), None)
                if not kind[:1].isupper():
                    kind, first = ANY, None
                words = _shortened(self._message(first, scope))
                yield Site(file, function, node.lineno, kind, words, _kept(guards))
            case ast.Expr(value=ast.Call() as call) if self._logs(call):
                words = _shortened(self._message(call.args[0], scope))
                if words.strip(HOLE + " "):
                    yield Site(file, function, node.lineno, LOGGED, words, _kept(guards))
            case _:
                self._take_names(node, scope)
                for name in ("body", "handlers", "orelse", "finalbody", "cases"):
                    for child in _blocks(getattr(node, name, None)):
                        yield from self._in_block(file, child, function, scope, guards)

    @staticmethod
    def _logs(call: ast.Call) -> bool:
        return (
            isinstance(call.func, ast.Attribute)
            and call.func.attr in _LOG_LEVELS
            and "log" in ast.unparse(call.func.value).lower()
            and bool(call.args)
        )

    @staticmethod
    def _take_names(node: ast.stmt, scope: _Scope) -> None:
        """Records the assignments of a statement; a loop's name is unknown."""
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None) if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        for target in targets:
            if isinstance(target, ast.Name):
                scope.values.pop(target.id, None)
                scope.aliases.discard(target.id)
                if value is not None and not isinstance(node, ast.AugAssign):
                    if _is_source(value, scope):
                        scope.aliases.add(target.id)
                    scope.values[target.id] = value

    # ------------------------------------------------------------------ conditions

    def _condition(self, node: ast.expr, scope: _Scope, depth: int = 0) -> Term:
        """Returns a condition as nested lists."""
        if depth > _DEEPEST:
            return ["?"]
        match node:
            case ast.BoolOp(op=operation, values=values):
                parts = [self._condition(one, scope, depth) for one in values]
                return ["&" if isinstance(operation, ast.And) else "|", *parts]
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return _negated(self._condition(operand, scope, depth))
            case ast.Compare(left=left, ops=operations, comparators=others):
                parts = []
                for compared, other in zip(operations, others, strict=True):
                    parts.append([_COMPARED[type(compared)], *(self._term(one, scope, depth) for one in (left, other))])
                    left = other
                return parts[0] if len(parts) == 1 else ["&", *parts]
            case ast.NamedExpr(value=value):
                return self._condition(value, scope, depth)
            case ast.Call(func=ast.Attribute(value=base, attr="is_none"), args=[]):
                return ["==", self._term(base, scope, depth), ["c", None]]
        return self._term(node, scope, depth)

    def _term(self, node: ast.expr, scope: _Scope, depth: int = 0) -> Term:
        if depth > _DEEPEST:
            return ["?"]
        match node:
            case ast.Constant(value=value) if value is None or isinstance(value, (bool, int, float, str)):
                return ["c", value]
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                terms = [self._term(one, scope, depth + 1) for one in items]
                return ["c", [one[1] for one in terms]] if all(one[0] == "c" for one in terms) else _unknown(terms)
            case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATIONS:
                parts = [self._term(one, scope, depth + 1) for one in (left, right)]
                return [_OPERATIONS[type(operation)], *parts]
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return ["c", -value]
            case ast.BoolOp() | ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return self._condition(node, scope, depth + 1)
            case ast.Attribute():
                return self._attribute(node, scope, depth)
            case ast.Name(id=name):
                return self._name(name, scope, depth)
            case ast.Call():
                return self._call(node, scope, depth)
        children = (one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr))
        return _unknown([self._term(one, scope, depth + 1) for one in children])

    def _name(self, name: str, scope: _Scope, depth: int) -> Term:
        if name in scope.values:
            return self._term(scope.values[name], scope, depth + 1)
        if _PLATFORM.match(name):
            return ["@", name.lstrip("_")]
        if name in scope.parameters and self._by_name(name):
            return ["a", name]
        return ["?"]

    def _attribute(self, node: ast.Attribute, scope: _Scope, depth: int) -> Term:
        name, base = node.attr, node.value
        if name in self._fields and _is_source(base, scope):
            return ["a", name]
        if isinstance(base, ast.Name) and base.id == "self":
            if scope.of_arguments and name in self._fields:
                return ["a", name]
            if name in scope.attributes:
                found = self._term(scope.attributes[name], _Scope(attributes=scope.attributes), depth + 1)
                if found != ["?"]:
                    return found
            if self._by_name(name):
                return ["a", name]
        if isinstance(base, ast.Name) and base.id[:1].isupper() and name.isupper():
            return ["c", name.lower()]  # a member of an enumeration is compared by its name
        if _PLATFORM.match(name):
            return ["@", name]
        return _unknown([self._term(base, scope, depth + 1)])

    def _by_name(self, name: str) -> bool:
        return "_" in name and name in self._fields

    def _call(self, node: ast.Call, scope: _Scope, depth: int) -> Term:
        name = _last_name(node.func)
        if variable := _variable(node):
            return ["$", variable]
        if _PLATFORM.match(name):
            return ["@", name.lstrip("_")]
        words = node.args
        if name in ("getattr", "hasattr") and len(words) > 1 and isinstance(words[1], ast.Constant):
            field_name = words[1].value
            return ["a", field_name] if field_name in self._fields and _is_source(words[0], scope) else ["?"]
        inner = [self._term(one, scope, depth + 1) for one in (*words, *(item.value for item in node.keywords))]
        if isinstance(node.func, ast.Attribute):
            inner.append(self._term(node.func.value, scope, depth + 1))
        if (name in _PASSED_ON or name[:1].isupper()) and len(words) < 2:
            named = [one for one in inner if one != ["?"]]
            if len(named) == 1 and named[0][0] == "a":
                return named[0]
        return _unknown([*inner, ["?", *sorted(self._reads.get(name, ()))]])

    # ------------------------------------------------------------------ messages

    def _message(self, node: ast.expr | None, scope: _Scope, depth: int = 0) -> str:
        """Returns the words of a message, with a hole for each value in it."""
        match node:
            case None:
                return ""
            case ast.Constant(value=str() as value):
                return value
            case ast.JoinedStr(values=parts):
                return "".join(self._message(one, scope, depth) for one in parts)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._message(left, scope, depth) + self._message(right, scope, depth)
            case ast.BinOp(left=left, op=ast.Mod()):
                return re.sub(r"%[-\d.]*[a-z]", HOLE, self._message(left, scope, depth))
            case ast.Call(func=ast.Attribute(value=base, attr="format")):
                return re.sub(r"\{[^{}]*\}", HOLE, self._message(base, scope, depth))
            case ast.Name(id=name) if depth < _DEEPEST and name in scope.values:
                return self._message(scope.values[name], scope, depth + 1)
        return HOLE


def _shortened(message: str) -> str:
    """Returns the identifying part of a message: its first line, shortened to some words."""
    first = re.sub(r"(?:\{\})+", HOLE, message.strip().split("\n")[0])
    if len(first) <= _LEAST_LETTERS:
        return first
    letters, end = 0, 0
    for word in re.finditer(r"\S+\s*", first):
        letters += len(word[0].replace(HOLE, ""))
        end = word.end()
        if letters >= _LEAST_LETTERS or end >= _MOST_LETTERS:
            break
    return first[:end].strip()


def _functions(body: Sequence[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """Yields the functions of a module and of its classes."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body)


def _blocks(value: Json) -> Iterator[list[ast.stmt]]:
    """Yields the blocks of statements in a part of a statement."""
    if not isinstance(value, list):
        return
    for one in value:
        if isinstance(one, (ast.ExceptHandler, ast.match_case)):
            yield one.body
    if value and isinstance(value[0], ast.stmt):
        yield value


def _attributes(node: ast.ClassDef) -> dict[str, ast.expr]:
    """Returns the values that a class gives to its own attributes; of several the first."""
    found: dict[str, ast.expr] = {}
    for one in ast.walk(node):
        if isinstance(one, (ast.Assign, ast.AnnAssign)) and one.value is not None:
            for target in one.targets if isinstance(one, ast.Assign) else [one.target]:
                if isinstance(target, ast.Attribute) and getattr(target.value, "id", None) == "self":
                    found.setdefault(target.attr, one.value)
    return found


def _is_source(node: ast.expr, scope: _Scope | None) -> bool:
    """Returns whether an expression is the server's arguments, or a view of them."""
    if isinstance(node, ast.Name):
        return node.id in _SOURCES or (scope is not None and node.id in scope.aliases)
    if isinstance(node, ast.Attribute):
        below = isinstance(node.value, (ast.Attribute, ast.Call)) and _is_source(node.value, scope)
        return node.attr in _ARGUMENTS or below
    if not isinstance(node, ast.Call):
        return False
    if not node.args:
        return isinstance(node.func, ast.Name) and node.func.id.startswith("get_")
    return _last_name(node.func).endswith("_view") and _is_source(node.args[0], scope)


def _variable(node: ast.Call) -> str | None:
    """Returns the environment variable that a call reads."""
    written = ast.unparse(node.func)
    found = re.match(r"envs\.([A-Z_0-9]+)\.get$", written)
    if found:
        return found[1]
    is_read = written in ("os.environ.get", "os.getenv", "environ.get", "getenv") or _last_name(node.func).startswith(
        ("get_bool_env_var", "get_int_env_var", "get_str_env_var")
    )
    first = node.args[0] if node.args else None
    return first.value if is_read and isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _unknown(terms: Iterable[Term]) -> Term:
    """Returns an unknown condition, with the arguments, variables and questions in it."""
    return ["?", *dict.fromkeys(name for term in terms for name in names_in(term))][: _MOST_NAMES + 1]


def names_in(term: Json) -> Iterator[str]:
    """Yields the arguments in a condition; variables after ``$``, questions to the platform after ``@``."""
    if not isinstance(term, list) or not term:
        return
    if term[0] == "a":
        yield term[1]
    elif term[0] in ("$", "@"):
        yield term[0] + term[1]
    elif term[0] == "?":
        yield from term[1:]
    elif term[0] != "c":
        for one in term[1:]:
            yield from names_in(one)


_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">", "in": "notin", "notin": "in"}


def _negated(term: Term) -> Term:
    if term[0] == "!":
        inner: Term = term[1]
        return inner
    if term[0] in _OPPOSITE:
        return [_OPPOSITE[term[0]], *term[1:]]
    if term[0] in "&|":
        return ["|" if term[0] == "&" else "&", *(_negated(one) for one in term[1:])]
    return term if term[0] == "?" else ["!", term]


def _parts(term: Term) -> list[Term]:
    """Returns the parts of a conjunction."""
    return [one for part in term[1:] for one in _parts(part)] if term[0] == "&" else [term]


def _kept(guards: Sequence[Term]) -> list[Term]:
    """Returns the conditions that read anything, each once; parts that read nothing become one unknown."""
    kept: list[Term] = []
    for guard in map(_simplified, guards):
        if guard not in kept and any(names_in(guard)):
            kept.append(guard)
    return kept


def _simplified(term: Term) -> Term:
    if term[0] in ("a", "$", "@", "c", "?"):
        return term
    if not any(names_in(term)):
        return ["?"]
    return [term[0], *(_simplified(one) for one in term[1:])]
