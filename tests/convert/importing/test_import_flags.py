"""Flags of every release, presets, reductions and secrets."""

from __future__ import annotations

import gzip
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_hydra.arguments.accepted import accepted
from sglang_hydra.arguments.reading import parse_argv, read
from sglang_hydra.arguments.rendering import render
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.recipes import recipes
from sglang_hydra.convert.importing.flags import read_arguments
from sglang_hydra.convert.importing.launches import Launch
from sglang_hydra.convert.upgrade.releases import started_from
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.text.errors import ConfigError
from tests.convert.importing.importing import composer, ids, imported, states, the_one

PROGRAM = ["python", "-m", "sglang.launch_server"]
LAUNCH = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B"
OFFLINE = {"HF_HUB_OFFLINE": "1"}
CONFORMANCE = Path(__file__).parents[2] / "data" / "conformance"


def line_of(argv: list[str]) -> str:
    return shlex.join([*PROGRAM, *argv])


@pytest.mark.corpus
@pytest.mark.parametrize("id", sorted(recipes()))
def test_every_recipe_comes_back_as_the_same_arguments_and_the_same_server(id: str) -> None:
    plan = make_plan(composer(), [Request(f"recipe={id}", "test")], seed=42, env=OFFLINE)
    written_for = started_from(recipes()[id].version, "it")
    if written_for and any(finding.id == "RUN015" for finding in plan.errors):  # a model newer than 0.5.2
        own = Request(f"engine.version={written_for.version}", "test")
        plan = make_plan(composer(), [Request(f"recipe={id}", "test"), own], seed=42, env=OFFLINE)
    version = plan.engine.version
    argv = accepted(plan.intent, version).flags()
    gpu = plan.nodes.gpu.name
    server = the_one(line_of(argv), f"gpu={gpu}", f"engine.version={version}")
    assert server.argv is not None
    assert parse_argv(server.argv, version) == parse_argv(argv, version)
    assert server.complete
    assert server.equal
    again = make_plan(composer(), requests_of(server), seed=42, env=OFFLINE)
    without_presets = make_plan(
        composer(),
        [
            Request(f"gpu={gpu}", "test"),
            Request(f"engine.version={version}", "test"),
            *(Request.typed(key, value, "test") for key, value in parse_argv(argv, version).items()),
        ],
        seed=42,
        env=OFFLINE,
    )
    assert again.values == without_presets.values
    assert again.server_id == without_presets.server_id == server.server_id


def requests_of(server: Any) -> list[Request]:
    words = {**server.choices, "engine": "sglang", **server.overrides, **server.nodes}
    return [Request.typed(key, value, "test") for key, value in words.items() if key != "engine" or "gpu" in words]


def recorded_argv() -> list[tuple[str, list[str]]]:
    cases = []
    for name in ("public", "targeted"):
        with gzip.open(CONFORMANCE / f"{name}.jsonl.gz", "rt") as file:
            cases += [json.loads(line)["case"] for line in file]
    return [(case["id"], case["argv"]) for case in cases if "argv" in case]


@pytest.mark.thorough
def test_every_recorded_command_line_comes_back_as_the_same_arguments() -> None:
    cases = recorded_argv()
    assert len(cases) == 174
    different = []
    for id, argv in cases:
        server = the_one(line_of(argv), "gpu=h200")
        found = read(argv, "0.5.2")
        values, refused = found.values, found.findings
        if refused:
            later = "engine.version" in server.nodes
            different += [] if later or not server.complete else [id]
            continue
        wanted = {name: value for name, value in values.items() if render({name: value}, defaults=True)}
        different += [] if server.argv is not None and parse_argv(server.argv) == wanted else [id]
    assert different == []


@pytest.mark.parametrize(
    ("flags", "version", "nodes", "overrides"),
    [
        ("--enable-piecewise-cuda-graph", "0.5.9", {"enable_piecewise_cuda_graph": True}, {}),
        ("--pp-max-micro-batch-size 4", "0.5.23", {"pp_max_micro_batch_size": 4}, {}),
        ("--tp 2", None, {}, {"tp_size": 2}),
    ],
)
def test_a_flag_of_a_later_release_is_known(
    flags: str, version: str | None, nodes: dict[str, Any], overrides: dict[str, Any]
) -> None:
    server = the_one(f"{LAUNCH} {flags}")
    assert server.version == version
    assert {key: value for key, value in server.nodes.items() if key != "engine.version"} == nodes
    assert server.overrides == overrides
    assert server.complete


