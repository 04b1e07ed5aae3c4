"""What surrounds the arguments of one release: environment variables that it reads, pages that its server has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from releases.values import Unknown, evaluate, scope_of
from releases.wheel import Wheel

SERVER = "sglang.srt.entrypoints.http_server"
_VARIABLE = re.compile(r"""["'](SGL(?:ANG)?_[A-Z0-9_]+)["']|^    (SGL(?:ANG)?_[A-Z0-9_]+) = Env\w+\(""", re.MULTILINE)
_METHODS = ("get", "post", "put", "delete", "patch")


def read_variables(wheel: Wheel) -> list[str]:
    """Every SGLANG_* and SGL_* name that the server's sources spell out, sorted."""
    found: set[str] = set()
    for _, source in wheel.sources("sglang/srt"):
        found.update(quoted or declared for quoted, declared in _VARIABLE.findall(source))
    return sorted(name for name in found if not name.endswith("_"))


def read_pages(wheel: Wheel) -> list[str]:
    """The server's pages with their methods, as ``GET /health``, sorted."""
    scope = scope_of(wheel, SERVER)
    found: set[str] = set()
    for node in ast.walk(scope.tree):
        for call in getattr(node, "decorator_list", []):
            if isinstance(call, ast.Call):
                found.update(_page(call, scope))
    return sorted(found)


def read_architectures(wheel: Wheel) -> list[str]:
    """The classes of models that the server registers: what EntryClass names in each file of srt/models, sorted."""
    found: set[str] = set()
    for path, source in wheel.sources("sglang/srt/models"):
        if "EntryClass" not in source:
            continue
        for node in ast.walk(ast.parse(source.lstrip("\ufeff"), path)):
            if isinstance(node, ast.Assign) and any(ast.unparse(target) == "EntryClass" for target in node.targets):
                found.update(part.id for part in ast.walk(node.value) if isinstance(part, ast.Name))
    return sorted(found)


def _page(call: ast.Call, scope: object) -> Iterator[str]:
    function = call.func
    if not isinstance(function, ast.Attribute) or not call.args or ast.unparse(function.value) not in ("app", "router"):
        return
    path = evaluate(call.args[0], scope)  # type: ignore[arg-type]
    if isinstance(path, Unknown):
        path = _of_environment(call.args[0])
    if not isinstance(path, str):
        return
    if function.attr in _METHODS:
        yield f"{function.attr.upper()} {path}"
    elif function.attr == "api_route":
        methods = next((evaluate(word.value, scope) for word in call.keywords if word.arg == "methods"), ["GET"])  # type: ignore[arg-type]
        for method in methods if isinstance(methods, list) else []:
            yield f"{method} {path}"


def _of_environment(node: ast.expr) -> str | None:
    """The default of ``os.environ.get(NAME, "/page")``."""
    if isinstance(node, ast.Call) and len(node.args) == 2 and isinstance(node.args[1], ast.Constant):
        return str(node.args[1].value)
    return None
