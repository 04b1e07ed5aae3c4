"""Reads a release's source at a line: its statement, the conditions around it, its comment.

The parent quotes with it too: nothing here runs a release."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_ASSIGNS = (ast.Assign, ast.AnnAssign, ast.AugAssign)


class Guard(NamedTuple):
    """A condition that held when a line ran: ``test`` was true, or false with ``holds`` False. With ``is_around`` the
    line is in its body; otherwise the condition would have left the function or the loop before."""

    node: ast.stmt
    test: ast.expr
    holds: bool
    is_around: bool


class Source:
    """The ``tree`` of a file, or of one function in it. ``functions`` maps the first line of each function (that of its
    first decorator) to it, and ``tests`` the first line of each condition."""

    def __init__(self, tree: ast.AST, lines: Sequence[str]) -> None:
        self.lines = lines
        self.parents: dict[ast.AST, ast.AST] = {}
        self.tests: dict[int, ast.expr] = {}
        self.functions: dict[int, Function] = {}
        for node in ast.walk(tree):
            for inner in ast.iter_child_nodes(node):
                self.parents[inner] = node
            if isinstance(node, (ast.If, ast.While, ast.Assert)):
                self.tests[node.test.lineno] = node.test
            if isinstance(node, Function):
                self.functions[min([node.lineno, *(each.lineno for each in node.decorator_list)])] = node
        self._guards: dict[ast.AST, tuple[Guard, ...]] = {}

    def guards(self, node: ast.AST) -> tuple[Guard, ...]:
        """Returns the conditions under which a statement runs in its function, the innermost first."""
        if node not in self._guards:
            self._guards[node] = tuple(self._found(node))
        return self._guards[node]

    def _found(self, node: ast.AST) -> Iterator[Guard]:
        if isinstance(node, ast.Assert):
            yield Guard(node, node.test, False, True)
        while not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module, ast.Lambda)):
            above = self.parents[node]
            if isinstance(above, (ast.If, ast.While)) and node is not above.test:
                yield Guard(above, above.test, node not in above.orelse, True)
            for block in ("body", "orelse", "finalbody"):
                sequence = getattr(above, block, None)
                before = sequence[: sequence.index(node)] if isinstance(sequence, list) and node in sequence else []
                for each in reversed(before):
                    if isinstance(each, ast.If) and not each.orelse and isinstance(each.body[-1], LEAVES):
                        yield Guard(each, each.test, False, False)
            node = above

    def function_at(self, line: int) -> Function | None:
        """Returns the innermost function around a line."""
        around = [each for each in self.functions.values() if each.lineno <= line <= (each.end_lineno or 0)]
        return max(around, key=lambda each: each.lineno, default=None)

    def comment(self, line: int) -> str:
        """Returns the comment above a line, and the one after it."""
        found: list[str] = []
        at = line - 2
        while at >= 0 and self.lines[at].lstrip().startswith("#"):
            found.insert(0, self.lines[at].strip().lstrip("# "))
            at -= 1
        behind = self.lines[line - 1].partition("  # ")[2] if line <= len(self.lines) else ""
        return " ".join(filter(None, [*found, behind.strip()]))


@functools.cache
def lines_of(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:
        return file.read().split("\n")


@functools.cache
def source_of(text: str) -> Source:
    return Source(ast.parse(text), text.split("\n"))


def source_of_function(code: CodeType) -> Source:
    """Returns the source of one function, because reading a whole file takes long and much memory."""
    lines, first = lines_of(code.co_filename), code.co_firstlineno
    indent = _indent(lines[first - 1])
    head = "if 1:\n" if indent else ""
    for end in range(_last_line(code), len(lines) + 1):
        if end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > indent):
            continue
        try:
            tree = ast.parse(head + "\n".join(lines[first - 1 : end]))
        except SyntaxError:  # the last statement continues
            continue
        return Source(ast.increment_lineno(tree, first - (2 if indent else 1)), lines)
    return Source(ast.Module([], []), lines)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _last_line(code: CodeType) -> int:
    inner = [_last_line(each) for each in code.co_consts if isinstance(each, CodeType)]
    return max([code.co_firstlineno, *inner, *(line for _, _, line in code.co_lines() if line)])


def statements(function: Function) -> dict[int, ast.stmt]:
    """Returns the innermost statement of each line of a function's body; of a compound one only its head."""
    found: dict[int, ast.stmt] = {}

    def take(body: Sequence[ast.stmt]) -> None:
        for each in body:
            for line in range(each.lineno, (each.end_lineno or each.lineno) + 1):
                found[line] = each
            for block in ("body", "orelse", "finalbody"):
                take(getattr(each, block, ()))
            for handler in getattr(each, "handlers", ()):
                take(handler.body)
            for case in getattr(each, "cases", ()):
                take(case.body)

    take(function.body)
    return found


