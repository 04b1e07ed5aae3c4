"""docs/hydra.md: each row of its tables is tried with Hydra itself and with serve.py's composer, or names its test."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.locations import conf_dir

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "hydra.md"
ROWS = yaml.safe_load((ROOT / "tests" / "data" / "hydra_features.yaml").read_text(encoding="utf-8"))
BEFORE = ["gpu=h200", "model=qwen3_8b"]
REFUSED = "refused"


def words_of(word: str) -> list[str]:
    """A group that is chosen by the row is not chosen before it."""
    return [*(item for item in BEFORE if item.partition("=")[0] != word.partition("=")[0]), word]


def by_hydra(word: str, key: str) -> str:
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            config = compose("sglang_hydra", overrides=words_of(word), return_hydra_config=True)
            from hydra.core.hydra_config import HydraConfig

            HydraConfig.instance().set_config(config)
            value = OmegaConf.select(config, key)
            return shown(OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value)
    except (HydraException, OmegaConfBaseException, ValueError):
        return REFUSED


def by_us(word: str, key: str) -> str:
    from hydra.core.hydra_config import HydraConfig

    HydraConfig.instance().cfg = None
    requests = [Request(text, f"argument {number}") for number, text in enumerate(words_of(word), 1)]
    try:
        made = Composer().compose(requests)
    except ConfigError:
        return REFUSED
    if key in FIELDS:
        return shown(made.intent.get(key, FIELDS[key].default))
    value: Any = made.nodes.plain
    for name in key.split("."):
        value = value.get(name)
    return shown(value)


def shown(value: Any) -> str:
    return f"`{yaml.safe_dump(value, default_flow_style=True).strip().removesuffix('...').strip()}`"


def cells_of(row: list[str]) -> list[str]:
    feature, word, key, *why = row
    hydra, ours = by_hydra(word, key), by_us(word, key)
    assert (hydra != ours) == bool(why), f"{word}: Hydra {hydra}, here {ours}"
    typed = word.replace("|", "\\|")
    return [feature, f"`{typed}`", hydra, ours if hydra != ours else "the same", *(why or [""])]


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "ada")


@pytest.mark.thorough
def test_each_row_of_the_grammar_is_what_both_do() -> None:
    page = PAGE.read_text(encoding="utf-8")
    problems, lines = [], []
    for row in ROWS:
        try:
            lines.append("| " + " | ".join(cells_of(row)).rstrip() + " |")
        except AssertionError as failure:
            problems.append(str(failure).splitlines()[0])
    assert not problems, "\n".join(problems)
    table = "\n".join(lines)
    start, end = "<!-- grammar -->\n", "<!-- end -->"
    before, after = page.partition(start)[0] + start, end + page.partition(end)[2]
    head = "| feature | typed | Hydra | serve.py | why |\n| --- | --- | --- | --- | --- |\n"
    whole = f"{before}{head}{table}\n{after}"
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(whole, encoding="utf-8")
    assert page == whole or os.environ.get("UPDATE_GOLDEN")


def test_each_other_row_names_a_test_that_exists() -> None:
    named = re.findall(r"^\|.*\| `(tests/[\w/]+\.py)::(\w+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(named) > 20
    for file, name in named:
        assert f"def {name}(" in Path(ROOT / file).read_text(encoding="utf-8"), name