@pytest.mark.parametrize(
    ("flags", "id", "hint"),
    [
        ("--tp-sise 8", "ARG010", "--tp-size 8"),
        ("--dtype bf16", "ARG014", "bfloat16"),
        ("--tp two", "ARG013", ""),
        ("--tp", "ARG012", "--tp"),
        ("--speculative-algorithm eagle", "ARG014", "--speculative-algorithm EAGLE"),
        ("extra words", "ARG016", ""),
    ],
)
def test_what_sglang_would_not_read_is_said_and_left_out(flags: str, id: str, hint: str) -> None:
    server = the_one(f"{LAUNCH} {flags}")
    errors = [finding for finding in server.findings if finding.level == "error"]
    assert id in [finding.id for finding in errors]
    assert hint in " ".join(str(finding.hint) for finding in errors)
    assert not server.complete
    assert server.overrides == {}


@pytest.mark.parametrize(
    ("flags", "gpu", "name", "state"),
    [
        ("--port 30000", "h200", "port", "kept"),
        ("--chunked-prefill-size 8192", "h200", "chunked_prefill_size", "kept"),
        ("--chunked-prefill-size 8192", "b200", "chunked_prefill_size", "kept"),
        ("--chunked-prefill-size 8192", None, "chunked_prefill_size", "kept"),
        ("--grammar-backend xgrammar", None, "grammar_backend", "kept"),
        ("--dp 1 --enable-dp-attention", "h200", "enable_dp_attention", "overridden"),
        ("--tp 2 --dp 2 --enable-dp-attention", "h200", "schedule_conservativeness", ""),
        (
            "--tp 2 --dp 2 --enable-dp-attention --chunked-prefill-size 4096",
            "h200",
            "chunked_prefill_size",
            "overridden",
        ),
        ("--tp 2 --enable-ep-moe", "h200", "enable_ep_moe", "deprecated"),
        ("--random-seed 42", "h200", "random_seed", "kept"),
        ("--api-key abc", "h200", "api_key", "secret"),
    ],
)
def test_every_argument_is_marked(flags: str, gpu: str | None, name: str, state: str) -> None:
    gpus = [f"gpu={gpu}"] if gpu else []
    server = the_one(f"{LAUNCH} {flags}", "engine.version=0.5.2", *gpus)
    assert states(server).get(name, "") == state
    assert server.equal
    assert "redundant" not in states(the_one(f"{LAUNCH} {flags}", *gpus)).values()


@pytest.mark.parametrize(
    ("path", "model", "overrides"),
    [
        ("Qwen/Qwen3-8B", "qwen3_8b", {}),
        ("qwen/qwen3-8b", None, {"model_path": "qwen/qwen3-8b"}),
        ("Qwen/Qwen3-8B-FP8", None, {"model_path": "Qwen/Qwen3-8B-FP8"}),
        ("/models/Qwen3-8B", None, {"model_path": "/models/Qwen3-8B"}),
        ("moonshotai/Kimi-K2-Instruct", "kimi_k2", {"trust_remote_code": False}),
    ],
)
def test_the_nearest_preset_is_one_of_the_same_checkpoint(
    path: str, model: str | None, overrides: dict[str, Any]
) -> None:
    server = the_one(f"{' '.join(PROGRAM)} --model-path {path}", "gpu=h200")
    assert server.choices.get("model") == model
    assert server.overrides == overrides
    assert server.nodes.get("model.facts_from") == ("qwen3_8b" if path == "qwen/qwen3-8b" else None)
    assert server.equal


def test_a_preset_that_was_typed_takes_the_place_of_the_path() -> None:
    server = the_one(
        f"{' '.join(PROGRAM)} --model-path /models/v3 --tp 8", "model=deepseek_v3", "gpu=h200", "tp_size=4"
    )
    assert server.choices == {"model": "deepseek_v3", "gpu": "h200"}
    assert server.overrides == {"tp_size": 4}
    assert server.equal


