"""The sealed child: what it answers from facts, and what it refuses by name."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.releases import wheels
from sglang_hydra.releases.case import ASSUMED
from sglang_hydra.releases.child.sealed import Sealed
from sglang_hydra.releases.process import Child
from tests.releases.fake import unpacked_release

H200 = {
    "device": "cuda", "memory_mib": 143771, "capability": [9, 0], "count": 8, "name": "NVIDIA H200", "flashinfer": True,
    "triton_kernels": True, "cuda": "12.8", "environment": {"SGLANG_MINE": "1"}, "assumed": dict(ASSUMED),
}  # fmt: skip
CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64}
Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    patch = pytest.MonkeyPatch()
    patch.setenv("MY_SECRET", "s")
    record = unpacked_release(tmp_path_factory.mktemp("release"), patch)
    places = [place for wheel in record.wheels if (place := wheels.place_of(wheel))]
    child = Child(record, places, H200)

    def of(question: str, *words: str, **case: Any) -> dict[str, Any]:
        argv = ["--model-path", "org/name", *(("--ask", question) if question else ()), *words]
        return child.ask({"argv": argv, "machine": {}, "models": {"org/name": CONFIG}, **case})

    yield of
    child.end()
    patch.undo()


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("memory", 143771.0),
        ("driver", "595.58.03"),
        ("capability", [9, 0]),
        ("config", 64),
        ("absent", False),
        ("path", "org/name"),
        ("environment", ["SGLANG_LEFT", "SGLANG_MINE"]),
        ("known", 42),
        ("kind", "cuda"),
        ("none", False),
        ("print", None),
        ("processor", "x86_64"),
        ("idna", "name.org"),
        ("host", "localhost"),
        ("folder", "made"),
        ("libc", None),
        ("affinity", 32),
        ("id", [f"{number:032x}" for number in (1, 2)]),
    ],
)
def test_a_question_is_answered_from_the_facts(ask: Ask, question: str, answer: Any) -> None:
    made = ask(question)
    assert made["ok"] is True, made
    assert made["values"] == {"model_path": "org/name", "ask": question, "random_seed": 0, "found": answer}


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("serial", "nvidia-smi --query-gpu=serial"),
        ("program", "lscpu"),
        ("property", "the property multi_processor_count of the accelerator"),
        ("mmap", "what mmap of the C library does"),
        ("libnuma", "libnuma.so"),
        ("host_memory", "the memory of the host (the fact host_memory_mib)"),
        ("threads", "psutil.Process().num_threads"),
        ("which", "the program gcc"),
        ("proc", "the file /proc/meminfo"),
        ("declared", "the file /etc/chat.jinja"),
        ("socket", "socket.getaddrinfo"),
        ("random", "a random number from 0 to 9 (the fact seed)"),
        ("call", "sgl_kernel.fast_op()"),
        ("truth", "the truth of sgl_kernel.fast_op"),
        ("equal", "whether sgl_kernel.fast_op equals 3"),
        ("order", "the order of sgl_kernel.fast_op and 3"),
        ("length", "the length of sgl_kernel.fast_op"),
        ("iterate", "what is in sgl_kernel.fast_op"),
        ("contains", "whether 3 is in sgl_kernel.fast_op"),
        ("item", "the item 'a' of sgl_kernel.fast_op"),
        ("sum", "arithmetic with sgl_kernel.fast_op"),
        ("text", "the text of sgl_kernel.fast_op"),
        ("hasattr", "whether torch has unheard_of"),
        ("value", "the value sgl_kernel.fast_op"),
        ("swallow", "the truth of sgl_kernel.fast_op"),
        ("mystery", "sglang.srt.layers.mystery.decide()"),
    ],
)
def test_what_no_fact_answers_is_refused_by_its_name(ask: Ask, question: str, named: str) -> None:
    made = ask(question)
    assert made["unanswered"].startswith("unanswered question: ")
    assert named in made["unanswered"]
    assert "values" not in made


def test_a_model_is_found_behind_an_equals_sign_too(ask: Ask) -> None:
    case = {"argv": ["--model-path=org/name", "--ask=config"], "machine": {}, "models": {"org/name": CONFIG}}
    assert ask("", **case)["values"]["found"] == 64
    assert ask("", **case)["values"]["model_path"] == "org/name"


def test_no_part_of_a_models_path_that_is_drawn_can_name_a_model_type(ask: Ask) -> None:
    """transformers takes the first type that a path holds for that of a config without one, and types are small."""
    path = "".join(ask("spelled")["values"]["found"])
    drawn = path.removeprefix(tempfile.gettempdir()).removesuffix("/models/org/name")
    assert drawn == drawn.upper() != path


def test_the_place_that_asks_is_named(ask: Ask) -> None:
    assert "(server_args.py:" in ask("truth")["unanswered"]


def test_a_refusal_says_its_stage_and_line(ask: Ask) -> None:
    made = ask("", "--random-seed", "7")
    assert (made["ok"], made["stage"]) == (False, "check")
    assert made["error"].startswith("ValueError: 7 is refused (server_args.py:")
    assert ask("", "--no-such-flag")["stage"] == "argparse"


def test_a_machine_may_change_what_is_asked_anew(ask: Ask) -> None:
    assert ask("memory", machine={"memory_mib": 5})["values"]["found"] == 5.0
    assert ask("memory", machine={"memory_mib": 143771})["values"]["found"] == 143771.0


def test_an_assumed_fact_is_told(ask: Ask) -> None:
    assert ask("driver")["assumed"] == {"driver": "595.58.03"}
    assert ask("driver", machine={"driver": "570.1"})["values"]["found"] == "570.1"
    assert ask("driver", machine={"driver": "570.1"})["assumed"] == {}


def test_what_is_assumed_of_a_host_is_told(ask: Ask) -> None:
    assert ask("processor")["assumed"] == {"processor": "x86_64"}
    assert ask("processor", machine={"processor": "aarch64"})["assumed"] == {}
    assert ask("processor", machine={"processor": None})["values"]["found"] == "x86_64"
    assert ask("cores")["values"]["found"] == "31,31,0,0"
    assert ask("cores")["assumed"] == {"numa_nodes": 1, "cores_per_node": 32}
    two = ask("cores", machine={"numa_nodes": 2, "cores_per_node": 4})
    assert (two["values"]["found"], two["assumed"]) == ("7,7,1,1", {})
    assert ask("infiniband")["assumed"] == {"infiniband": None}
    assert ask("folder")["assumed"] == {"made_folders": ["/crash/localhost"]}
    assert ask("id")["assumed"] == {"drawn_ids": 2}


def test_a_package_of_an_extra_is_absent_unless_it_is_declared(ask: Ask) -> None:
    absent = ask("extra", machine={"packages": {}})
    assert (absent["ok"], absent["assumed"]) == (False, {"package granian": None})
    assert absent["error"].startswith("ModuleNotFoundError: No module named 'granian'")


@pytest.mark.parametrize(
    ("device", "question", "found", "assumed"),
    [
        ("cpu", "host_memory", 512 << 30, {}),
        ("hip", "hip", "6.4", {"hip": "6.4", "SGLANG_USE_AITER": None}),
    ],
)
def test_a_machine_of_another_kind(
    device: str, question: str, found: Any, assumed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = unpacked_release(tmp_path, monkeypatch)
    places = [place for wheel in record.wheels if (place := wheels.place_of(wheel))]
    child = Child(record, places, {**H200, "device": device, "memory_mib": 512 << 10})
    try:
        made = child.ask({"argv": ["--model-path", "x", "--ask", question], "machine": {}, "models": {}})
    finally:
        child.end()
    assert (made["values"]["found"], made["assumed"]) == (found, assumed)


def test_declared_files_are_found_and_absent_ones_are_absent(ask: Ask) -> None:
    assert ask("declared", files={"/etc/chat.jinja": "hello"})["values"]["found"] == "hello"
    assert "No such file" in ask("declared", files={"/etc/chat.jinja": None})["error"]
    assert ask("infiniband", machine={"infiniband": ["mlx5_0"]})["values"]["found"] == ["mlx5_0"]
    assert "No such file" in ask("infiniband", machine={"infiniband": None})["error"]


def test_what_a_case_leaves_behind_does_not_reach_the_next(ask: Ask) -> None:
    first = ask("environment")
    assert first["environment"] == {"SGLANG_LEFT": "1"}
    assert ask("environment")["values"] == first["values"]


def test_what_a_late_import_sets_and_asks_is_in_no_answer(ask: Ask) -> None:
    answers = [ask("lazy"), ask("path"), ask("lazy")]
    assert answers[0] == answers[2]
    assert answers[0]["values"]["found"] == "~/lazy"
    assert answers[0]["environment"] == {"SGLANG_LEFT": "1"}
    assert "processor" not in answers[0]["assumed"]


def test_a_name_that_transformers_looks_for_twice_ends(ask: Ask) -> None:
    found, number = ask("tokenizer")["values"]["found"]
    assert found is True
    assert number < 10


def test_warnings_of_the_release_are_told(ask: Ask) -> None:
    assert ask("warn")["warnings"] == ["mind this"]
    assert ask("memory")["warnings"] == []


def test_several_files_of_a_model_are_laid_out(ask: Ask) -> None:
    several = {"org/name": {"files": {"config.json": {"hidden_size": 5}, "params.json": "{}"}}}
    assert ask("absent", models=several)["values"]["found"] is True
    assert ask("config", models=several)["values"]["found"] == 5


def test_a_fact_that_nobody_declared_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = unpacked_release(tmp_path, monkeypatch)
    places = [place for wheel in record.wheels if (place := wheels.place_of(wheel))]
    child = Child(record, places, {**H200, "memory_mib": None, "assumed": {}})
    try:
        case = {"machine": {}, "models": {}}
        memory = child.ask({"argv": ["--model-path", "x", "--ask", "memory"], **case})
        driver = child.ask({"argv": ["--model-path", "x", "--ask", "driver"], **case})
    finally:
        child.end()
    assert "(the fact memory_mib)" in memory["unanswered"]
    assert "(the fact driver)" in driver["unanswered"]


def test_what_a_library_reads_of_its_own_files_is_kept_with_the_byte_code() -> None:
    read, sealed = [], Sealed({})

    def names(path: str, prefix: str | None = None) -> dict[frozenset[str], dict[str, set[str]]]:
        read.append((path, prefix))
        return {frozenset(): {"albert": {"AlbertConfig"}}}

    kept = sealed.kept(names)
    assert kept("models", prefix="m") == kept("models", prefix="m") == names("models")
    assert kept("models", prefix="n") is not kept("models", prefix="n")
    assert read == [("models", "m"), ("models", None), ("models", "n")]
    assert len(sealed.made) == 2
