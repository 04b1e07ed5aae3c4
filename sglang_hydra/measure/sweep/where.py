"""``sweep.where``: a constraint on points, read with ``ast`` and computed by us. Nothing in it is ever executed.

It has comparisons, arithmetic on numbers, ``and``, ``or``, ``not``, ``in`` and ``not in`` over the keys of a plan.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding

Lookup = Callable[[str], Any]
"""The value of a key of one point."""
_Node = Callable[[Lookup], Any]

_LONGEST = 4000
_DEEPEST = 200
_LARGEST = 2**256
_MOST_POWER = 256

_NAMED = {"true": True, "false": False, "null": None, "none": None}
_ARITHMETIC: Mapping[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
}
_COMPARED: Mapping[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.In: ("in", lambda item, among: item in among),
    ast.NotIn: ("not in", lambda item, among: item not in among),
}
_ELSEWHERE = (("&&", "and"), ("||", "or"), ("!", "not"), ("=", "=="))


class Uncomputable(Exception):
    """The constraint has no value for this point; says why."""


class Where:
    """A constraint that has been read. ``keys`` are those that it names, in their order."""

    def __init__(self, text: str, node: _Node, keys: Mapping[str, int]) -> None:
        self.text = text
        self.keys = keys
        self._node = node

    def holds(self, lookup: Lookup) -> bool:
        """Whether a point meets it. Raises Uncomputable where a key has no value, or one of another kind, there."""
        value = self._node(lookup)
        if not isinstance(value, bool):
            raise Uncomputable(f"it gives {value!r}, neither true nor false")
        return value

    def refusal(self, key: str, why: str, hint: str | None = None) -> ConfigError:
        """Returns the error for a key that it names."""
        return _error(self.text, self.keys[key], why, hint)


def read_where(text: str) -> Where:
    """Reads a constraint. Raises ConfigError, with the column, for what is none."""
    text = text.replace("\n", " ").strip()
    if len(text) > _LONGEST:
        raise _error(text, 0, f"it is longer than {_LONGEST} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's advice on unusual code is not for people who typed a constraint
            tree = ast.parse(text, mode="eval")
    except SyntaxError as failure:
        raise _unreadable(text, failure) from None
    except (RecursionError, MemoryError, ValueError) as failure:
        why = f"{type(failure).__name__}: {failure}" if isinstance(failure, ValueError) else "it is nested too deeply"
        raise _error(text, 0, why) from None
    reader = _Reader(text)
    return Where(text, reader.read_truth(tree.body), reader.keys)


class _Reader:
    """From the syntax tree to functions, one for each node that is allowed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.keys: dict[str, int] = {}
        self._depth = 0

    def read_truth(self, node: ast.expr) -> _Node:
        """Reads an expression that must be true or false; refuses what is a number, a text or a list whatever the
        point."""
        kind = _never_true(node)
        if kind:
            hint = "and, or" if kind == "a list" else "a comparison, such as tp_size == 8"
            raise self._refused(node, f"{kind} is neither true nor false", hint)
        return self.read(node)

    def read(self, node: ast.expr) -> _Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._refused(node, "it is nested too deeply")
        try:
            return self._read(node)
        finally:
            self._depth -= 1

    def _read(self, node: ast.expr) -> _Node:
        if isinstance(node, ast.Constant):
            return self._constant(node)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._key(node)
        if isinstance(node, (ast.List, ast.Tuple)):
            items = [self.read(item) for item in node.elts]
            return lambda lookup: [item(lookup) for item in items]
        if isinstance(node, ast.BoolOp):
            return self._logic(node)
        if isinstance(node, ast.UnaryOp):
            return self._sign(node)
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        raise self._refused(node, f"{_described(node)} is not part of a constraint", _allowed())

    def _constant(self, node: ast.Constant) -> _Node:
        value = node.value
        if not (value is None or isinstance(value, (bool, int, float, str))):
            raise self._refused(node, f"{value!r} is no number, text, true, false or null")
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise self._refused(node, "the number is too large")
        return lambda lookup: value

    def _key(self, node: ast.expr) -> _Node:
        names: list[str] = []
        inner = node
        while isinstance(inner, ast.Attribute):
            names.insert(0, inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name):
            raise self._refused(node, "a key is written as gpu.count", _allowed())
        key = ".".join([inner.id, *names])
        if key.lower() in _NAMED:
            return lambda lookup: _NAMED[key.lower()]
        self.keys.setdefault(key, _column(self.text, node))
        return lambda lookup: lookup(key)

    def _logic(self, node: ast.BoolOp) -> _Node:
        parts = [self.read_truth(value) for value in node.values]
        if isinstance(node.op, ast.Or):
            return lambda lookup: any(_truth(part(lookup)) for part in parts)
        return lambda lookup: all(_truth(part(lookup)) for part in parts)

    def _sign(self, node: ast.UnaryOp) -> _Node:
        inner = self.read_truth(node.operand) if isinstance(node.op, ast.Not) else self.read(node.operand)
        if isinstance(node.op, ast.Not):
            return lambda lookup: not _truth(inner(lookup))
        if isinstance(node.op, ast.USub):
            return lambda lookup: -_number(inner(lookup), "-")
        if isinstance(node.op, ast.UAdd):
            return lambda lookup: _number(inner(lookup), "+")
        raise self._refused(node, "~ is not part of a constraint", "not")

    def _arithmetic(self, node: ast.BinOp) -> _Node:
        if type(node.op) not in _ARITHMETIC:
            hint = "and, or" if isinstance(node.op, (ast.BitAnd, ast.BitOr)) else _allowed()
            raise self._refused(node, f"{_described(node.op)} is not part of a constraint", hint)
        sign, compute = _ARITHMETIC[type(node.op)]
        left, right = self.read(node.left), self.read(node.right)
        return lambda lookup: _computed(sign, compute, left(lookup), right(lookup))

    def _comparison(self, node: ast.Compare) -> _Node:
        first = self.read(node.left)
        steps: list[tuple[str, Callable[[Any, Any], Any], _Node]] = []
        for kind, after in zip(node.ops, node.comparators, strict=True):
            if type(kind) not in _COMPARED:
                raise self._refused(node, f"{_described(kind)} is not part of a constraint", "== and != compare")
            steps.append((*_COMPARED[type(kind)], self.read(after)))

        def value(lookup: Lookup) -> bool:
            before = first(lookup)
            for sign, compare, part in steps:
                after = part(lookup)
                if not _compared(sign, compare, before, after):
                    return False
                before = after
            return True

        return value

    def _refused(self, node: ast.AST, why: str, hint: str | None = None) -> ConfigError:
        return _error(self.text, _column(self.text, node), why, hint)


