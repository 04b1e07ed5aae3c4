"""What an expression in a released module stands for, computed from the syntax: literals, names, lists, enums.

Anything else is UNKNOWN: nothing of the release is run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from releases.wheel import Wheel

_DEEP = 40
_LARGEST_INDEX = 2**63 - 1
"""sys.maxsize on every machine that serves models."""


class Unknown:
    """A value that only running the release could tell; ``source`` is how it is written there."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __repr__(self) -> str:
        return f"Unknown({self.source!r})"


class Missing:
    """No value: what a field without a default has."""


class Scope:
    """One module of a wheel, and the names in it."""

    def __init__(self, wheel: Wheel, name: str) -> None:
        self.wheel = wheel
        self.name = name
        tree = wheel.module(name)
        self.tree = tree if tree is not None else ast.Module([], [])
        self.assigned: dict[str, ast.expr] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[str, ast.FunctionDef] = {}
        self.imported: dict[str, tuple[str, str | None]] = {}
        self.starred: list[str] = []
        for node in self.tree.body:
            self._note(node)

    def _note(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self.assigned[target.id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            self.assigned[node.target.id] = node.value
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            before = self.assigned.get(node.target.id)
            if before is not None:
                self.assigned[node.target.id] = ast.BinOp(before, node.op, node.value)
        elif isinstance(node, ast.ClassDef):
            self.classes[node.name] = node
        elif isinstance(node, ast.FunctionDef):
            self.functions[node.name] = node
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                module = self.wheel.module_name(self.name, node.level, node.module)
                if alias.name == "*":
                    self.starred.append(module)
                else:
                    self.imported[alias.asname or alias.name] = (module, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                self.imported[alias.asname or alias.name.partition(".")[0]] = (alias.name, None)
        elif isinstance(node, (ast.If, ast.Try)):
            for inner in node.body:
                self._note(inner)

    def find(self, name: str, depth: int = 0) -> tuple[Scope, ast.expr | ast.ClassDef | ast.FunctionDef] | None:
        """Where ``name`` is really defined, through the imports between the wheel's modules."""
        for table in (self.assigned, self.classes, self.functions):
            if name in table:
                return self, table[name]  # type: ignore[index]
        if name in self.imported and depth < _DEEP:
            module, inner = self.imported[name]
            if inner is not None and self.wheel.module(module) is not None:
                return scope_of(self.wheel, module).find(inner, depth + 1)
        for module in self.starred if depth < _DEEP else ():
            found = scope_of(self.wheel, module).find(name, depth + 1) if self.wheel.module(module) else None
            if found is not None:
                return found
        return None


def scope_of(wheel: Wheel, name: str) -> Scope:
    """The scope of a module; one for all who ask."""
    made = wheel.scopes.get(name)
    if made is None:
        made = wheel.scopes[name] = Scope(wheel, name)
    return made


def evaluate(node: ast.expr, scope: Scope, local: Mapping[str, ast.expr] | None = None, depth: int = 0) -> Any:
    """The value of an expression in JSON's types and sets, or Unknown; ``local``: the names of its function."""
    if depth > _DEEP:
        return Unknown(ast.unparse(node))
    handler = _HANDLERS.get(type(node))
    value = handler(node, scope, local or {}, depth + 1) if handler else Unknown(ast.unparse(node))
    return Unknown(ast.unparse(node)) if isinstance(value, Unknown) else value


def _constant(node: Any, scope: Scope, local: Any, depth: int) -> Any:
    return node.value


def _items(node: Any, scope: Scope, local: Any, depth: int) -> Any:
    items: list[Any] = []
    for element in node.elts:
        starred = isinstance(element, ast.Starred)
        value = evaluate(element.value if starred else element, scope, local, depth)
        if isinstance(value, Unknown):
            return value
        items += list(value) if starred else [value]
    return set(items) if isinstance(node, ast.Set) else items


def _mapping(node: ast.Dict, scope: Scope, local: Any, depth: int) -> Any:
    made = {}
    for key, item in zip(node.keys, node.values, strict=True):
        name = evaluate(key, scope, local, depth) if key is not None else Unknown("**")
        if isinstance(name, (Unknown, list, dict, set)):
            return Unknown("")
        made[name] = evaluate(item, scope, local, depth)
    return made


def _named(node: ast.Name, scope: Scope, local: Mapping[str, ast.expr], depth: int) -> Any:
    if node.id in local:
        return evaluate(local[node.id], scope, {}, depth)
    found = scope.find(node.id)
    if found is None or not isinstance(found[1], ast.expr):
        return Unknown(node.id)
    return evaluate(found[1], found[0], {}, depth)


def _attribute(node: ast.Attribute, scope: Scope, local: Any, depth: int) -> Any:
    """``Backend.FULL``, ``Mode.AUTO.value``, ``ServerArgs.port``."""
    if node.attr in ("value", "name") and isinstance(node.value, ast.Attribute):
        if node.attr == "name":
            return node.value.attr
        return evaluate(node.value, scope, local, depth)
    if ast.unparse(node) == "sys.maxsize":
        return _LARGEST_INDEX
    if not isinstance(node.value, ast.Name):
        return Unknown("")
    found = scope.find(node.value.id)
    if found is None or not isinstance(found[1], ast.ClassDef):
        return Unknown("")
    values = {name: value for name, value in class_values(found[1]) if value is not None}
    value = values.get(node.attr)
    return Unknown("") if value is None else evaluate(value, found[0], values, depth)


def _sum(node: ast.BinOp, scope: Scope, local: Any, depth: int) -> Any:
    left, right = (evaluate(side, scope, local, depth) for side in (node.left, node.right))
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return Unknown("")
    if isinstance(node.op, ast.BitOr) and isinstance(left, set) and isinstance(right, set):
        return left | right
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        operation = {ast.Add: "__add__", ast.Sub: "__sub__", ast.Mult: "__mul__", ast.Pow: "__pow__"}.get(type(node.op))
        return getattr(left, operation)(right) if operation else Unknown("")
    if isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, (str, list)):
        return left + right
    return Unknown("")


def _negated(node: ast.UnaryOp, scope: Scope, local: Any, depth: int) -> Any:
    value = evaluate(node.operand, scope, local, depth)
    return -value if isinstance(node.op, ast.USub) and isinstance(value, (int, float)) else Unknown("")


def _element(node: ast.Subscript, scope: Scope, local: Any, depth: int) -> Any:
    held, index = evaluate(node.value, scope, local, depth), evaluate(node.slice, scope, local, depth)
    try:
        return held[index] if isinstance(held, (list, dict)) and not isinstance(index, Unknown) else Unknown("")
    except (LookupError, TypeError):
        return Unknown("")


def _called(node: ast.Call, scope: Scope, local: Any, depth: int) -> Any:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name in ("list", "tuple", "sorted", "set", "frozenset", "dict"):
        if not node.args:
            return {"set": set, "frozenset": set, "dict": dict}.get(name, list)()
        value = _iterated(node.args[0], scope, local, depth)
        if isinstance(value, Unknown):
            return value
        return set(value) if name in ("set", "frozenset") else sorted(value) if name == "sorted" else list(value)
    if isinstance(node.func, ast.Attribute) and node.func.attr == "keys" and not node.args:
        return _iterated(node.func.value, scope, local, depth)
    if isinstance(node.func, ast.Attribute) and node.func.attr == "lower" and not node.args:
        value = evaluate(node.func.value, scope, local, depth)
        return value.lower() if isinstance(value, str) else Unknown("")
    found = scope.find(name) if name else None
    if found is not None and isinstance(found[1], ast.FunctionDef):
        return _returned(found[1], found[0], depth)
    return Unknown("")


def _returned(function: ast.FunctionDef, scope: Scope, depth: int) -> Any:
    """What a function without arguments gives: the last of its returns, the one that reads the table itself."""
    if function.args.args:
        return Unknown("")
    inside = Scope(scope.wheel, scope.name)
    for node in ast.walk(function):
        if isinstance(node, (ast.ImportFrom, ast.Import)):
            inside._note(node)
    returns = [node for node in function.body if isinstance(node, ast.Return) and node.value is not None]
    value = returns[-1].value if returns else None
    return evaluate(value, inside, {}, depth) if value is not None else Unknown("")


def _iterated(node: ast.expr, scope: Scope, local: Any, depth: int) -> Any:
    """The elements of what an expression stands for: an enum's members by value."""
    if isinstance(node, ast.Name) and node.id not in local:
        found = scope.find(node.id)
        if found is not None and isinstance(found[1], ast.ClassDef):
            return [evaluate(value, found[0], {}, depth) for _, value in class_values(found[1]) if value is not None]
    value = evaluate(node, scope, local, depth)
    return value if isinstance(value, (list, set, dict)) else Unknown("")


def _comprehended(node: ast.ListComp, scope: Scope, local: Any, depth: int) -> Any:
    """``[item.name.lower() for item in Enum]`` and the like: one loop without a condition."""
    loop = node.generators[0]
    if len(node.generators) > 1 or loop.ifs or not isinstance(loop.target, ast.Name):
        return Unknown("")
    written = ast.unparse(node.elt)
    variable = loop.target.id
    members = _members(loop.iter, scope, local, depth)
    if members is None:
        return Unknown("")
    forms: dict[str, Callable[[str, Any], Any]] = {
        variable: lambda name, value: value,
        f"{variable}.value": lambda name, value: value,
        f"{variable}.name": lambda name, value: name,
        f"{variable}.name.lower()": lambda name, value: name.lower(),
        f"{variable}.value.lower()": lambda name, value: str(value).lower(),
    }
    form = forms.get(written)
    return [form(name, value) for name, value in members] if form else Unknown("")


def _members(node: ast.expr, scope: Scope, local: Any, depth: int) -> list[tuple[str, Any]] | None:
    """Name and value of each member of an enum, also where a function without arguments gives the enum's list."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        found = scope.find(node.func.id)
        if found is None or not isinstance(found[1], ast.FunctionDef):
            return None
        inside = Scope(scope.wheel, found[0].name)
        for inner in ast.walk(found[1]):
            if isinstance(inner, ast.ImportFrom):
                inside._note(inner)
        returns = [item.value for item in found[1].body if isinstance(item, ast.Return)]
        value = returns[-1] if returns else None
        if isinstance(value, ast.Call) and value.args:
            return _members(value.args[0], inside, {}, depth)
        return None
    if not isinstance(node, ast.Name):
        return None
    found = scope.find(node.id)
    if found is None or not isinstance(found[1], ast.ClassDef):
        return None
    values = [
        (name, evaluate(value, found[0], {}, depth)) for name, value in class_values(found[1]) if value is not None
    ]
    return [(name, name.lower() if isinstance(value, Unknown) else value) for name, value in values]


def class_values(node: ast.ClassDef) -> list[tuple[str, ast.expr | None]]:
    """The names that a class body assigns, in order, with their expressions; None where there is only a type."""
    found: list[tuple[str, ast.expr | None]] = []
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            found.append((item.target.id, item.value))
        elif isinstance(item, ast.Assign):
            found += [(target.id, item.value) for target in item.targets if isinstance(target, ast.Name)]
    return found


_HANDLERS: dict[type, Callable[..., Any]] = {
    ast.Constant: _constant,
    ast.List: _items,
    ast.Tuple: _items,
    ast.Set: _items,
    ast.Dict: _mapping,
    ast.Name: _named,
    ast.Attribute: _attribute,
    ast.BinOp: _sum,
    ast.UnaryOp: _negated,
    ast.Subscript: _element,
    ast.Call: _called,
    ast.ListComp: _comprehended,
}
