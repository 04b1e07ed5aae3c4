"""The committed table over SGLang's releases: it tells what 0.5.2 and 0.5.23 really have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.arguments.changed_defaults import changed_default, changed_defaults
from sglang_hydra.arguments.every import EVERY, canonical_name
from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.tables import table as table_module
from sglang_hydra.arguments.tables.order import at_least, release_key, same_release
from sglang_hydra.arguments.tables.successors import SAME, notes, successor
from sglang_hydra.arguments.tables.table import known_versions, nearest_known, release, rows
from sglang_hydra.compose.schema import NODES
from sglang_hydra.text.json_types import plain
from tests.commands import must_follow

DATA = Path(__file__).parents[2] / "data"
LATEST = known_versions()[-1]


def test_the_releases_stand_in_their_order() -> None:
    keys = [release_key(version) for version in known_versions()]
    assert None not in keys
    assert keys == sorted(keys)  # type: ignore[type-var]
    assert known_versions()[0] == "0.5.2"
    assert "0.5.23" in known_versions()
    assert len(known_versions()) >= 38


def test_0_5_2_is_what_the_fields_say() -> None:
    arguments = release("0.5.2").arguments
    assert arguments.keys() == FIELDS.keys()
    for name, field in FIELDS.items():
        argument = arguments[name]
        assert argument.required is field.required, name
        assert field.required or plain(argument.default) == plain(field.default), name
        assert list(argument.flags) == list(field.flags), name


def test_0_5_2s_choices_are_those_of_its_parser() -> None:
    options = json.loads((DATA / "conformance" / "cli.json").read_text())["options"]
    arguments = {flag: argument for argument in release("0.5.2").arguments.values() for flag in argument.flags}
    assert len(options) == len(release("0.5.2").arguments)
    for option in options:
        argument = arguments[option["option_strings"][0]]
        assert (None if argument.choices is None else list(argument.choices)) == option["choices"], argument.name
        assert argument.nargs == (option["nargs"] if option["action"] == "_StoreAction" else argument.nargs)


def test_0_5_23_has_the_arguments_of_the_real_package() -> None:
    real = json.loads((DATA / "arguments_0_5_23.json").read_text())
    assert set(release("0.5.23").arguments) == set(real if isinstance(real, list) else real["arguments"])


def test_no_node_of_ours_is_an_argument_of_any_release() -> None:
    for version in known_versions():
        assert not set(NODES) & release(version).arguments.keys(), version


def test_every_release_says_what_it_needs() -> None:
    for version in known_versions():
        needs = release(version).needs
        assert needs["python"].startswith(">=3.1"), version
        assert {"torch", "transformers"} <= needs["packages"].keys(), version
        assert needs["cuda"] in ("12.8", "13.0"), version
        assert needs["driver"] in ("525.60.13", "580.65.06"), version
    assert release("0.5.2").needs["packages"]["torch"] == "==2.8.0"
    assert release("0.5.23").needs["packages"]["transformers"] == "==5.19.0"
    assert release("0.5.11").needs["cuda"] == "13.0"


def test_pages_commands_and_variables_come_and_go() -> None:
    assert "GET /get_server_info" in release("0.5.2").pages
    first = next(version for version in known_versions() if "GET /server_info" in release(version).pages)
    assert first == "0.5.6"
    assert next(version for version in known_versions() if "sglang" in release(version).scripts) == "0.5.5"
    assert "SGLANG_USE_CPU_ENGINE" in release("0.5.2").variables
    assert len(release(LATEST).variables) > 4 * len(release("0.5.2").variables)


def test_the_table_follows_its_schema() -> None:
    table = json.loads((Path(table_module.__file__).with_name("table.json")).read_text())
    must_follow(table, "versions")


def test_the_table_is_small() -> None:
    size = sum(len(json.dumps(row)) for row in rows())
    assert size < 250_000


@pytest.mark.parametrize(
    ("version", "known"),
    [("0.5.23", "0.5.23"), ("0.5.2", "0.5.2"), ("0.5.2+cu126", "0.5.2"), ("0.5.9.post7", "0.5.9"), ("9.9", LATEST),
     ("0.5.1", None), ("0.5.2rc1", "0.5.2"), ("main", None), ("", None), ("0.5.10", "0.5.10")],
)  # fmt: skip
def test_an_unknown_release_has_the_last_one_before_it(version: str, known: str | None) -> None:
    assert nearest_known(version) == known


def test_a_release_that_the_table_lacks_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        release("0.5.1")


@pytest.mark.parametrize(
    ("one", "other", "later", "same"),
    [("0.5.10", "0.5.9", True, False), ("0.5.3.post1", "0.5.3", True, False), ("0.5.3rc1", "0.5.3", False, False),
     ("0.5.2+x", "0.5.2", True, False), ("0.5.2", "0.5.2", True, True), ("x", "0.5.2", False, False),
     ("1.0", "1.0.0", True, True), ("0.5.3.dev1", "0.5.3a1", False, False)],
)  # fmt: skip
def test_releases_are_ordered_as_pep_440_has_it(one: str, other: str, later: bool, same: bool) -> None:
    assert at_least(one, other) is later
    assert same_release(one, other) is same


def test_defaults_that_moved_name_their_release() -> None:
    moved = changed_defaults("0.5.2", "0.5.23")
    assert moved["lora_backend"][1:] == ("triton", "csgmv", "0.5.4.post2")
    assert moved["max_queued_requests"].after is None
    assert changed_defaults("0.5.2", "0.5.2") == {}
    assert changed_default("lora_backend", "0.5.23", "triton") is None
    assert changed_default("lora_backend", "0.5.1", "csgmv") is None
    assert changed_default("lora_backend", "0.5.3.post3", "csgmv") == (
        "its default is csgmv since 0.5.3.post3; it was triton"
    )


SUCCESSORS: dict[tuple[str, str], tuple[str | None, Any]] = {
    ("cuda_graph_max_bs", "0.5.14"): ("cuda_graph_max_bs_decode", SAME),
    ("cuda_graph_max_bs", "0.5.23"): ("cuda_graph_max_bs_decode", SAME),
    ("stream_output", "0.5.23"): ("incremental_streaming_output", SAME),
    ("max_micro_batch_size", "0.5.4"): ("pp_max_micro_batch_size", SAME),
    ("enable_deepep_moe", "0.5.3"): ("moe_a2a_backend", "deepep"),
    ("enable_triton_kernel_moe", "0.5.23"): ("moe_runner_backend", "triton_kernel"),
    ("enable_ep_moe", "0.5.3"): ("ep_size", ("of", "tp_size")),
    ("torchao_config", "0.5.23"): (None, SAME),
    ("nsa_prefill", "0.5.23"): ("dsa_prefill_backend", SAME),
    ("speculative_dflash_draft_window_size", "0.5.20"): ("speculative_draft_window_size", SAME),
    ("never_heard_of", "0.5.23"): (None, SAME),
}


@pytest.mark.parametrize("case", SUCCESSORS, ids=str)
def test_what_took_the_place_of_an_argument(case: tuple[str, str]) -> None:
    found = successor(*case)
    assert (found.name, found.value) == SUCCESSORS[case]


def test_every_argument_of_0_5_2_that_is_gone_has_a_successor_or_advice() -> None:
    for version in known_versions():
        for name in FIELDS.keys() - release(version).arguments.keys():
            found = successor(name, version)
            assert found.name in release(version).arguments if found.name else found.advice, (version, name)


def test_every_note_is_about_an_argument_that_some_release_drops() -> None:
    dropped = {name for row in rows() for name in row.get("arguments", {}).get("removed", ())}
    before = {name for name, note in notes().items() if "had" in note}
    assert notes().keys() - before <= dropped
    assert all(canonical_name(name) is None and not at_least(notes()[name]["had"], "0.5.2") for name in before)
    assert all(notes()[name].get("to", "model_path") in EVERY for name in before)
    assert all(note["source"] for note in notes().values())


def test_every_argument_that_is_gone_has_a_successor_or_advice() -> None:
    for version in known_versions():
        later = [known for known in known_versions() if at_least(known, version)]
        for name in release(version).arguments:
            for new in later[-1:]:
                found = successor(name, new)
                if name[0] != "_" and name not in release(new).arguments:
                    assert found.name in release(new).arguments if found.name else found.advice, (version, name, new)


def test_values_are_renamed_with_their_argument() -> None:
    found = successor("nsa_prefill_cp_mode", "0.5.20")
    assert (found.name, found.value_of("round-robin-split")) == ("cp_strategy", "interleave")
    assert successor("nsa_prefill_cp_mode", "0.5.13").name == "dsa_prefill_cp_mode"
    assert successor("enable_nsa_prefill_context_parallel", "0.5.20").also == "nsa_prefill_cp_mode"
