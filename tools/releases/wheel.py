"""One released wheel: its modules as syntax trees, its metadata."""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from releases.values import Scope


class WheelError(Exception):
    """A wheel that cannot be read; the text says which and why."""


class Wheel:
    """The files of a wheel of SGLang. Modules are parsed when they are first asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._archive = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile) as error:
            raise WheelError(f"{path} is no wheel: {error}") from error
        self._names = frozenset(self._archive.namelist())
        self._modules: dict[str, ast.Module | None] = {}
        self.scopes: dict[str, Scope] = {}

    def text(self, name: str) -> str | None:
        """A file's content; None where the wheel has no such file."""
        return self._archive.read(name).decode("utf-8") if name in self._names else None

    def module(self, name: str) -> ast.Module | None:
        """The syntax of the module ``sglang.srt.server_args``; None for a module that is not in the wheel."""
        if name not in self._modules:
            path = name.replace(".", "/")
            source = self.text(f"{path}.py")
            if source is None:
                source = self.text(f"{path}/__init__.py")
            self._modules[name] = None if source is None else ast.parse(source)
        return self._modules[name]

    def module_name(self, module: str, level: int, name: str | None) -> str:
        """What ``from <level dots><name> import`` inside ``module`` names."""
        if level == 0:
            return name or ""
        is_package = f"{module.replace('.', '/')}/__init__.py" in self._names
        parts = module.split(".")
        base = parts[: len(parts) - level + (1 if is_package else 0)]
        return ".".join([*base, *([name] if name else [])])

    def sources(self, folder: str) -> Iterator[tuple[str, str]]:
        """The path and text of every Python file below ``folder``, tests left out."""
        for name in sorted(self._names):
            if name.startswith(f"{folder}/") and name.endswith(".py") and "/test/" not in name:
                yield name, self._archive.read(name).decode("utf-8", "replace")

    @cached_property
    def _info(self) -> str:
        found = [name.partition("/")[0] for name in self._names if name.endswith(".dist-info/METADATA")]
        if len(found) != 1:
            raise WheelError(f"{self.path} has {len(found)} metadata files, a wheel has one")
        return found[0]

    @cached_property
    def metadata(self) -> dict[str, list[str]]:
        """METADATA's headers by name; each may come several times."""
        parsed = HeaderParser().parsestr(self.text(f"{self._info}/METADATA") or "")
        headers: dict[str, list[str]] = {}
        for name, value in parsed.items():
            headers.setdefault(name, []).append(str(value))
        return headers

    @property
    def version(self) -> str:
        versions = self.metadata.get("Version", [])
        if not versions:
            raise WheelError(f"{self.path}: its METADATA names no version")
        return versions[0]

    def scripts(self) -> dict[str, str]:
        """The commands that an installation has: name and what each runs."""
        import configparser

        parser = configparser.ConfigParser()
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read_string(self.text(f"{self._info}/entry_points.txt") or "")
        return dict(parser["console_scripts"]) if parser.has_section("console_scripts") else {}
