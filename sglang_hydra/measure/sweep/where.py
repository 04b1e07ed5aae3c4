"""Evaluates ``sweep.where``, a constraint on points. Parses it with ``ast`` and computes it; never executes it.

It allows comparisons, arithmetic on numbers, ``and``, ``or``, ``not``, ``in`` and ``not in`` over the keys of a plan. A
key has its planned value at a point, not the typed one."""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.compose.schema import NODES
from sglang_hydra.fit.result import Fit, gib
from sglang_hydra.planning.plan import Plan
from sglang_hydra.show.key_help import key_of, keys
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import value_at
from sglang_hydra.text.words import nearest, short

Lookup = Callable[[str], Any]
"""Returns the value of a key at one point."""

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
_SIGNS = {*_ARITHMETIC, *_COMPARED, ast.And, ast.Or, ast.Not, ast.USub, ast.UAdd}
_ALLOWED = "comparisons, + - * / // % **, and, or, not, in, and keys like tp_size or gpu.count"
_INSTEAD: Mapping[type[ast.AST], str] = {
    ast.Invert: "not",
    ast.BitAnd: "and, or",
    ast.BitOr: "and, or",
    **dict.fromkeys((ast.Is, ast.IsNot), "== and != compare"),
}
_ELSEWHERE = (("&&", "and"), ("||", "or"), ("!", "not"), ("=", "=="))


class Uncomputable(Exception):
    """The constraint has no value for this point; the text says why."""


class Where:
    """A parsed constraint. ``keys`` maps the keys in it to their columns, in order."""

    def __init__(self, text: str, node: ast.expr, keys: Mapping[str, int]) -> None:
        self.text = text
        self.keys = keys
        self._node = node

    def holds(self, lookup: Lookup) -> bool:
        """Returns whether a point meets it. Raises Uncomputable if a key has no suitable value there."""
        value = _value(self._node, lookup)
        if not isinstance(value, bool):
            raise Uncomputable(f"it gives {value!r}, neither true nor false")
        return value


def read_where(text: str) -> Where:
    """Parses a constraint. Raises ConfigError, with the column, for an invalid one."""
    text = text.replace("\n", " ").strip()
    if len(text) > _LONGEST:
        raise _error(text, 0, f"it is longer than {_LONGEST} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's warnings on code are not for a typed constraint
            tree = ast.parse(text, mode="eval")
    except SyntaxError as failure:
        raise _unreadable(text, failure) from None
    except (RecursionError, MemoryError, ValueError) as failure:
        why = f"{type(failure).__name__}: {failure}" if isinstance(failure, ValueError) else "it is nested too deeply"
        raise _error(text, 0, why) from None
    keys: dict[str, int] = {}
    _check(tree.body, keys, text, must_be_true=True)
    return Where(text, tree.body, keys)


def _check(node: ast.expr, keys: dict[str, int], text: str, *, must_be_true: bool = False, depth: int = 0) -> None:
    """Raises ConfigError, with what to type, for anything that is not part of a constraint; collects its keys in
    ``keys``. ``must_be_true`` also refuses numbers, texts and lists, which are neither true nor false."""

    def refuse(why: str, hint: str | None = None) -> ConfigError:
        return _error(text, _column(text, node), why, hint)

    kind = _never_true(node) if must_be_true else ""
    if kind:
        hint = "and, or" if kind == "a list" else "a comparison, such as tp_size == 8"
        raise refuse(f"{kind} is neither true nor false", hint)
    if depth > _DEEPEST:
        raise refuse("it is nested too deeply")
    if isinstance(node, ast.Constant):
        if not (node.value is None or isinstance(node.value, (bool, int, float, str))):
            raise refuse(f"{node.value!r} is no number, text, true, false or null")
        if isinstance(node.value, int) and abs(node.value) > _LARGEST:
            raise refuse("the number is too large")
    elif isinstance(node, (ast.Name, ast.Attribute)):
        key = _key(node)
        if not key:
            raise refuse("a key is written as gpu.count", _ALLOWED)
        if key.lower() not in _NAMED:
            keys.setdefault(key, _column(text, node))
    elif isinstance(node, (ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.List, ast.Tuple)):
        for sign in node.ops if isinstance(node, ast.Compare) else [getattr(node, "op", ast.And())]:
            if type(sign) not in _SIGNS:
                raise refuse(f"{_quoted(text, node)} is not part of a constraint", _INSTEAD.get(type(sign), _ALLOWED))
        of_truths = isinstance(node, ast.BoolOp) or isinstance(getattr(node, "op", None), ast.Not)
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.expr):
                _check(part, keys, text, must_be_true=of_truths, depth=depth + 1)
    else:
        raise refuse(f"{_quoted(text, node)} is not part of a constraint", _ALLOWED)


