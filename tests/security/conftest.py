"""Each test has settings of its own: none, until it writes some."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sglang_hydra.text import user_settings as settings
from tests.for_0_5_2 import plans_are_for_0_5_2 as plans_are_for_0_5_2


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, key in settings.KEYS.items():
        if name != "release":
            monkeypatch.setenv(key.variable, "")
    monkeypatch.setenv(settings.FILE_VARIABLE, "")
    settings.begin()
    yield
    monkeypatch.undo()
    settings.begin()
