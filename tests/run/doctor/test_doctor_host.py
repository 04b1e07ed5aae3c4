"""The checks of host, disks, model, ports and packages: one row a machine, with what must be said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sglang_hydra.facts.tiny import tiny_path
from sglang_hydra.run.doctor import host, storage
from sglang_hydra.run.doctor.machine_state import Examinee, HubAnswer, ModelFiles, Space, World
from sglang_hydra.text.findings import Finding
from tests.run.doctor.doctor_worlds import GIB, HEALTHY, LAPTOP, disk, engine, gpu, judge, with_gpus

MIB = 1 << 20
DOCKER_SHM = Space("/dev/shm", 64 * MIB, 64 * MIB, True)
ONE = with_gpus(gpu(0))


def changed(world: World = HEALTHY, **changes: Any) -> World:
    return replace(world, **changes)


@pytest.mark.parametrize(
    ("world", "state", "words"),
    [
        (HEALTHY, "ok", ("500.0 GiB free of 4000.0 GiB",)),
        (changed(shm=DOCKER_SHM), "error", ("64 MiB free", "74 MiB at least for 8 GPUs", "remount,size=32g")),
        (changed(shm=DOCKER_SHM, container="docker"), "error", ("docker run --shm-size=32g",)),
        (changed(shm=DOCKER_SHM, container="kubernetes"), "error", ("medium: Memory",)),
        (changed(with_gpus(gpu(0), gpu(1)), shm=DOCKER_SHM), "warning", ("NVIDIA asks for 1 GiB",)),
        (changed(ONE, shm=DOCKER_SHM), "ok", ("64 MiB",)),
        (changed(ONE, shm=DOCKER_SHM._replace(free_bytes=MIB)), "warning", ("next to nothing",)),
        (changed(shm=disk("/dev/shm", 0.01)), "error", ("nccl-*",)),
        (changed(shm=disk("/dev/shm", writable=False)), "error", ("chmod 1777",)),
        (changed(shm=None), "error", ("8 GPUs need it",)),
        (changed(LAPTOP, shm=None), "unknown", ()),
        (changed(shm=Space("/dev/shm")), "unknown", ()),
    ],
)
def test_shared_memory_is_judged_by_the_ranks(world: World, state: str, words: tuple[str, ...]) -> None:
    judge(host.check_shared_memory, world, state, *words)


ON_HUB = ModelFiles("hub", weight_bytes=700 * GIB, hub=HubAnswer("open", weight_bytes=700 * GIB))


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({}, "ok", ("here already",)),
        ({"weights": disk(free_gib=1)}, "ok", ("here already",)),
        ({"model": ON_HUB}, "ok", ("700.0 GiB to download",)),
        ({"model": ON_HUB, "weights": disk(free_gib=120)}, "error", ("120.0 GiB free on /data", "download_dir=")),
        ({"model": None, "weights": disk(free_gib=5)}, "warning", ("little",)),
        ({"model": None}, "ok", ("2000.0 GiB free",)),
        ({"weights": Space("/data")}, "unknown", ()),
        ({"weights": None}, "unknown", ()),
    ],
)
def test_the_disk_must_hold_what_is_to_be_downloaded(
    changes: dict[str, Any], state: str, words: tuple[str, ...]
) -> None:
    judge(storage.check_weights_disk, changed(**changes), state, *words)


FOLDER = ModelFiles("folder", "/m", tokenizer=True, weight_bytes=GIB)
CACHED = ModelFiles("cached", "/c/snap", tokenizer=True, missing=("model-2.safetensors",), weight_bytes=GIB)


def hub(state: str, why: str = "", token: str | None = None) -> ModelFiles:
    return ModelFiles("hub", weight_bytes=GIB, hub=HubAnswer(state, why, GIB), token=token)


@pytest.mark.parametrize(
    ("model", "state", "words"),
    [
        (FOLDER, "ok", ("/m (1.0 GiB)", "config and tokenizer there")),
        (FOLDER._replace(tokenizer=False), "warning", ("no tokenizer", "tokenizer_path=")),
        (FOLDER._replace(config_problem="it has no config.json"), "error", ("/m: it has no config.json",)),
        (FOLDER._replace(missing=("a", "b", "c", "d")), "error", ("lacks a, b, c and 1 more", "load_format=dummy")),
        (FOLDER._replace(pointers=("a.safetensors",)), "error", ("Git LFS pointers: a.safetensors", "lfs pull")),
        (
            FOLDER._replace(unreadable=("config.json",)),
            "error",
            ("may not read config.json", "chmod a+r /m/config.json"),
        ),
        (ModelFiles("file", "/m/x.gguf", weight_bytes=GIB), "ok", ("/m/x.gguf",)),
        (ModelFiles("missing"), "error", ("org/m is not on this machine",)),
        (ModelFiles("remote"), "unknown", ("read when the server starts",)),
        (None, "unknown", ("no model was named", "doctor model=NAME")),
        (CACHED._replace(missing=()), "ok", ("/c/snap",)),
        (CACHED._replace(hub=HubAnswer("open")), "ok", ("/c/snap still lacks model-2.safetensors", "the hub has it")),
        (CACHED._replace(hub=HubAnswer("not asked", "HF_HUB_OFFLINE is set")), "error", ("unset HF_HUB_OFFLINE",)),
        (hub("open", token="HF_TOKEN"), "ok", ("1.0 GiB to download", "a token is set in HF_TOKEN")),
        (hub("gated", "why"), "error", ("gated", "no token is set", "https://huggingface.co/org/m", "export HF_TOKEN")),
        (hub("absent", "the hub has no such model"), "error", ("no such model", "export HF_TOKEN")),
        (hub("absent", "the hub has no such model", "HF_TOKEN"), "error", ("a token is set in HF_TOKEN",)),
        (hub("not asked", "TRANSFORMERS_OFFLINE is set"), "error", ("unset TRANSFORMERS_OFFLINE", "hf download org/m")),
        (hub("not asked", "huggingface_hub is not installed here"), "unknown", ("hf download org/m",)),
        (hub("silent", "no answer within 5 s"), "warning", ("no answer", "HTTPS_PROXY")),
    ],
)
def test_access_to_the_model_is_judged(model: ModelFiles | None, state: str, words: tuple[str, ...]) -> None:
    judge(storage.check_model, changed(model=model, request=Examinee(model_path="org/m")), state, *words)


def test_the_model_that_is_made_here_is_not_missing_before_it_is_made() -> None:
    world = changed(model=ModelFiles("missing"), request=Examinee(model_path=str(tiny_path())))
    judge(storage.check_model, world, "ok", "is made when the server starts")


BUSY = Finding("error", "ENG006", "port 30000 is in use by process 4242 (python)", hint="port=30001")


def test_the_port_must_be_free() -> None:
    judge(host.check_port, HEALTHY, "ok", "127.0.0.1:30000 is free")
    judge(host.check_port, changed(obstacle=BUSY), "error", "process 4242 (python)", "type: port=30001")


@pytest.mark.parametrize(
    ("world", "state", "words"),
    [
        (HEALTHY, "ok", ("sglang 0.5.2, torch 2.8.0", "/venv/bin/python -m pip check")),
        (engine(versions={"torch": "2.8.0"}), "warning", ("SGLang is not installed here (torch 2.8.0)",)),
        (engine(versions={}), "warning", ("nor is torch", "engine.python=", 'pip install "sglang[all]==')),
        (engine(problem="engine.python=x is not a program here"), "error", ("not a program here",)),
    ],
)
def test_the_packages_of_the_engine_are_named(world: World, state: str, words: tuple[str, ...]) -> None:
    judge(host.check_packages, world, state, *words)