def _never_true(node: ast.expr) -> str:
    """What a node gives, where that is neither true nor false whatever the keys are; empty where it may be."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return "a list"
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return "a number"
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str)):
        return "" if isinstance(node.value, bool) else "a text" if isinstance(node.value, str) else "a number"
    return ""


def _computed(sign: str, compute: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    left, right = _number(left, sign), _number(right, sign)
    if sign == "**" and (abs(right) > _MOST_POWER or abs(left) > _LARGEST):
        raise Uncomputable(f"{left} ** {right} is too large a power")
    try:
        value = compute(left, right)
    except ArithmeticError as failure:
        raise Uncomputable(f"{left} {sign} {right}: {failure}") from None
    if isinstance(value, complex) or (isinstance(value, int) and abs(value) > _LARGEST):
        raise Uncomputable(f"{left} {sign} {right} is no number that can be used")
    return value


def _compared(sign: str, compare: Callable[[Any, Any], Any], left: Any, right: Any) -> bool:
    if sign in ("==", "!="):
        return bool(compare(left, right))
    if left is None or (right is None and "in" not in sign):
        raise Uncomputable(f"{left!r} {sign} {right!r}: one of them is not known")
    try:
        return bool(compare(left, right))
    except TypeError:
        raise Uncomputable(f"{left!r} {sign} {right!r} cannot be compared") from None


def _number(value: Any, sign: str) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise Uncomputable(f"{sign} needs numbers, and has {'a value that is not known' if value is None else repr(value)}")


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise Uncomputable(f"and, or and not need true or false, and have {value!r}")


def _unreadable(text: str, failure: SyntaxError) -> ConfigError:
    for wrong, right in _ELSEWHERE:
        found = re.search(rf"(?<![=!<>]){re.escape(wrong)}(?!=)", text)
        if found:
            return _error(text, found.start(), f"{wrong} is written {right} here", right)
    # Python has no place for what is missing at the end.
    column = failure.offset - 1 if failure.offset else len(text)
    return _error(text, column, failure.msg or "it cannot be read", _allowed())


def _column(text: str, node: ast.AST) -> int:
    """Where a node begins, in characters; ``ast`` counts bytes."""
    return len(text.encode()[: getattr(node, "col_offset", 0)].decode(errors="replace"))


def _error(text: str, column: int, why: str, hint: str | None = None) -> ConfigError:
    message = f"sweep.where: column {column + 1}, near {text[column : column + 20]!r}: {why}"
    return ConfigError(Finding("error", "SWP005", message, ("sweep.where",), hint))


def _described(node: ast.AST) -> str:
    """A node as people call it: ``Call`` is a call, ``IfExp`` an if."""
    return {
        "Call": "a call",
        "Subscript": "a [ ] behind a key",
        "Lambda": "a lambda",
        "IfExp": "an if",
        "NamedExpr": ":=",
        "JoinedStr": "an f-text",
        "Is": "is",
        "IsNot": "is not",
        "BitAnd": "&",
        "BitOr": "|",
        "BitXor": "^",
        "MatMult": "@",
        "LShift": "<<",
        "RShift": ">>",
    }.get(type(node).__name__, type(node).__name__)


def _allowed() -> str:
    return "comparisons, + - * / // % **, and, or, not, in, and keys like tp_size or gpu.count"
