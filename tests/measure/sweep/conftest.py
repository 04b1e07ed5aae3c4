"""Fake servers for sweeps, and a folder for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.measure.bench.conftest import forgive_slowness
from tests.measure.sweep.place import Place, make_fake_python, place_in


@pytest.fixture(scope="session")
def fake_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fake_python(tmp_path_factory.mktemp("fake-sglang"))


@pytest.fixture
def place(tmp_path: Path, fake_python: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with place_in(tmp_path, fake_python) as place:
        yield place


@pytest.fixture
def here(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The same for sweeps that run in this process, whose environment the servers inherit."""
    for name, value in place.env.items():
        monkeypatch.setenv(name, value)
    forgive_slowness(monkeypatch)
    return place
