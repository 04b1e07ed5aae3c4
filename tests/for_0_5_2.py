"""For tests of 0.5.2's rules, pages and screens: imported into a test module or a conftest, plans there are for 0.5.2
where nothing names a release."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sglang_hydra.text import user_settings

VARIABLE = user_settings.KEYS["release"].variable


@pytest.fixture(scope="module", autouse=True)
def plans_are_for_0_5_2() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as settings:
        settings.setenv(VARIABLE, "0.5.2")
        user_settings.begin()
        yield
    user_settings.begin()


@contextmanager
def for_the_newest() -> Iterator[None]:
    """Plans for the newest release in a module of ``plans_are_for_0_5_2``."""
    with pytest.MonkeyPatch.context() as settings:
        settings.delenv(VARIABLE)
        user_settings.begin()
        yield
    user_settings.begin()
