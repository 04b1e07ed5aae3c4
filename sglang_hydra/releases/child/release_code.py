"""Analyses each function of the release, and each of its statements, before it runs."""

from __future__ import annotations

import ast
import dis
import functools
import os
from types import CodeType

from . import source

_SETTERS = ("setattr", "__setattr__")
_ITEMS = ("BINARY_SUBSCR", "BINARY_SLICE")


def code_of(code: CodeType, package: str) -> Code | None:
    """Returns the function of the release with this code; None for a module, a class and a comprehension."""
    is_other = not code.co_filename.startswith(package) or code.co_name.startswith(("<", "__getattr"))
    return None if is_other else Code(code, package)


class Code:
    """The properties of a function that are known before it runs."""

    def __init__(self, code: CodeType, package: str) -> None:
        self.place = os.path.relpath(code.co_filename, os.path.dirname(package.rstrip("/")))
        self.name = code.co_name
        self.code = code
        self.heads: dict[ast.stmt, Head] = {}
        self.is_quiet: bool | None = None

    @functools.cached_property
    def source(self) -> source.Source:
        return source.source_of_function(self.code)

    @functools.cached_property
    def statements(self) -> dict[int, ast.stmt]:
        """Returns the innermost statement of each line."""
        node = self.source.functions.get(self.code.co_firstlineno)
        return source.statements(node) if node is not None and node.name == self.name else {}

    @functools.cached_property
    def counts(self) -> bool:
        """Returns whether a variable gets several values or is computed, so that lines must be traced."""
        made = list(dis.get_instructions(self.code))
        stored = [each.argval for each in made if each.opname == "STORE_FAST"]
        is_computed = any(
            each.opname.startswith(("BINARY_", "INPLACE_")) and each.opname not in _ITEMS for each in made
        )
        return len(stored) > len(set(stored)) or bool(stored and is_computed)

    def names_one_of(self, fields: frozenset[str]) -> bool:
        """Returns whether a statement assigns to a field; if none does, no line must be traced."""
        words = _words(self.code)
        if fields.isdisjoint(words) and words.isdisjoint(_SETTERS):
            return False  # its source need not be read
        heads = map(self.head, set(self.statements.values()))
        return any(each.dynamic or not fields.isdisjoint({*each.named, *each.writes}) for each in heads)

    def head(self, node: ast.stmt) -> Head:
        if node not in self.heads:
            self.heads[node] = Head(node)
        return self.heads[node]


class Head:
    """The properties of a statement that are known before it runs: its names, assignments, writes and reads."""

    def __init__(self, node: ast.stmt) -> None:
        expressions = source.head(node)
        targets = source.targets(node)
        calls = [each for item in expressions for each in ast.walk(item) if isinstance(each, ast.Call)]
        names = [each.args[-2] for each in calls if source.called(each) in _SETTERS and len(each.args) > 1]
        self.named = source.named(node)
        self.locals = [target.id for target in targets if isinstance(target, ast.Name)]
        changed = [*targets, *(getattr(call.func, "value", None) for call in calls)]  # x.f = v, x.f[k] = v, x.f.add(v)
        self.writes = [name for each in changed for name in source.chain(each)]
        self.writes_within = any(isinstance(each, (ast.Attribute, ast.Subscript)) for each in targets) or bool(names)
        self.writes += [str(each.value) for each in names if isinstance(each, ast.Constant)]
        self.dynamic = [each for each in names if not isinstance(each, ast.Constant)]
        self.read = [item for item in expressions if not {item, *getattr(item, "elts", ())} & {*targets}]
        self.read += targets if isinstance(node, ast.AugAssign) else []
        indices = (each.slice for each in targets if isinstance(each, ast.Subscript))
        self.items = [each for each in indices if isinstance(each, ast.Name)]
        self.read += self.items
        self.parts = [(each.attr, each) for each in targets if isinstance(each, ast.Attribute)]

    @functools.cached_property
    def nodes(self) -> dict[str, ast.expr]:
        """Returns the read expressions by their text."""
        return {source.text_of(each): each for each in source.operands(self.read)}

    @functools.cached_property
    def before(self) -> list[tuple[str, ast.expr]]:
        return [(text, each) for text, each in self.nodes.items() if not _has_call(each)]

    @functools.cached_property
    def answered(self) -> list[tuple[str, ast.expr]]:
        """Returns the results of its calls."""
        return [item for item in self.nodes.items() if _has_call(item[1])]

    @functools.cached_property
    def after(self) -> list[tuple[str, ast.expr]]:
        """Returns the expressions to read after its calls have returned."""
        attributes = [item for item in self.nodes.items() if isinstance(item[1], ast.Attribute)]
        return [*self.answered, *(item for item in attributes if item not in self.answered)] if self.answered else []


def _words(code: CodeType) -> set[str]:
    """Returns the names and texts in a function's code."""
    texts = {each for each in code.co_consts if isinstance(each, str)}
    lists = (each for each in code.co_consts if isinstance(each, tuple))
    return {*code.co_names, *texts, *(each for item in lists for each in item if isinstance(each, str))}


def _has_call(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Call) for each in ast.walk(node))