def head(node: ast.stmt) -> list[ast.expr]:
    """Returns the expressions that a statement evaluates itself, without the body of a compound one."""
    if isinstance(node, Function | ast.ClassDef):
        return []
    found = [item for item in ast.iter_child_nodes(node) if isinstance(item, ast.expr)]
    return found + [item.context_expr for item in getattr(node, "items", ())]


def named(node: ast.stmt) -> dict[str, tuple[int, ast.expr]]:
    """Returns the names to which a statement assigns, with the line and the value: ``x.name = v``, ``{"name": v}``,
    ``f(name=v)``, ``d["name"] = v``, ``setattr(x, "name", v)``."""
    found: dict[str, tuple[int, ast.expr]] = {}
    for expression in head(node):
        for inner in ast.walk(expression):
            if isinstance(inner, ast.Dict):
                for key, value in zip(inner.keys, inner.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        found[key.value] = (key.lineno, value)
            elif isinstance(inner, ast.keyword) and inner.arg:
                found[inner.arg] = (inner.value.lineno, inner.value)
            elif isinstance(inner, ast.Call) and called(inner) == "setattr" and len(inner.args) == 3:
                found[getattr(inner.args[1], "value", "")] = (inner.lineno, inner.args[2])
    if isinstance(node, _ASSIGNS) and node.value is not None:
        for target in targets(node):
            if isinstance(target, ast.Attribute):
                found[target.attr] = (node.lineno, node.value)
            elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                found[str(target.slice.value)] = (node.lineno, node.value)
    return found


def targets(node: ast.stmt) -> list[ast.expr]:
    """Returns the targets of an assignment, each element of a tuple."""
    listed = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [each for item in listed if item for each in getattr(item, "elts", [item])]


def called(node: ast.Call) -> str:
    """Returns the last part of the name of a called function."""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def text_of(node: ast.AST) -> str:
    """Returns the expression on one line."""
    return " ".join(ast.unparse(node).split())


def attributes(node: ast.AST) -> set[str]:
    """Returns the names of the attributes in an expression."""
    return {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def chain(node: ast.AST | None) -> Iterator[str]:
    """Yields the attributes that lead to an expression, last one first: of ``x.f[k].g`` g and f."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute):
            yield node.attr
        node = node.value


def operands(expressions: Sequence[ast.expr]) -> list[ast.expr]:
    """Returns the outermost names, attributes and calls in expressions that have a value of their own."""
    found: list[ast.expr] = []
    skipped: set[ast.AST] = set()
    for expression in expressions:
        for node in ast.walk(expression):
            if isinstance(node, ast.Call):
                skipped.add(node.func)
                found.append(node)
                if isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.Call):
                    found.append(node.func.value)
            elif isinstance(node, ast.Attribute):
                skipped.add(node.value)
                if node not in skipped:
                    found.append(node)
            elif isinstance(node, ast.Name) and node not in skipped:
                found.append(node)
    return found
