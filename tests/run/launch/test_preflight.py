"""The checks of this machine before a start: all problems at once, each finding with what to type."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.facts import probe
from sglang_hydra.facts.probe import GpuProbe
from sglang_hydra.planning.plan import Plan
from sglang_hydra.run.doctor import observe
from sglang_hydra.run.doctor.machine_state import Gpu, Holder, Nvidia
from sglang_hydra.run.launch import preflight as room
from sglang_hydra.run.launch.preflight import gpu_numbers, memory_findings, port_findings, preflight
from sglang_hydra.text.findings import Finding
from tests.plans import planned

CPU = ("gpu=cpu", "model=tiny")
QWEN = ("gpu=h200", "model=qwen3_8b")
TOTAL = 143771.0
SECOND = "model-00002-of-00002.safetensors"


def ids(findings: object) -> list[str]:
    assert isinstance(findings, (list, tuple))
    return [finding.id for finding in findings]


def one(findings: list[Finding] | tuple[Finding, ...], id: str) -> Finding:
    (found,) = [finding for finding in findings if finding.id == id]
    return found


@contextmanager
def busy(host: str = "127.0.0.1") -> Iterator[int]:
    with socket.socket() as other:
        other.bind((host, 0))
        other.listen(1)
        yield other.getsockname()[1]


def here(*overrides: str, env: Mapping[str, str] | None = None) -> list[Finding]:
    """What the preflight says of a plan, in an environment of its own."""
    found = preflight(planned(*overrides), {"HOME": "/nowhere", **(env or {})})
    return list(found.findings)


def gpu(number: int, used: float = 4.0, *holders: Holder) -> Gpu:
    return Gpu(
        number,
        "NVIDIA H200",
        f"GPU-{number}",
        total_mib=TOTAL,
        used_mib=used,
        free_mib=TOTAL - used,
        capability=(9, 0),
        holders=holders,
    )


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine with these GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def machine(*cards: Gpu, visible: int | None = None, memory_mib: float = TOTAL, vendor: str = "nvidia") -> None:
        count = len(cards) if visible is None else visible
        found = GpuProbe(
            vendor=vendor,
            device="cuda",
            names=("NVIDIA H200",) * count,
            memory_mib=memory_mib,
            visible_memory_mib=memory_mib,
            count=count,
            total=len(cards),
            visible="CUDA_VISIBLE_DEVICES=0" if visible is not None else None,
        )
        monkeypatch.setattr(probe, "probe_gpu", lambda env, python=None: found)
        monkeypatch.setattr(observe, "survey_nvidia", lambda: Nvidia(gpus=tuple(cards)))

    return machine


def test_a_machine_that_has_what_it_takes_is_not_remarked_on() -> None:
    assert here(*CPU, "port=0") == []


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    with busy() as port:
        found = here("gpu=cpu", f"model_path={tmp_path / 'model'}", f"port={port}", "engine.version=0.5.9")
    assert set(ids(found)) >= {"ENG006", "DOC013"}
    assert all(finding.hint for finding in found)


@pytest.mark.parametrize(
    ("overrides", "fields"),
    [
        ("port={port}", ("port",)),
        ("nccl_port={port} port=0", ("nccl_port",)),
        (
            "disaggregation_mode=prefill disaggregation_bootstrap_port={port} port=0 disable_radix_cache=true",
            ("disaggregation_bootstrap_port",),
        ),
    ],
)
def test_a_port_that_is_taken_names_its_argument_and_who_has_it(overrides: str, fields: tuple[str, ...]) -> None:
    with busy() as port:
        finding = one(here(*CPU, *overrides.format(port=port).split()), "ENG006")
    assert finding.fields == fields
    assert f"port {port} is in use by process {os.getpid()} (" in finding.message
    assert finding.hint is not None
    assert finding.hint.startswith(f"{fields[0]}=")
    assert f"={port}," not in finding.hint


def test_the_ports_between_the_processes_count_where_there_are_any() -> None:
    model = ("gpu=h200", "model=deepseek_v3", "tp_size=8")
    with busy() as port:
        in_use = f"port {port} is in use"
        plain = planned(*model, f"port={port - 234}")
        attention = planned(*model, "dp_size=8", "enable_dp_attention=true", f"port={port - 234}")
        assert [finding for finding in port_findings(plain) if in_use in finding.message] == []
        (finding,) = [finding for finding in port_findings(attention) if in_use in finding.message]
    assert finding.fields == ("port",)


def test_an_sglang_other_than_the_one_asked_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang_hydra.facts import installed as packages

    monkeypatch.setattr(packages, "installed", lambda python: packages.Packages({"sglang": "0.5.23"}))
    finding = one(here(*CPU, "port=0", "engine=sglang", "engine.version=0.5.2"), "LCH004")
    assert "made for SGLang 0.5.2" in finding.message
    assert "has 0.5.23" in finding.message
    assert "LCH004" not in ids(here(*CPU, "port=0", "engine=sglang", "engine.version=0.5.23"))
    assert "LCH004" not in ids(here(*CPU, "port=0", "engine=sglang"))


def checkpoint(folder: Path, *, shards: int = 2, missing: int = 0) -> Path:
    names = [f"model-{number:05}-of-{shards:05}.safetensors" for number in range(1, shards + 1)]
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "hidden_size": 64}))
    (folder / "tokenizer.json").write_text("{}")
    index = {"metadata": {"total_size": 2048}, "weight_map": {f"layer.{name}": name for name in names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in names[: shards - missing]:
        (folder / name).write_bytes(b"\0" * 2000)
    return folder


def test_a_whole_checkpoint_is_fine(tmp_path: Path) -> None:
    assert here("gpu=cpu", f"model_path={checkpoint(tmp_path / 'model')}", "port=0") == []


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (
            lambda folder: (folder / "model-00002-of-00002.safetensors").unlink(),
            "lacks model-00002-of-00002.safetensors",
        ),
        (lambda folder: (folder / "config.json").unlink(), "it has no config.json"),
        (
            lambda folder: (folder / "model-00001-of-00002.safetensors").write_bytes(b"version https://git-lfs\n"),
            "Git LFS",
        ),
    ],
)
def test_a_checkpoint_that_is_not_whole_is_an_error(tmp_path: Path, break_it: Any, says: str) -> None:
    folder = checkpoint(tmp_path / "model")
    plan = planned("gpu=cpu", f"model_path={folder}", "port=0")
    break_it(folder)
    finding = one(preflight(plan, {}).findings, "DOC013")
    assert (finding.level, finding.fields) == ("error", ("model_path",))
    assert says in finding.message


def test_weights_that_are_made_up_need_not_be_there(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", missing=2)
    assert here("gpu=cpu", f"model_path={folder}", "port=0", "load_format=dummy") == []


def test_a_folder_that_is_not_there_is_an_error() -> None:
    finding = one(here("gpu=cpu", "model_path=/nowhere/model", "port=0"), "DOC013")
    assert finding.message == "/nowhere/model is not on this machine"


def test_a_draft_model_is_looked_for_too(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    overrides = ["gpu=h200", f"model_path={folder}", "port=0", "speculative_algorithm=EAGLE"]
    overrides += ["speculative_draft_model_path=/nowhere/draft", "speculative_num_steps=3"]
    overrides += ["speculative_eagle_topk=1", "speculative_num_draft_tokens=4"]
    found = [finding for finding in room.model_findings(planned(*overrides), {}) if finding.id == "DOC013"]
    assert [finding.fields for finding in found] == [("speculative_draft_model_path",)]


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_a_model_of_the_hub_that_may_not_be_asked_is_an_error(tmp_path: Path, variable: str) -> None:
    env = {"HF_HOME": str(tmp_path), variable: "1"}
    finding = one(here(*QWEN[1:], "gpu=cpu", "port=0", env=env), "DOC013")
    assert variable in finding.message
    assert "hf download Qwen/Qwen3-8B" in str(finding.hint)


def test_the_hub_is_not_asked_before_the_server_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang_hydra.run.doctor import model_files

    monkeypatch.setattr(model_files, "ask_hub", lambda *_: pytest.fail("the hub was asked"))
    assert here("model=qwen3_0_6b", "gpu=cpu", "port=0", env={"HF_HOME": str(tmp_path)}) == []


def test_a_model_in_the_cache_is_found_in_its_revision(tmp_path: Path) -> None:
    base = tmp_path / "hub" / "models--Qwen--Qwen3-8B"
    checkpoint(base / "snapshots" / "abc")
    (base / "refs").mkdir()
    (base / "refs" / "v1").write_text("abc")
    env = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    assert here("model=qwen3_8b", "gpu=cpu", "port=0", "revision=v1", env=env) == []
    assert "DOC013" in ids(here("model=qwen3_8b", "gpu=cpu", "port=0", env=env))


def test_a_disk_without_room_for_the_download_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang_hydra.run.doctor import observe
    from sglang_hydra.run.doctor.machine_state import Space

    small = Space(str(tmp_path), 1 << 34, 1 << 30, writable=True)
    monkeypatch.setattr(observe, "space", lambda path: small)
    finding = one(here("model=qwen3_8b", "gpu=cpu", "port=0", env={"HF_HOME": str(tmp_path)}), "DOC011")
    assert (finding.level, finding.fields) == ("error", ("download_dir",))
    # 8.19e9 parameters in two bytes.
    assert finding.message == f"1.0 GiB free on {tmp_path}, 15.3 GiB to download"


def test_a_cache_that_cannot_be_written_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    finding = one(here("model=qwen3_8b", "gpu=cpu", "port=0", "download_dir=/srv/models"), "LCH005")
    assert "/srv/models" in finding.message


def test_another_kind_of_machine_is_an_error(gpus: Any) -> None:
    gpus(vendor="amd")
    assert one(here(*QWEN, "port=0"), "GPU002").level == "error"


def test_another_gpu_of_that_kind_is_a_warning(gpus: Any) -> None:
    gpus(gpu(0), memory_mib=81559.0)
    assert one(here(*QWEN, "port=0"), "GPU003").level == "warning"


def test_fewer_gpus_than_the_plan_takes_is_an_error(gpus: Any) -> None:
    gpus(gpu(0), gpu(1))
    finding = one(here(*QWEN, "tp_size=4", "port=0"), "LCH002")
    assert finding.message == "the plan takes GPUs 0-3, and 2 GPUs can be seen here"
    assert finding.hint == "tp_size=2; or more nodes: nnodes=2"


def test_gpus_that_are_hidden_are_counted_as_such(gpus: Any) -> None:
    gpus(gpu(0), gpu(1), gpu(2), gpu(3), visible=1)
    finding = one(here(*QWEN, "tp_size=4", "port=0"), "LCH002")
    assert "CUDA_VISIBLE_DEVICES=0 hides 3" in finding.message


def test_the_gpus_from_base_gpu_id_on_are_the_ones_that_count(gpus: Any) -> None:
    gpus(*[gpu(number) for number in range(4)])
    assert "LCH002" not in ids(here(*QWEN, "tp_size=2", "base_gpu_id=2", "port=0"))
    assert "LCH002" in ids(here(*QWEN, "tp_size=2", "base_gpu_id=3", "port=0"))


def test_memory_that_others_hold_is_told_with_who_they_are(gpus: Any) -> None:
    gpus(gpu(0, 30000.0, Holder(4242, "python", 29000.0)), gpu(1))
    finding = one(here(*QWEN, "port=0"), "LCH003")
    assert finding.level == "warning"
    assert "GPU 0: 30000 MiB of 143771 MiB used; process 4242 (python) holds 29000 MiB; the KV cache" in finding.message
    assert "tokens, " in finding.message
    assert finding.hint == "CUDA_VISIBLE_DEVICES=1 takes idle ones; or stop process 4242 (python)"


def test_memory_held_on_gpus_that_the_plan_leaves_alone_is_not_remarked_on(gpus: Any) -> None:
    gpus(gpu(0, 140000.0), gpu(1))
    assert "LCH003" not in ids(here(*QWEN, "base_gpu_id=1", "port=0"))


@pytest.mark.parametrize(
    ("overrides", "used", "why"),
    [
        ((), (140000.0,), "no server starts in that"),
        (("tp_size=2",), (30000.0, 0.0), "less than 90 % of another's free"),
        (("model=qwen3_32b",), (80000.0,), "with them, the plan does not fit"),
    ],
)
def test_so_much_held_that_the_server_would_stop_is_an_error(
    gpus: Any, overrides: tuple[str, ...], used: tuple[float, ...], why: str
) -> None:
    gpus(*[gpu(number, amount) for number, amount in enumerate(used)])
    finding = one(here(*QWEN, *overrides, "port=0"), "LCH003")
    assert finding.level == "error"
    assert why in finding.message


def test_holders_that_cannot_be_seen_are_said_to_be(gpus: Any) -> None:
    gpus(gpu(0, 30000.0))
    assert "processes that cannot be seen from here" in one(here(*QWEN, "port=0"), "LCH003").message


def test_a_plan_for_no_gpu_asks_none() -> None:
    plan: Plan = planned(*QWEN)
    assert memory_findings(plan, (), ()) == []


@pytest.mark.parametrize(
    ("overrides", "numbers"),
    [
        ((), (0,)),
        (("tp_size=4",), (0, 1, 2, 3)),
        (("tp_size=2", "base_gpu_id=4", "gpu_id_step=2"), (4, 6)),
        (("tp_size=2", "dp_size=2"), (0, 1, 2, 3)),
        (("tp_size=8", "dp_size=8", "enable_dp_attention=true", "model=deepseek_v3"), tuple(range(8))),
        (("tp_size=16", "nnodes=2", "dist_init_addr=h:5000"), tuple(range(8))),
        (("tp_size=4", "pp_size=2", "nnodes=2", "dist_init_addr=h:5000"), (0, 1, 2, 3)),
        (("tp_size=2", "pp_size=2"), (0, 1, 2, 3)),
    ],
)
def test_a_nodes_gpus_are_numbered_as_sglang_numbers_them(overrides: tuple[str, ...], numbers: tuple[int, ...]) -> None:
    assert gpu_numbers(planned(*QWEN, *overrides)) == numbers
