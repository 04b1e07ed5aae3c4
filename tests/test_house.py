"""The rooms of the package: their layers, and what must stay where earlier versions and other programs look for it."""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import sglang_hydra

ROOT = Path(__file__).parents[1]
MOST_LINES = 60  # of a function
ROOT_FILES = {"__init__.py", "__main__.py", "py.typed", "start.py"}


def test_no_room_imports_upward_and_no_modules_import_each_other_in_a_circle() -> None:
    done = subprocess.run([sys.executable, "tools/house.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_plan_stays_within_so_many_files_and_crossings_of_rooms() -> None:
    """What is reached is held."""
    words = [sys.executable, "tools/crossings.py", "plan", "gpu=h200", "model=gpt_oss"]
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True)
    found = re.match(r"files: (\d+)\ncrossings: (\d+), from (\d+) places", done.stdout)
    assert found is not None, done.stdout + done.stderr
    files, calls, places = map(int, found.groups())
    assert (90 < files <= 110, 200 < calls <= 350, places <= 220) == (True, True, True), done.stdout


MOST_DEEP = 28  # modules in a chain


def imported_at_once(file: Path) -> set[str]:
    """The modules of the package that are imported when ``file`` is."""
    statements = list(ast.parse(file.read_text(encoding="utf-8")).body)
    names: set[str] = set()
    for node in statements:  # an if or a try adds its own
        if (isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test)) or isinstance(node, ast.Try):
            statements += [*node.body, *node.orelse]
        elif isinstance(node, ast.Import):
            names |= {item.name for item in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {str(node.module), *(f"{node.module}.{item.name}" for item in node.names)}
        elif isinstance(node, ast.ImportFrom):  # the code of the sealed child alone
            above = ".".join(file.relative_to(ROOT).parts[: -node.level])
            start = f"{above}.{node.module}" if node.module else above
            names |= {start, *(f"{start}.{item.name}" for item in node.names)}
    return names


def test_no_chain_of_imports_is_longer_than_so_many_modules() -> None:
    """The package itself is left out: every import names it."""
    files = {str(file.relative_to(ROOT)): file for file in (ROOT / "sglang_hydra").rglob("*.py")}
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): at for name, at in files.items()}
    imported = {name: (imported_at_once(at) & modules.keys()) - {name, "sglang_hydra"} for name, at in modules.items()}

    @functools.cache
    def chain(name: str) -> tuple[str, ...]:
        return (name, *max(map(chain, imported[name]), key=len, default=()))

    longest = max(map(chain, modules), key=len)
    assert 10 < len(longest) <= MOST_DEEP, longest


def test_the_root_of_the_package_has_no_other_files() -> None:
    assert {file.name for file in (ROOT / "sglang_hydra").iterdir() if file.is_file()} == ROOT_FILES


def test_each_room_says_what_belongs_there() -> None:
    for folder in (ROOT / "sglang_hydra").iterdir():
        if folder.is_dir() and folder.name not in ("__pycache__",):
            assert (import_module(f"sglang_hydra.{folder.name}").__doc__ or "").strip(), folder


def test_what_a_room_says_of_modules_and_files_is_there() -> None:
    """``a.b`` is a module of the package or a name in one; ``x.py`` stands beside the docstring that names it."""
    lost = []
    for file in (ROOT / "sglang_hydra").rglob("__init__.py"):
        room = ".".join(file.parent.relative_to(ROOT).parts)
        doc = import_module(room).__doc__ or ""
        files = re.findall(r"([a-z_/]+\.py)\b", doc)
        lost += [f"{room}: {name}" for name in files if not any((at / name).exists() for at in (file.parent, ROOT))]
        dotted = set(re.findall(r"``(?:sglang_hydra\.)?([a-z_]+(?:\.[a-z_]+)+)``", doc)) - set(files)
        lost += [f"{room}: {name}" for name in dotted if not is_there(f"sglang_hydra.{name}", f"{room}.{name}")]
    assert lost == []


def is_there(*names: str) -> bool:
    """Whether one of the names is a module, or is in one."""
    for name in names:
        above, _, last = name.rpartition(".")
        with contextlib.suppress(ImportError):
            if hasattr(import_module(above), last) or import_module(name):
                return True
    return False


@pytest.mark.parametrize("room", ["facts", "fit", "releases"])
def test_a_room_that_lists_its_modules_lists_each_of_them(room: str) -> None:
    rows = re.findall(
        r"^([a-z_]+(?:, [a-z_]+)*)  +\S", import_module(f"sglang_hydra.{room}").__doc__ or "", re.MULTILINE
    )
    listed = [name for row in rows for name in row.split(", ")]
    there = [
        path
        for path in (ROOT / "sglang_hydra" / room).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    ]
    assert sorted(listed) == sorted(path.stem for path in there if path.stem != "__init__")


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{file.relative_to(ROOT)}: {node.name} has {lines} lines"
        for folder in ("sglang_hydra", "hydra_plugins", "tools")
        for file in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (lines := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES
    ]
    assert long == []