def _key(node: ast.expr) -> str:
    """Returns the key of a node, as ``gpu.count``; empty for other expressions."""
    if isinstance(node, ast.Attribute):
        inner = _key(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return node.id if isinstance(node, ast.Name) else ""


def _value(node: ast.expr, lookup: Lookup) -> Any:
    """Computes an expression that ``_check`` has accepted."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(item, lookup) for item in node.elts]
    if isinstance(node, ast.BoolOp):
        ends_at = isinstance(node.op, ast.Or)
        return ends_at if any(_truth(_value(part, lookup)) is ends_at for part in node.values) else not ends_at
    if isinstance(node, ast.UnaryOp):
        inner = _value(node.operand, lookup)
        if isinstance(node.op, ast.Not):
            return not _truth(inner)
        return -_number(inner, "-") if isinstance(node.op, ast.USub) else _number(inner, "+")
    if isinstance(node, ast.BinOp):
        return _computed(*_ARITHMETIC[type(node.op)], _value(node.left, lookup), _value(node.right, lookup))
    if isinstance(node, ast.Compare):
        parts = pairwise([node.left, *node.comparators])
        return all(
            _compared(*_COMPARED[type(kind)], _value(before, lookup), _value(after, lookup))
            for kind, (before, after) in zip(node.ops, parts, strict=True)
        )
    key = _key(node)
    return _NAMED[key.lower()] if key.lower() in _NAMED else lookup(key)


def _never_true(node: ast.expr) -> str:
    """Returns the kind of a node that is never true or false, such as ``a number``; empty for others."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return "a list"
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return "a number"
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str)):
        return "" if isinstance(node.value, bool) else "a text" if isinstance(node.value, str) else "a number"
    return ""


def _computed(sign: str, compute: Callable[[object, object], object], left: Any, right: Any) -> object:
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


def _compared(sign: str, compare: Callable[[object, object], object], left: object, right: object) -> bool:
    if sign in ("==", "!="):
        return bool(compare(left, right))
    if left is None or (right is None and "in" not in sign):
        raise Uncomputable(f"{left!r} {sign} {right!r}: one of them is not known")
    try:
        return bool(compare(left, right))
    except TypeError:
        raise Uncomputable(f"{left!r} {sign} {right!r} cannot be compared") from None


def _number(value: object, sign: str) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise Uncomputable(f"{sign} needs numbers, and has {'a value that is not known' if value is None else repr(value)}")


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise Uncomputable(f"and, or and not need true or false, and have {value!r}")


def _unreadable(text: str, failure: SyntaxError) -> ConfigError:
    for wrong, right in _ELSEWHERE:
        found = re.search(rf"(?<![=!<>]){re.escape(wrong)}(?!=)", text)
        if found:
            return _error(text, found.start(), f"{wrong} is written {right} here", right)
    # Python gives no offset for a missing end.
    column = failure.offset - 1 if failure.offset else len(text)
    return _error(text, column, failure.msg or "it cannot be read", _ALLOWED)


def _quoted(text: str, node: ast.AST) -> str:
    return short(ast.get_source_segment(text, node) or text, 40)


