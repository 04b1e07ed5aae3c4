"""What users name is still there: the public face against that of commit 7c37404, tests/data/public_face.json.

Whatever that commit had is there and takes what it took; additions are allowed. An id that went is in ``RETIRED``.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import sglang_hydra
from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.cli.id_pages import id_record
from sglang_hydra.compose.schema import NODES
from sglang_hydra.convert.export.registry import FORMATS
from sglang_hydra.schemas import schema_of
from sglang_hydra.show.key_help import GROUPS, keys
from sglang_hydra.text.flags import FLAGS, VERBS
from tests.plans import H200, planned

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
FACE: Mapping[str, Any] = json.loads((ROOT / "tests" / "data" / "public_face.json").read_text(encoding="utf-8"))


def parameters(thing: Callable[..., Any]) -> dict[str, str]:
    """Each parameter: ``required`` or ``optional``, with ``, by name`` where it cannot be given by its place."""
    described = {}
    for name, parameter in inspect.signature(thing).parameters.items():
        several = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        needed = parameter.default is parameter.empty and not several
        by_name = ", by name" if parameter.kind is parameter.KEYWORD_ONLY else ""
        described[name] = f"{'required' if needed else 'optional'}{by_name}"
    return described


def assert_takes(thing: Callable[..., Any], recorded: Mapping[str, str]) -> None:
    """Every call that was right still is: the same parameters in the same order, and none that is required is new."""
    today = parameters(thing)
    for name, how in recorded.items():
        assert today.get(name) in (how, how.replace("required", "optional"))
    assert [name for name in today if name in recorded] == list(recorded)
    assert not [name for name, kind in today.items() if name not in recorded and kind.startswith("required")]


@pytest.mark.parametrize("name", sorted(FACE["api"]))
def test_a_public_name_takes_and_has_what_it_did(name: str) -> None:
    recorded, thing = FACE["api"][name], getattr(sglang_hydra, name)
    assert name in dir(sglang_hydra)
    if recorded["kind"] == "module":
        for member, taken in recorded["members"].items():
            assert_takes(getattr(thing, member), taken)
        return
    if recorded["kind"] == "class":
        assert inspect.isclass(thing)
        assert not [member for member in recorded["members"] if not _has(thing, member)]
    if recorded["kind"] in ("class", "function"):
        assert_takes(thing, recorded["parameters"])


def _has(kind: type, member: str) -> bool:
    return hasattr(kind, member) or member in getattr(kind, "__dataclass_fields__", {})


def test_the_program_and_the_plugins_have_their_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"].items() >= FACE["scripts"].items()
    for file in FACE["hydra_plugins"]:
        assert (ROOT / "hydra_plugins" / file).is_file()
    for target in FACE["targets"]:
        module, _, name = target.rpartition(".")
        assert callable(getattr(import_module(module), name))


@pytest.mark.parametrize("kind", sorted(FACE["schemas"]))
def test_a_schema_has_its_id_and_its_keys(kind: str) -> None:
    recorded, schema = FACE["schemas"][kind], schema_of(kind)
    named = schema.get("$id") or schema["properties"]["schema"]["const"]
    assert named == recorded["id"]
    assert set(recorded["keys"]) <= set(schema.get("properties", ()))
    assert set(recorded["required"]) <= set(schema.get("required", ()))


def test_every_id_has_a_page_and_can_be_silenced_as_before() -> None:
    assert [id for id in FACE["ids"] if id_record(id) is None] == []


@pytest.mark.parametrize("id", ["DIA002", "SCH001", "CLI006"])
def test_an_id_that_was_known_is_ignored_without_a_warning(id: str) -> None:
    assert "CLI011" not in {finding.id for finding in planned(*H200, f"ignore=[{id}]").findings}


@pytest.mark.parametrize(
    ("what", "today"),
    [
        ("arguments", FIELDS),
        ("nodes", NODES),
        ("groups", GROUPS),
        ("verbs", VERBS),
        ("flags", [name for flag in FLAGS for name in flag.names]),
        ("export_formats", FORMATS),
    ],
)
def test_a_word_that_users_type_is_known(what: str, today: Any) -> None:
    assert [word for word in FACE[what] if word not in today] == []


def test_a_key_of_ours_has_its_type() -> None:
    today = {name: key.type for name, key in keys().items()}
    assert {name: today.get(name) for name in FACE["keys"]} == FACE["keys"]


@pytest.mark.parametrize("group", sorted(FACE["options"]))
def test_a_group_has_its_options(group: str) -> None:
    assert [name for name in FACE["options"][group] if not (ROOT / "conf" / group / f"{name}.yaml").is_file()] == []
