"""The interpreters that have the real engines; `make test-real` installs both."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.for_0_5_2 import plans_are_for_0_5_2 as plans_are_for_0_5_2

ROOT = Path(__file__).parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.real)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def sglang_python() -> str:
    """The interpreter that has SGLang 0.5.2."""
    return _interpreter("SGLANG_PYTHON", ".venv-sglang-0.5.2/bin/python")


@pytest.fixture(scope="session")
def sglang_0_5_23_python() -> str:
    """The interpreter that has SGLang 0.5.23."""
    return _interpreter("SGLANG_0_5_23_PYTHON", ".venv-sglang-0.5.23/bin/python")


@pytest.fixture(scope="session")
def embedded_python() -> str:
    """The interpreter that has the embedded engine."""
    return _interpreter("EMBEDDED_PYTHON", ".venv/bin/python")


def _interpreter(variable: str, default: str) -> str:
    path = os.path.abspath(os.environ.get(variable) or ROOT / default)
    if not os.access(path, os.X_OK):
        pytest.fail(f"{path} is not there: make test-real installs it, {variable} names another one")
    return path