def _column(text: str, node: ast.AST) -> int:
    """Returns the column of a node in characters; ``ast`` counts bytes."""
    return len(text.encode()[: getattr(node, "col_offset", 0)].decode(errors="replace"))


def _error(text: str, column: int, why: str, hint: str | None = None) -> ConfigError:
    message = f"sweep.where: column {column + 1}, near {text[column : column + 20]!r}: {why}"
    return ConfigError(Finding("error", "SWP005", message, ("sweep.where",), hint))


_FIT: Mapping[str, Callable[[Fit], Any]] = {
    "fits": lambda fit: fit.fits,
    "tight": lambda fit: fit.tight,
    "gpus": lambda fit: fit.gpus,
    "replicas": lambda fit: fit.replicas,
    "kv_tokens": lambda fit: fit.kv_tokens,
    "running": lambda fit: fit.running,
    "weights_gib": lambda fit: gib(fit.weights.total),
    "left_gib": lambda fit: gib(fit.left),
    "error_gib": lambda fit: fit.error_gib,
    "bytes_per_token": lambda fit: None if fit.kv is None else fit.kv.bytes_per_token,
    "mem_fraction_low": lambda fit: None if fit.interval is None else fit.interval.low,
    "mem_fraction_high": lambda fit: None if fit.interval is None else fit.interval.high,
}
"""The results of the memory fit for one GPU, in addition to the settings of the ``fit`` node."""


def check_keys(where: Where) -> None:
    """Raises ConfigError for a key that no plan has."""
    for key, column in where.keys.items():
        if problem := _problem(key):
            raise _error(where.text, column, *problem)


def value_of(key: str, plan: Plan, bench: Mapping[str, object]) -> Any:
    """Returns the value of a key that ``check_keys`` has accepted; None if it is unset or unknown."""
    if key in EVERY:
        return plan.values[key]
    node, *rest = key.split(".")
    if node == "fit" and rest[0] in _FIT:
        return None if plan.fit is None else _FIT[rest[0]](plan.fit)
    if key == "gpu.compute_capability":
        capability = plan.gpu.compute_capability
        return float(f"{capability[0]}.{capability[1]}") if capability else None
    if node == "gpu":
        more = plan.gpu.extra.get(rest[0], getattr(plan.nodes.gpu, rest[0], None))
        return getattr(plan.gpu, rest[0], more)
    if node == "model" and rest[0] == "config":
        return value_at({"model": {"config": plan.model.config}}, key)
    return value_at({**plan.nodes.plain, "bench": bench}, key)


def _problem(key: str) -> tuple[str, str | None] | None:
    """Returns why no plan has this key, and what to type; None for a valid key."""
    if key in EVERY:
        return None
    node, *rest = key.split(".")
    if node in EVERY or (rest and node in keys()):
        return f"{node} is one value, and has no key {rest[0]}", node
    if node in ("sweep", "ignore"):
        return f"{node} says how all points are planned, not one point", None
    if node not in NODES:
        near = nearest(node, [*EVERY, *NODES])
        hint = f"did you mean {near}?" if near else f"'{key}' in quotes is a text"
        return f"{node} is neither an argument of SGLang nor a key of a plan", hint
    if (node == "fit" and rest and rest[0] in _FIT) or key_of(key) is not None:
        return None
    inside = [name for name in keys() if name.startswith(f"{key}.")]
    if inside:
        return f"{key} has keys and no value of its own", inside[0]
    path = key.rpartition(".")[0]
    while not (beside := [known[len(path) + 1 :] for known in keys() if known.startswith(f"{path}.")]):
        path = path.rpartition(".")[0]
    name = key[len(path) + 1 :]
    near = nearest(name, [*beside, *(_FIT if node == "fit" else ())])
    return f"{path} has no key {name}", f"did you mean {path}.{near}?" if near else f"{path}: {', '.join(beside)}"
