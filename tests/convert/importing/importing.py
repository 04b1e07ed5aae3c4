"""What the tests of importing share."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.convert.importing.importer import Imported, import_source
from sglang_hydra.convert.importing.sources import Source, read_source
from sglang_hydra.convert.importing.typed import read_typed

DATA = Path(__file__).parents[2] / "data" / "import"


@functools.lru_cache(maxsize=1)
def composer() -> Composer:
    return Composer()


def imported(text: str, *overrides: str) -> list[Imported]:
    """The servers of a text that was typed."""
    typed = read_typed([Request(word, "behind the source") for word in overrides], composer())
    return import_source(Source("", text, typed=True), typed, composer())


def the_one(text: str, *overrides: str) -> Imported:
    """The server of a text that starts one."""
    (server,) = imported(text, *overrides)
    return server


def of_file(name: str, *overrides: str) -> list[Imported]:
    """The servers of a file of tests/data/import."""
    typed = read_typed([Request(word, "behind the source") for word in overrides], composer())
    return import_source(read_source(str(DATA / name)), typed, composer())


def ids(server: Imported, levels: Sequence[str] = ("error", "warning", "info")) -> list[str]:
    return [finding.id for finding in server.findings if finding.level in levels]


def states(server: Imported) -> dict[str, str]:
    return {state.name: state.state for state in server.states}