def test_the_walks_of_the_architecture_name_files_and_fit_on_a_screen() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    walks = [part for part in page.split("\n## ") if part.startswith(("`plan", "`serve`", "`bench`"))]
    assert len(walks) == 3
    for walk in walks:
        assert len(walk.splitlines()) <= 24
        for name in re.findall(r"`([a-z_/]+\.py)`", walk):
            assert list((ROOT / "sglang_hydra").rglob(name)), name


def test_what_contributing_says_of_files_is_true() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| an? [\w ]+ \| (.+?) \|", page, re.MULTILINE)
    assert len(rows) == 9
    for edited in rows:
        assert len(re.findall(r"`", edited)) <= 4, f"more than two files: {edited}"
        for path in re.findall(r"`((?:conf|sglang_hydra)/[a-z_/.]+)", edited):
            assert (ROOT / path).exists(), path
    why = re.search(r"8192\?\*\*.+?Two files, under 100 lines:\s`(.+?)` has that rule, `(.+?)`", page, re.DOTALL)
    assert why is not None
    assert sum(len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in why.groups()) <= 100


def test_public_names_are_no_modules() -> None:
    for name in sglang_hydra.__all__:
        if name != "__version__":
            assert callable(getattr(sglang_hydra, name)), name


HYDRA_INTERNALS = [ROOT / "sglang_hydra" / "compose" / f"hydra_{name}.py" for name in ("internals", "jobs", "apps")]
FRAMES = {"_getframe", "currentframe", "f_back", "f_locals", "tb_frame", "getouterframes", "stack"}


def private_names() -> set[str]:
    """The private methods and attributes of Hydra's and OmegaConf's classes."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.hydra import Hydra
    from hydra.core.override_parser.types import Override
    from hydra.core.plugins import Plugins
    from hydra.core.utils import JobReturn
    from hydra.plugins.config_source import ConfigSource
    from omegaconf import AnyNode, DictConfig, ListConfig, OmegaConf

    kinds = (ConfigLoaderImpl, Hydra, Override, Plugins, JobReturn, ConfigSource)
    nodes = (AnyNode(1), DictConfig({}), ListConfig([]), OmegaConf)
    fields = {name for kind in kinds for name in getattr(kind, "__annotations__", ())}
    names = {name for item in (*kinds, *nodes) for name in dir(item)} | fields
    return {name for name in names if name.startswith("_") and not name.endswith("__")} | {"_UNSPECIFIED_"}


def uses_of_internals(source: str, private: set[str]) -> Iterator[tuple[int, str]]:
    """The lines that import a private module or name of Hydra or OmegaConf, use a private attribute of theirs on
    anything but ``self``, or look at stack frames."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [item.name for item in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{item.name}" for item in node.names if not node.level]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            names = [node.value]
        for name in names:
            if name.startswith(("hydra.", "omegaconf.")) and "._" in name:
                yield node.lineno, name
        if isinstance(node, ast.Attribute):
            base = node.value.id if isinstance(node.value, ast.Name) else ""
            looks_at_frames = node.attr in FRAMES and (node.attr != "stack" or base == "inspect")
            if looks_at_frames or (node.attr in private and base not in ("self", "cls")):
                yield node.lineno, node.attr


@pytest.mark.parametrize(
    "source",
    [
        "from hydra._internal.utils import get_args_parser",
        "import omegaconf._utils",
        "from hydra import _internal",
        "from importlib import import_module\nimport_module('hydra._internal.hydra')",
        "config._set_parent(other)",
        "tree.child._metadata.key",
        "result._return_value",
        "import sys\nsys._getframe()",
        "import inspect\ninspect.stack()",
        "frame.f_back",
    ],
)
def test_a_use_of_internals_is_seen(source: str) -> None:
    assert list(uses_of_internals(source, private_names()))


@pytest.mark.parametrize(
    "source", ["from hydra.core.plugins import Plugins", "self._metadata = 1", "point._replace(a=1)", "stack.append(1)"]
)
def test_what_is_public_is_no_use_of_internals(source: str) -> None:
    assert not list(uses_of_internals(source, private_names()))


def test_one_file_knows_the_internals_of_hydra_and_omegaconf() -> None:
    private = private_names()
    folders = ("sglang_hydra", "hydra_plugins", "examples", "tools")
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]
    package = ROOT / "sglang_hydra"
    sealed = {package / "releases" / "child", ROOT / "tools" / "recording"}  # start without Hydra
    found = {
        str(file.relative_to(ROOT)): uses
        for file in files
        if file not in HYDRA_INTERNALS and not sealed.intersection(file.parents)
        if (uses := list(uses_of_internals(file.read_text(encoding="utf-8"), private)))
    }
    assert found == {}
    assert all(list(uses_of_internals(file.read_text(encoding="utf-8"), private)) for file in HYDRA_INTERNALS)