def test_an_override_behind_the_source_must_be_one() -> None:
    with pytest.raises(ConfigError):
        the_one(LAUNCH, "tpsize=4")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"{LAUNCH} --api-key sesame-open", "sesame-open"),
        (f"{LAUNCH} --api-key=sesame-open", "sesame-open"),
        (f"HF_TOKEN=sesame-open {LAUNCH}", "sesame-open"),
        (f"docker run -e HF_TOKEN=sesame-open lmsysorg/sglang:latest {LAUNCH}", "sesame-open"),
        (f"export AWS_SECRET_ACCESS_KEY=x HF_TOKEN=sesame-open; {LAUNCH}", "sesame-open"),
        (f"{LAUNCH} --admin-api-key sesame-open", "sesame-open"),
        (f"{LAUNCH} --api-kye sesame-open", "sesame-open"),
        (f"{LAUNCH} --tp x --api-key sesame-open", "sesame-open"),
    ],
)
def test_a_secret_is_in_nothing_that_is_written(text: str, secret: str) -> None:
    from sglang_hydra.convert.importing.report import record

    servers = imported(text)
    assert secret not in json.dumps(record("typed", servers))
    assert secret not in repr([finding for server in servers for finding in server.findings])
    assert secret not in repr(servers)


def test_a_key_from_a_variable_stays_in_that_variable() -> None:
    server = the_one(f'{LAUNCH} --api-key "$MY_KEY"')
    assert server.overrides == {"api_key": "${oc.env:MY_KEY}"}
    assert "IMP009" in ids(server)


FLAG_WORDS = st.sampled_from(
    [
        "--tp",
        "--tp=2",
        "--model",
        "--api-key",
        "--",
        "-",
        "--lora-paths",
        "--enable-dp-attention",
        "--x",
        "$A",
        "8",
        "{",
        "",
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(FLAG_WORDS, st.text(max_size=8)), max_size=8))
def test_no_words_crash_the_reader(words: list[str]) -> None:
    made = read_arguments(Launch("flags", "", words=tuple(words)), None)
    assert all(finding.message for finding in made.findings)


def read_or_refused(text: str, *overrides: str) -> bool:
    """Whether a text gives servers of which something is known, or a refusal that says why."""
    try:
        servers = imported(text, *overrides)
    except ConfigError as refused:
        return all(finding.id.startswith(("IMP", "CLI")) and finding.message for finding in refused.findings)
    return bool(servers) and all(server.states or server.findings for server in servers)


SHELL = st.sampled_from(
    [
        "$(",
        "${",
        "`",
        "'",
        '"',
        "\\",
        "\n",
        "<<E\n",
        ">",
        "|",
        "(",
        ")",
        "$A",
        "A=(",
        "A=$A",
        "$((1/0))",
        "#",
        " ",
        "${A:-${A:-}}",
    ]
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.one_of(SHELL, st.text(max_size=5)), max_size=12))
def test_no_script_crashes_the_import(pieces: list[str]) -> None:
    assert read_or_refused(f"{''.join(pieces[:6])} {LAUNCH} {''.join(pieces[6:])}", "gpu=h200")


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a, *a]\nkind: x\napiVersion: v1\n",
        "apiVersion: v1\nkind: Pod\nspec: {containers: [{command: 5, args: {a: 1}}]}",
        "services: {a: {command: {x: 1}}, b: 7, c: [1]}",
        "backend: {sglang_config: {prefill: {tp-size: [1, {a: 2}]}, decode: 3}}",
        "model-path: [a, b]\ntp-size: {a: b}\n",
        "[[[[]]]]",
        "server_args=ServerArgs(model_path=",
        "server_args={'model_path': ['a'], 'tp_size': 'x'}",
        "\ue000" + LAUNCH + " --tp \ue000x\ue001",
        LAUNCH + " --tp " + "9" * 5000,
        LAUNCH + " --config /etc",
        "x=" + "$x" * 2000 + "; " + LAUNCH + " --tp $x",
        "&".join(["a: &a1 [x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(2, 30)]),
        "{" * 3000,
        "x=aaaaaaaa\n" + "x=$x$x\n" * 60 + LAUNCH + " --tp $x",
        "A=(a b)\n" + 'A+=("${A[@]}")\n' * 60 + LAUNCH + ' "${A[@]}"',
        "model-path: x\ntp-size: &a1 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(2, 60)),
        "services:\n" + "".join(f"{'  ' * depth}a:\n" for depth in range(300)),
    ],
    ids=range(18),
)
def test_hostile_texts_are_refused_or_read(text: str) -> None:
    assert read_or_refused(text)
