"""The 210 arguments against what SGLang 0.5.2 itself declares, and what the package promises about them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pickle
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hydra_zen import builds, instantiate
from omegaconf import ValidationError

from sglang_hydra.arguments.fields import (
    CONCERNS,
    FIELDS,
    MISSING,
    LoRARef,
    ServerArgs,
    _read,
    fresh_defaults,
    sealed,
)
from sglang_hydra.arguments.fields.arg import Arg

DATA = Path(__file__).parents[2] / "data" / "conformance"
DECLARED = {field["name"]: field for field in json.loads((DATA / "defaults.json").read_text())}
CLI = json.loads((DATA / "cli.json").read_text())
OPTIONS = {CLI["dest_to_field"].get(option["dest"], option["dest"]): option for option in CLI["options"]}

# OmegaConf has no Literal and no unions of containers: those are text with choices, and Any.
TYPES = {
    "typing.Optional[str]": "str | None",
    "typing.Optional[int]": "int | None",
    "typing.Optional[float]": "float | None",
    "typing.Optional[bool]": "bool | None",
    "typing.Optional[typing.List[int]]": "list[int] | None",
    "typing.Optional[typing.List[float]]": "list[float] | None",
    "typing.Optional[typing.List[str]]": "list[str] | None",
}


def expected_type(declared: str) -> str:
    if "Literal" in declared:
        return "str | None" if "Optional" in declared else "str"
    if "Union" in declared:
        return "Any"
    return TYPES.get(declared, declared)


def literal_choices(declared: str) -> list[str] | None:
    if "Literal" not in declared:
        return None
    return declared.partition("Literal[")[2].rstrip("]").replace("'", "").split(", ")


def test_the_fields_are_exactly_those_of_sglang() -> None:
    assert len(FIELDS) == 210
    assert FIELDS.keys() == DECLARED.keys() == OPTIONS.keys()


@pytest.mark.parametrize("name", DECLARED)
def test_type_and_default_are_those_of_sglang(name: str) -> None:
    declared, field = DECLARED[name], FIELDS[name]
    assert field.type == expected_type(declared["type"])
    default = MISSING if declared["required"] else declared["default"]
    assert (field.default, type(field.default)) == (default, type(default))
    assert getattr(ServerArgs, name) == default


@pytest.mark.parametrize("name", DECLARED)
def test_the_command_line_is_that_of_sglang(name: str) -> None:
    option, field = OPTIONS[name], FIELDS[name]
    assert list(field.flags) == option["option_strings"]
    assert field.flag in field.flags
    assert field.required == option["required"]
    # What is not typed gets the dataclass default, so the parser's own must be the same.
    assert fresh_defaults()[name] == option["default"]
    if option["action"] == "_StoreTrueAction":
        assert field.is_flag
        assert (field.arg.parser, field.arg.nargs) == (None, None)
        return
    assert (field.arg.nargs, field.arg.const) == (option["nargs"], option["const"])
    parsers = {"text": "str", "nullable": "nullable_str", "lora": "str", None: field.kind}
    assert parsers[field.arg.parser].replace("Any", "str") == option["type"]
    assert (field.arg.parser == "lora") == (option["action"] == "LoRAPathAction")


@pytest.mark.parametrize("name", DECLARED)
def test_choices_are_those_of_sglang(name: str) -> None:
    field, typed = FIELDS[name], literal_choices(DECLARED[name]["type"])
    choices = None if field.arg.choices is None else list(field.arg.choices)
    on_the_command_line = OPTIONS[name]["choices"]
    assert (choices if field.arg.cli_choices else None) == on_the_command_line
    if typed is not None:
        assert choices is not None
        assert set(choices) == set(typed)
    elif on_the_command_line is None:
        assert choices is None


@pytest.mark.parametrize("name", FIELDS)
def test_help_is_one_sentence_like_line_with_what_none_means(name: str) -> None:
    field = FIELDS[name]
    help = field.arg.help
    assert 15 <= len(help) <= 240
    assert help == help.strip()
    assert "\n" not in help
    assert help.endswith(".")
    # A capital letter, unless it starts with the name of an argument or of a value.
    assert re.match(r"[A-Z]|auto |host:port |\w+_size ", help)
    assert ("None" in field.type or field.type == "Any") == bool(field.arg.none)
    for text in (field.arg.none, field.arg.unit):
        assert text is None or not text.endswith(".")


@pytest.mark.parametrize(
    "name", [name for name, field in FIELDS.items() if name.endswith(("_gb", "_secs", "_timeout", "_tokens", "_size"))]
)
def test_a_quantity_names_its_unit(name: str) -> None:
    assert FIELDS[name].arg.unit


def test_only_the_api_key_is_secret() -> None:
    assert [name for name, field in FIELDS.items() if field.arg.secret] == ["api_key"]


def test_each_concern_says_what_it_is_about() -> None:
    assert list(dict.fromkeys(field.concern for field in FIELDS.values())) == list(CONCERNS)
    assert all(about.endswith(".") for about in CONCERNS.values())


def test_fields_come_in_the_order_of_the_concerns() -> None:
    assert [field.name for field in dataclasses.fields(ServerArgs)] == list(FIELDS)
    assert next(iter(FIELDS)) == "model_path"


@dataclass
class _Two:
    tp_size: int = 1
    extra: int = 0


def test_an_argument_without_a_line_in_the_table_is_refused() -> None:
    with pytest.raises(TypeError, match=r"differ: \['extra'\]"):
        _read({"parallel": {"arguments": {"tp_size": {"help": "One."}}}}, _Two)


def test_arguments_in_another_order_than_the_tables_are_refused() -> None:
    rows = {"extra": {"help": "One."}, "tp_size": {"help": "Two."}}
    with pytest.raises(TypeError, match="differ: their order"):
        _read({"parallel": {"arguments": rows}}, _Two)


def test_fresh_defaults_are_the_callers_own() -> None:
    first = fresh_defaults()
    first["tp_size"] = 8
    assert fresh_defaults()["tp_size"] == 1
    assert fresh_defaults()["model_path"] is None
    # Nothing in them can be shared by accident: every default is an immutable value.
    assert {type(value) for value in fresh_defaults().values()} == {str, int, float, bool, type(None)}


class TestServerArgs:
    def test_is_an_ordinary_mutable_dataclass(self) -> None:
        args = ServerArgs(model_path="x", tp_size=8)
        args.tp_size = 4
        assert (args.model_path, args.tp_size, args.pp_size) == ("x", 4, 1)
        assert dataclasses.replace(args, tp_size=2) == ServerArgs(model_path="x", tp_size=2)
        assert dataclasses.asdict(args)["tp_size"] == 4

    @pytest.mark.parametrize(
        ("values", "named"), [((), {"tpsize": 1}), (("x",), {"model_path": "y"}), ((1,) * 211, {})]
    )
    def test_refuses_what_a_dataclass_refuses(self, values: tuple[Any, ...], named: dict[str, Any]) -> None:
        assert ServerArgs("x").model_path == "x"
        with pytest.raises(TypeError, match="takes no such argument"):
            ServerArgs(*values, **named)

    def test_shows_what_differs_and_no_secret(self) -> None:
        shown = repr(ServerArgs(model_path="x", tp_size=8, api_key="hunter2"))
        assert shown == "ServerArgs(model_path='x', tp_size=8, api_key=***)"

    def test_compares_by_value(self) -> None:
        assert ServerArgs(model_path="x") == ServerArgs(model_path="x")
        assert ServerArgs(model_path="x") != ServerArgs(model_path="y")
        assert ServerArgs(model_path="x") != "x"


class TestSealed:
    def test_reads_and_never_writes(self) -> None:
        args = sealed({**fresh_defaults(), "tp_size": 8})
        assert args.tp_size == 8
        with pytest.raises(AttributeError):
            args.tp_size = 4
        with pytest.raises(AttributeError):
            del args.tp_size
        assert args.tp_size == 8

    def test_equals_what_has_the_same_values(self) -> None:
        values = {**fresh_defaults(), "model_path": "x", "cuda_graph_bs": [1, 2]}
        assert sealed(values) == sealed(dict(values)) == ServerArgs(model_path="x", cuda_graph_bs=[1, 2])
        assert sealed(values) != sealed(fresh_defaults())

    def test_does_not_follow_the_dict_it_was_made_from(self) -> None:
        values = fresh_defaults()
        args = sealed(values)
        values["tp_size"] = 8
        assert args.tp_size == 1

    def test_survives_copying_and_pickling(self) -> None:
        args = sealed({**fresh_defaults(), "tp_size": 8})
        for again in (copy.deepcopy(args), pickle.loads(pickle.dumps(args))):
            assert again == args
            with pytest.raises(AttributeError):
                again.tp_size = 1

    @pytest.mark.parametrize("values", [{}, {"tp_size": 1}, {**fresh_defaults(), "tpsize": 1}])
    def test_wants_all_names_and_no_other(self, values: dict[str, Any]) -> None:
        with pytest.raises(TypeError, match="missing or unknown arguments"):
            sealed(values)


def test_an_adapter_is_a_value() -> None:
    assert LoRARef("a", "/l/a") == LoRARef("a", "/l/a", pinned=False)
    assert len({LoRARef("a", "/l/a"), LoRARef("a", "/l/a")}) == 1


def test_an_arg_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Arg("Help.").help = "other"  # type: ignore[misc]


def test_its_signature_has_every_argument_for_the_class_and_for_its_initializer() -> None:
    @dataclass(init=False)
    class Wider(ServerArgs):
        own: int = 3

    names = [field.name for field in dataclasses.fields(ServerArgs)]
    assert list(inspect.signature(ServerArgs).parameters) == names
    assert list(inspect.signature(ServerArgs.__init__).parameters) == ["self", *names]
    assert inspect.signature(Wider).parameters["own"].default == 3
    assert get_type_hints(ServerArgs.__init__)["tp_size"] is int


def test_hydra_zen_builds_it_with_its_full_signature() -> None:
    """https://github.com/mit-ll-responsible-ai/hydra-zen reads the signature of the initializer."""
    built = builds(ServerArgs, populate_full_signature=True, model_path="org/name")
    made = instantiate(built(tp_size=2))
    assert isinstance(made, ServerArgs)
    assert made == ServerArgs(model_path="org/name", tp_size=2)
    with pytest.raises(TypeError):
        built(tpsize=2)
    with pytest.raises(ValidationError):
        instantiate(built(tp_size="many"))


def test_importing_the_fields_imports_nothing_heavy() -> None:
    heavy = {"hydra", "omegaconf", "argparse", "rich", "torch", "difflib", "subprocess", "asyncio", "logging"}
    code = "import sys; import sglang_hydra.arguments.fields, sglang_hydra.arguments.fields.check; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not heavy & set(out.split())
