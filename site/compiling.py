"""Compiles the planner's Python in Pyodide, as no other Python writes its byte code: site/compile.js runs this."""

import ast
import importlib
import json
import marshal
import sys
import zipfile
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

_DOCUMENTED = "sglang_hydra/rules/"
"""Where docstrings are shown: ``explain`` prints them."""


class _Asked:
    """Finds nothing, and notes what is looked for: modules too whose import fails."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        self.names.add(name)


def prepare(folder: str, library: str, site: str) -> str:
    """Answers ``folder/questions.json`` with ``folder/packages`` and the standard library in the archive ``library``.
    Compiles the modules that this imports below ``folder/compiled``. Returns their names."""
    root = Path(folder)
    sys.path.insert(0, str(root / "packages"))
    sys.meta_path.insert(0, asked := _Asked())
    for name in ("page_late", "page_release"):
        importlib.import_module(name)
    answer = importlib.import_module("sglang_hydra.cli.answers").answer
    for question in json.loads((root / "questions.json").read_text(encoding="utf-8")):
        answer(json.dumps(question))
    used = sorted({*sys.modules, *asked.names})
    with zipfile.ZipFile(library) as archive:
        of_library = {name: archive.read(name) for name in archive.namelist() if name.endswith(".py")}
    for name in used:
        for file in (f"{name.replace('.', '/')}.py", f"{name.replace('.', '/')}/__init__.py"):
            own = root / "packages" / file
            if own.is_file():
                _compile(own.read_bytes(), f"{site}/{file}", root / "compiled" / "packages" / f"{file}c")
            elif file in of_library:
                _compile(of_library[file], f"{library}/{file}", root / "compiled" / "library" / f"{file}c")
    return json.dumps(used)


def _compile(source: bytes, name: str, target: Path) -> None:
    tree = ast.parse(source, name)
    if _DOCUMENTED not in name:
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                _shorten(node)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(MAGIC_NUMBER + bytes(12) + marshal.dumps(compile(tree, name, "exec", dont_inherit=True)))


def _shorten(node: Any) -> None:
    """Shortens a docstring. None would not do: of a dataclass without one Python makes it, which takes long."""
    if ast.get_docstring(node, clean=False):
        node.body[0].value.value = "-"
