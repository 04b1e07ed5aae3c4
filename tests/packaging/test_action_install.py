"""``action.yml`` with the wheel, in the environment that it makes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.gate.test_action import OURS, Repo
from tests.packaging.conftest import Built

pytestmark = pytest.mark.registry


def test_the_wheel_is_installed_and_judges(tmp_path: Path, built: Built) -> None:
    repo = Repo(tmp_path)
    (repo.folder / "launch/chat.yaml").write_text(f"{OURS}tp_size: 3\n")
    repo.commit()
    (repo.programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    repo.env.pop("PYTHONPATH")
    ran = repo.action(package=str(built.wheel)).run(repo.folder, repo.temp)
    assert not ran.ok
    assert "title=CFG004" in ran.printed
