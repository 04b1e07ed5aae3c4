"""Public configs of each framework, as facts: what SGLang gets of them, by the release that the framework pins.

``public_frameworks.json`` has ten of each, or all that its repository ever had (ROLL, NeMo-RL, SkyRL). OpenRLHF has no
SGLang, and no public repository that was searched has a node for ``hydra.utils.instantiate``. ``read`` was taken from
the config alone, by the framework's own code (``source`` in adapters.json), with the names that its release has.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from sglang_hydra.arguments.fields import fresh_defaults
from sglang_hydra.compose.composer import Composer
from sglang_hydra.convert.frameworks.adapters import ADAPTERS, Adapter
from sglang_hydra.convert.importing.importer import Imported, import_source
from sglang_hydra.convert.importing.sources import Source
from sglang_hydra.convert.importing.typed import Typed
from sglang_hydra.text.json_types import value_at

Row = dict[str, Any]
ROWS: dict[str, list[Row]] = json.loads((Path(__file__).parents[2] / "data" / "public_frameworks.json").read_text())


@functools.cache
def imported(name: str, at: int) -> Imported:
    config = ROWS[name][at]["config"]
    script = f"cd /opt/{name} && python3 train.py {config}"
    source = Source("x.sh", script) if isinstance(config, str) else Source("x.yaml", yaml.safe_dump(config))
    (server,) = import_source(source, Typed({"gpu": "h200"}), composer())
    return server


@functools.cache
def composer() -> Composer:
    return Composer()


def typed_keys(adapter: Adapter, config: Any) -> set[str]:
    """The keys that somebody gave SGLang by its own names."""
    if isinstance(config, str):
        options = [word for word in config.split() if word.startswith(adapter.flags)]
        names = {word.removeprefix(adapter.flags) for word in options}
        return {name.replace("-", "_") for name in names if not name.startswith(tuple(adapter.own))}
    node = value_at(config, adapter.node) or {}
    return {key for key, value in node.items() if key not in adapter.own and value is not None}


@pytest.mark.parametrize("name", ROWS)
def test_every_field_is_read(name: str) -> None:
    defaults = fresh_defaults()
    wrong = {}
    for at, row in enumerate(ROWS[name]):
        server = imported(name, at)
        got = {**server.arguments, **server.extra}
        # What equals SGLang's default is as good as not set; the arguments of later releases here are switches.
        lost = {
            key: got.get(key) for key, value in row["read"].items() if got.get(key, defaults.get(key, False)) != value
        }
        if lost:
            wrong[row["source"]] = lost
    assert wrong == {}


@pytest.mark.parametrize("name", ROWS)
def test_no_key_is_lost(name: str) -> None:
    """A key that is not read under its name is named by a finding: as dropped, or with the name that took its place."""
    for at, row in enumerate(ROWS[name]):
        messages = " ".join(finding.message for finding in imported(name, at).findings)
        unread = typed_keys(ADAPTERS[name], row["config"]) - row["read"].keys()
        assert {key for key in unread if key not in messages and key.replace("_", "-") not in messages} == set()
        assert set(row.get("dropped", ())) <= unread


@pytest.mark.parametrize("name", ROWS)
def test_the_release_is_what_the_framework_pins(name: str) -> None:
    release = ADAPTERS[name].release
    for at in range(len(ROWS[name])):
        server = imported(name, at)
        assert server.version == release or any(f"SGLang {release}" in finding.message for finding in server.findings)


def test_a_script_is_by_the_framework_that_it_names_most() -> None:
    assert [imported(name, 0).version for name in ("slime", "miles")] == ["0.5.15.post1", "0.5.16"]


def test_a_colocated_trainer_switches_the_memory_saver_on() -> None:
    rows = [
        (name, at) for name in ("slime", "miles") for at, row in enumerate(ROWS[name]) if "--colocate" in row["config"]
    ]
    assert len(rows) > 5
    assert all(imported(name, at).arguments["enable_memory_saver"] is True for name, at in rows)
