"""What the probe finds, obeys and says, on machines that are faked one by one."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.facts import accelerators as search
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.probe import GpuProbe, probe_gpu
from sglang_hydra.facts.trust import grant
from tests.facts.facts_fakes import fake_pynvml, gpu, recorded, site, tool

Probe = Callable[..., GpuProbe]


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


@pytest.fixture
def probe(tmp_path: Path, bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Probe:
    """Probes a machine that has only what ``gpus`` and the tools in ``bin_dir`` say, and no torch."""

    def run(
        gpus: list[dict[str, Any]] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        site_paths: list[str] | None = None,
        python: str | None = None,
        broken: str = "NVML Shared Library Not Found",
    ) -> GpuProbe:
        module = fake_pynvml(gpus or (), broken=broken if gpus is None else None)
        monkeypatch.setitem(sys.modules, "pynvml", module)
        where = {"PATH": str(bin_dir), "ROCM_PATH": str(tmp_path / "rocm"), **(env or {})}
        paths = site_paths if site_paths is not None else site(tmp_path / "site")
        grant(python)  # as if it had been typed
        return probe_gpu(where, python=python, site_paths=paths)

    return run


EIGHT = [gpu(uuid=f"GPU-{index}") for index in range(8)]


def test_eight_equal_gpus_are_read_through_the_library(probe: Probe) -> None:
    found = probe(EIGHT)
    assert found.found
    assert (found.vendor, found.device, found.name) == ("nvidia", "cuda", "NVIDIA H200")
    assert (found.count, found.total, found.memory_mib, found.compute_capability) == (8, 8, 143771.0, (9, 0))
    assert found.tried[0] == "NVML: 8 x NVIDIA H200 143771 MiB"


def test_the_library_is_closed_again(probe: Probe) -> None:
    probe(EIGHT)
    assert sys.modules["pynvml"].shut_down == 1


def test_the_minimum_is_over_all_gpus_and_the_count_over_the_visible_ones(probe: Probe) -> None:
    machine = [gpu("NVIDIA H200", 143771), gpu("NVIDIA L4", 23034, (8, 9), "GPU-1"), gpu(uuid="GPU-2")]
    found = probe(machine, env={"CUDA_VISIBLE_DEVICES": "0,2"})
    assert found.memory_mib == 23034.0
    assert found.visible_memory_mib == 143771.0
    assert (found.count, found.total, found.names) == (2, 3, ("NVIDIA H200", "NVIDIA H200"))
    assert found.visible == "CUDA_VISIBLE_DEVICES=0,2"
    assert any("CUDA_DEVICE_ORDER" in sentence for sentence in found.tried)
    ordered = probe(machine, env={"CUDA_VISIBLE_DEVICES": "0,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert not any("CUDA_DEVICE_ORDER" in sentence for sentence in ordered.tried)


def test_name_and_capability_are_those_of_the_first_visible_gpu(probe: Probe) -> None:
    machine = [gpu("NVIDIA H200", 143771), gpu("NVIDIA L4", 23034, (8, 9), "GPU-1")]
    found = probe(machine, env={"CUDA_VISIBLE_DEVICES": "GPU-1,0"})
    assert (found.name, found.compute_capability) == ("NVIDIA L4", (8, 9))


def test_an_empty_variable_hides_every_gpu_and_the_probe_says_so(probe: Probe) -> None:
    found = probe(EIGHT, env={"CUDA_VISIBLE_DEVICES": ""})
    assert not found.found
    assert (found.device, found.count, found.total) == (None, 0, 8)
    assert "of 8 GPUs here none is visible: CUDA_VISIBLE_DEVICES=" in found.tried


def test_an_entry_that_names_nothing_is_told(probe: Probe) -> None:
    found = probe(EIGHT, env={"CUDA_VISIBLE_DEVICES": "0,9"})
    assert found.count == 1
    assert any(sentence.startswith("CUDA_VISIBLE_DEVICES=0,9: '9' names no GPU") for sentence in found.tried)


def test_a_machine_with_nothing_says_everything_that_was_tried(probe: Probe) -> None:
    found = probe()
    assert (found.found, found.device, found.count) == (False, None, 0)
    assert found.tried == (
        "NVML: NVML Shared Library Not Found",
        "rocminfo: not found on PATH",
        "hl-smi: not found on PATH",
        "torch: not installed in the engine's environment",
    )


def test_a_driver_without_a_gpu_does_not_end_the_search(probe: Probe, bin_dir: Path) -> None:
    tool(bin_dir, "rocminfo", prints=recorded("rocminfo_mi300x_vf.txt"))
    found = probe([])
    assert found.vendor == "amd"
    assert found.tried[0] == "NVML: no GPU"


def test_a_tool_that_hangs_is_left_after_its_time(probe: Probe, bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_slow(command: list[str], **kwargs: Any) -> subprocess.CompletedProcess[str]:
        assert kwargs["timeout"] == 20.0
        raise subprocess.TimeoutExpired(command, kwargs["timeout"])

    tool(bin_dir, "rocminfo", hangs=True)
    monkeypatch.setattr(subprocess, "run", too_slow)
    assert "rocminfo: no answer within 20 s" in probe().tried


def test_a_hanging_tool_is_really_ended(tmp_path: Path) -> None:
    tool(tmp_path, "hl-smi", hangs=True)
    one = search.Search({"PATH": str(tmp_path)}, None, [])
    assert one.run(["hl-smi"], timeout=0.2) is None
    assert one.tried == ["hl-smi: no answer within 0.2 s"]


def test_a_tool_that_cannot_be_run_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "hl-smi"
    broken.write_text("#!/no/such/shell\n", encoding="utf-8")
    broken.chmod(0o755)
    one = search.Search({"PATH": str(tmp_path)}, None, [])
    assert one.run(["hl-smi"]) is None
    assert one.tried[0].startswith("hl-smi: cannot be run (")


def test_a_library_that_breaks_midway_is_no_traceback(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_pynvml(EIGHT)

    def lost(index: int) -> Any:
        raise module.NVMLError("GPU is lost")

    module.nvmlDeviceGetHandleByIndex = lost  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynvml", module)
    found = probe_gpu({"PATH": "/nonexistent", "ROCM_PATH": "/nonexistent"}, site_paths=[])
    assert not found.found
    assert found.tried[0] == "NVML: GPU is lost"


def test_a_missing_package_for_the_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = probe_gpu({"PATH": "/nonexistent", "ROCM_PATH": "/nonexistent"}, site_paths=[])
    assert found.tried[0].startswith("NVML: the package nvidia-ml-py cannot be imported")


SLICES = [{"uuid": "MIG-1", "mib": 9856}, {"uuid": "MIG-2", "mib": 19968}]


def test_under_mig_the_whole_gpus_memory_counts_and_one_slice_is_visible(probe: Probe) -> None:
    found = probe([gpu("NVIDIA A100-SXM4-80GB", 81920, (8, 0), mig=True, slices=SLICES)])
    assert (found.memory_mib, found.visible_memory_mib, found.count, found.mig) == (81920.0, 9856.0, 1, True)
    assert any("SGLang reads the whole GPU's" in sentence for sentence in found.tried)


def test_a_mig_slice_is_chosen_by_its_uuid(probe: Probe) -> None:
    machine = [gpu("NVIDIA A100-SXM4-80GB", 81920, (8, 0), mig=True, slices=SLICES)]
    found = probe(machine, env={"CUDA_VISIBLE_DEVICES": "MIG-2"})
    assert (found.visible_memory_mib, found.count) == (19968.0, 1)


def test_under_mig_without_the_right_to_read_memory_torch_is_asked(probe: Probe, tmp_path: Path) -> None:
    tool(tmp_path, "engine-python", prints='{"device": "cuda", "memory_mib": 9728}\n')
    machine = [gpu("NVIDIA A100-SXM4-80GB", None, (8, 0), mig=True, slices=SLICES)]
    found = probe(machine, python=str(tmp_path / "engine-python"))
    assert found.memory_mib == 9728


def test_without_torch_the_slice_stands_for_the_memory_that_cannot_be_read(probe: Probe, tmp_path: Path) -> None:
    tool(tmp_path, "engine-python", fails="No module named torch")
    machine = [gpu("NVIDIA A100-SXM4-80GB", None, (8, 0), mig=True, slices=SLICES)]
    found = probe(machine, python=str(tmp_path / "engine-python"))
    assert found.memory_mib == 9856.0
    assert any(sentence.endswith("exit status 9 (No module named torch)") for sentence in found.tried)


def test_mig_without_a_slice_leaves_nothing_visible(probe: Probe) -> None:
    found = probe([gpu(mig=True)])
    assert not found.found
    assert found.tried[-1] == "of 1 GPUs here none is visible: MIG is on and no slice exists"


def test_rocminfo_gives_the_pool_size(probe: Probe, bin_dir: Path) -> None:
    tool(bin_dir, "rocminfo", prints=recorded("rocminfo_mi300x_vf.txt"))
    found = probe()
    assert (found.vendor, found.device, found.name) == ("amd", "cuda", "AMD Instinct MI300X VF")
    assert (found.memory_mib, found.compute_capability, found.count) == (196288.0, (9, 4), 1)
    assert not found.flashinfer
    assert not found.triton_kernels


def test_rocminfo_is_also_looked_for_where_rocm_installs_it(probe: Probe, tmp_path: Path) -> None:
    tool(tmp_path / "rocm" / "bin", "rocminfo", prints=recorded("rocminfo_mi300x_vf.txt"))
    assert probe().vendor == "amd"


@pytest.mark.parametrize(("variable", "count"), [("HIP_VISIBLE_DEVICES", 1), ("CUDA_VISIBLE_DEVICES", 1)])
def test_amd_gpus_are_hidden_by_either_variable(probe: Probe, bin_dir: Path, variable: str, count: int) -> None:
    text = recorded("rocminfo_mi300x_vf.txt")
    agent = text[text.index("*******\nAgent 2") : text.index("*** Done ***")]
    tool(bin_dir, "rocminfo", prints=text + agent.replace("Agent 2", "Agent 3"))
    found = probe(env={variable: "1"})
    assert (found.count, found.total, found.visible) == (count, 2, f"{variable}=1")


def test_hl_smi_gives_the_cards(probe: Probe, bin_dir: Path) -> None:
    tool(bin_dir, "hl-smi", prints=recorded("hl_smi_gaudi2.txt"))
    found = probe()
    assert (found.vendor, found.device, found.name) == ("habana", "hpu", "HL-225")
    assert (found.memory_mib, found.count, found.compute_capability) == (98304.0, 2, None)


@pytest.mark.parametrize(
    ("packages", "build", "answer", "vendor", "device", "memory"),
    [
        (
            ("torch_npu",),
            {},
            '{"device": "npu", "count": 8, "name": "Ascend910B3", "memory_mib": 65536}',
            "huawei",
            "npu",
            65536.0,
        ),
        ((), {"xpu": "20250100"}, '{"device": "xpu", "count": 1, "name": "Intel Arc"}', "intel", "xpu", None),
        (
            (),
            {"hip": "6.3"},
            '{"device": "cuda", "count": 2, "name": "AMD", "hip": "6.3", "memory_mib": 100, "capability": [9, 4]}',
            "amd",
            "cuda",
            100.0,
        ),
    ],
)
def test_torch_is_asked_in_a_child_for_what_only_it_knows(
    probe: Probe,
    tmp_path: Path,
    packages: tuple[str, ...],
    build: dict[str, str],
    answer: str,
    vendor: str,
    device: str,
    memory: float | None,
) -> None:
    tool(tmp_path, "engine-python", prints=f"a library prints first\n{answer}\n")
    paths = site(tmp_path / "engine", *packages, torch={"cuda": None, "hip": None, "xpu": None, **build})
    imported = "torch" in sys.modules  # by an earlier test, where this environment has it
    found = probe(site_paths=paths, python=str(tmp_path / "engine-python"))
    assert (found.vendor, found.device, found.memory_mib) == (vendor, device, memory)
    assert ("torch" in sys.modules) == imported


@pytest.mark.parametrize("build", [{}, {"cuda": "12.8"}])
def test_a_torch_for_no_other_accelerator_is_not_started(probe: Probe, tmp_path: Path, build: dict[str, str]) -> None:
    paths = site(tmp_path / "engine", torch={"cuda": None, "hip": None, "xpu": None, **build})
    found = probe(site_paths=paths, python="/no/such/python")
    assert found.tried[-1] == "torch: the installed one was built for no other accelerator"


def test_a_torch_that_sees_nothing_is_told(probe: Probe, tmp_path: Path) -> None:
    tool(tmp_path, "engine-python", prints="{}\n")
    paths = site(tmp_path / "engine", torch={"cuda": None, "hip": None, "xpu": "2025"})
    found = probe(site_paths=paths, python=str(tmp_path / "engine-python"))
    assert not found.found
    assert found.tried[-1] == "torch: it sees no accelerator"


@pytest.mark.parametrize(
    ("packages", "env", "flashinfer", "triton_kernels"),
    [
        ((), {}, True, True),
        (("sglang",), {}, False, False),
        (("sglang", "flashinfer"), {}, True, False),
        (("sglang", "flashinfer", "triton_kernels"), {}, True, True),
        (("sglang", "flashinfer"), {"SGLANG_IS_FLASHINFER_AVAILABLE": "False"}, False, False),
        (("sglang", "flashinfer"), {"SGLANG_IS_FLASHINFER_AVAILABLE": "TRUE"}, True, False),
        (("sglang", "flashinfer"), {"SGLANG_IS_FLASHINFER_AVAILABLE": "yes"}, False, False),
        ((), {"SGLANG_IS_FLASHINFER_AVAILABLE": "0"}, False, True),
    ],
)
def test_packages_are_those_of_the_engines_environment(
    probe: Probe,
    tmp_path: Path,
    packages: tuple[str, ...],
    env: dict[str, str],
    flashinfer: bool,
    triton_kernels: bool,
) -> None:
    found = probe(EIGHT, env=env, site_paths=site(tmp_path / "engine", *packages))
    assert (found.flashinfer, found.triton_kernels) == (flashinfer, triton_kernels)


@pytest.mark.parametrize(("arch", "device"), [("x86_64", "cpu"), ("AMD64", "cpu"), ("aarch64", None)])
def test_the_cpu_engine_is_taken_where_it_is_asked_for_on_x86(
    probe: Probe, monkeypatch: pytest.MonkeyPatch, arch: str, device: str | None
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: arch)
    found = probe(env={"SGLANG_USE_CPU_ENGINE": "1"})
    assert found.device == device
    assert not found.found


def test_the_cpu_engine_beside_gpus_still_reads_their_memory(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    facts = probe(EIGHT, env={"SGLANG_USE_CPU_ENGINE": "1"}).facts()
    assert (facts.vendor, facts.device) == ("nvidia", "cpu")
    assert facts.capacity_mib("cpu") == 143771.0


def test_a_probe_becomes_facts_under_the_name_of_its_class(probe: Probe) -> None:
    facts = probe(EIGHT).facts("h200")
    assert facts == GpuFacts(
        name="h200",
        vendor="nvidia",
        device="cuda",
        memory_mib=143771.0,
        compute_capability=(9, 0),
        count=8,
        flashinfer=True,
        triton_kernels=True,
        extra=facts.extra,
    )
    assert facts.extra["total"] == 8
    assert probe(EIGHT).facts().name == "NVIDIA H200"


def test_nothing_found_becomes_the_facts_of_no_accelerator(probe: Probe) -> None:
    facts = probe().facts()
    assert (facts.name, facts.vendor, facts.device, facts.count) == ("none", "none", None, 0)


def test_importing_the_probe_imports_nothing_that_it_may_need_later() -> None:
    code = (
        "import sys, sglang_hydra.facts.probe as probe; "
        "print([name for name in ('pynvml', 'subprocess', 'torch', 'huggingface_hub', 'transformers', 'json')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
