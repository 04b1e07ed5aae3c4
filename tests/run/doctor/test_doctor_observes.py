"""What is observed: NVIDIA's library, the host's files, the interpreter's metadata, a model's files, the hub."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.facts.trust import grant
from sglang_hydra.facts.visible_gpus import Slice
from sglang_hydra.run.doctor import observe as observing
from sglang_hydra.run.doctor.machine_state import Examinee, Holder, HubAnswer, ModelFiles, Nvidia
from sglang_hydra.run.doctor.model_files import ask_hub, look_for_model, look_in_folder, token_place
from sglang_hydra.run.doctor.observe import container, observe, read_interpreter, shared_memory, space, survey_nvidia
from sglang_hydra.run.doctor.observe import job as batch_job
from tests.run.doctor.doctor_fakes import card, fake_hub, fake_nvml, process
from tests.run.launch.processes import free_port

OFFLINE = {"HF_HUB_OFFLINE": "1"}
SECRET = "hf_do_not_show_me"


def survey(monkeypatch: pytest.MonkeyPatch, *cards: dict[str, Any], **how: Any) -> Nvidia:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(cards, **how))
    return survey_nvidia(Path("/nowhere"))


def test_a_gpu_is_described_with_its_health(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {7: "/usr/bin/python -m server --api-key sk-1", 8: "sglang::scheduler_TP0"}
    running = [process(7, 100), process(8, None), process(9, 1)]
    found = survey(monkeypatch, card(processes=running, used=101), card(), names=names)
    assert (found.problem, found.driver, found.cuda) == (None, "570.124.06", (12, 8))
    one = found.gpus[0]
    assert (one.name, one.total_mib, one.used_mib, one.free_mib) == ("NVIDIA H200", 143771.0, 101.0, 143670.0)
    assert one.holders == (Holder(7, "python", 100.0), Holder(8, "sglang::scheduler_TP0", None), Holder(9, None, 1.0))
    assert (one.mig, one.slices) == (False, ())


def test_the_library_has_every_function_that_is_asked() -> None:
    import pynvml

    asked = set(re.findall(r"\bnvml(?:Device|System)\w+", Path(observing.__file__).read_text(encoding="utf-8")))
    assert len(asked) > 8
    assert {name for name in asked if not hasattr(pynvml, name)} == set()


def test_a_split_gpu_lists_its_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    found = survey(monkeypatch, card(mig=[1, 1], slices=[card(uuid="MIG-1", total=20000)]))
    assert found.gpus[0].mig
    assert found.gpus[0].slices == (Slice("MIG-1", 20000.0),)


def test_what_is_not_told_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = dict.fromkeys(card(), None) | {"slices": [], "used": 0}
    found = survey(monkeypatch, silent, silent, driver=None, cuda=None)
    assert (found.driver, found.cuda) == (None, None)
    assert found.gpus[0]._replace(number=0) == found.gpus[1]._replace(number=0)
    assert all(value is None for value in found.gpus[0][1:7] + found.gpus[0][9:])


def test_a_lost_gpu_leaves_the_others_described(monkeypatch: pytest.MonkeyPatch) -> None:
    found = survey(monkeypatch, card(), card(lost="GPU is lost"), card())
    assert [gpu.problem for gpu in found.gpus] == [None, "GPU is lost", None]


def test_an_older_library_that_lacks_functions_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    found = survey(monkeypatch, card(), without=("nvmlDeviceGetMigMode",))
    assert not found.gpus[0].mig
    assert found.gpus[0].total_mib == 143771.0


def test_a_driver_that_does_not_answer_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml((), broken="Driver Not Loaded"))
    for name, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x10de", "0x068000"), ("c", "0x8086", "0x030000")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor + "\n")
        (tmp_path / name / "class").write_text(kind + "\n")
    (tmp_path / "empty").mkdir()
    assert survey_nvidia(tmp_path) == Nvidia("Driver Not Loaded", on_bus=1)


def test_a_missing_library_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py" in str(survey_nvidia(Path("/nowhere")).problem)


def test_a_folder_that_is_not_there_is_judged_by_the_one_above(tmp_path: Path) -> None:
    found = space(str(tmp_path / "a" / "b"))
    assert found.writable
    assert found.free_bytes
    assert found.total_bytes
    (tmp_path / "file").touch()
    assert space(str(tmp_path / "file" / "x")).writable is False
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.parametrize(
    ("env", "files", "kind"),
    [
        ({}, {}, None),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {".dockerenv": ""}, "kubernetes"),
        ({"APPTAINER_CONTAINER": "x.sif"}, {}, "apptainer"),
        ({}, {".dockerenv": ""}, "docker"),
        ({}, {"run/.containerenv": ""}, "podman"),
        ({}, {"proc/1/cgroup": "0::/kubepods/pod1\n"}, "kubernetes"),
        ({"container": "lxc"}, {}, "lxc"),
    ],
)
def test_a_container_is_known_by_its_marks(
    env: dict[str, str], files: dict[str, str], kind: str | None, tmp_path: Path
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert container(env, tmp_path) == kind


@pytest.mark.parametrize(
    ("env", "job"),
    [
        ({"SLURM_JOB_ID": "12"}, "Slurm job 12"),
        ({"PBS_JOBID": "3.host"}, "PBS job 3.host"),
        ({"SLURM_JOB_ID": "a b"}, None),
    ],
)
def test_a_batch_job_is_known_by_its_variable(env: dict[str, str], job: str | None) -> None:
    assert batch_job(env) == job


def test_no_shared_memory_is_none(tmp_path: Path) -> None:
    assert shared_memory(str(tmp_path / "none")) is None


def environment(root: Path) -> str:
    """A virtual environment of this Python with an SGLang and a torch that are metadata alone."""
    site = root / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    (site / "sglang-0.5.2.dist-info").mkdir(parents=True)
    (site / "torch-2.8.0.dist-info").mkdir()
    (site / "torch").mkdir()
    (site / "torch" / "version.py").write_text("cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n")
    (site / "torch" / "__init__.py").write_text("raise SystemExit('torch was imported')\n")
    (root / "pyvenv.cfg").write_text(
        f"home = {os.path.dirname(sys.executable)}\ninclude-system-site-packages = false\n"
    )
    (root / "bin").mkdir()
    (root / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    return str(root / "bin" / "python")


def test_an_environment_is_read_from_its_metadata(tmp_path: Path) -> None:
    python = environment(tmp_path)
    grant(python)
    found = read_interpreter(python)
    assert (found.path, found.problem) == (python, None)
    assert found.versions == {"sglang": "0.5.2", "torch": "2.8.0"}
    assert found.torch_build == {"cuda": "12.8", "hip": None, "xpu": None}


def test_our_own_environment_is_read_without_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.run", None)
    found = read_interpreter(None)
    assert found.path == sys.executable
    assert "hydra-core" in found.versions


@pytest.mark.parametrize("content", [None, "#!/bin/sh\nexit 9\n"])
def test_what_is_no_interpreter_is_a_problem(content: str | None, tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    if content is not None:
        python.write_text(content)
        python.chmod(0o755)
    grant(str(python))
    assert read_interpreter(str(python)).problem


def checkpoint(folder: Path, *shards: str, config: str = "{}", listed: tuple[str, ...] = ()) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(config)
    (folder / "tokenizer.json").write_text("{}")
    for name in shards:
        (folder / name).write_bytes(b"x" * 2000)
    if listed:
        index = {"metadata": {"total_size": 4000}, "weight_map": {f"layer{n}": name for n, name in enumerate(listed)}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_a_whole_checkpoint_is_complete(tmp_path: Path) -> None:
    shards = ("model-1.safetensors", "model-2.safetensors")
    found = look_in_folder(str(checkpoint(tmp_path, *shards, listed=shards)))
    assert found == ModelFiles("folder", str(tmp_path), tokenizer=True, weight_bytes=4000)
    assert found.complete


def test_what_a_checkpoint_lacks_is_listed(tmp_path: Path) -> None:
    shards = ("model-1.safetensors", "model-2.safetensors")
    found = look_in_folder(str(checkpoint(tmp_path, shards[0], listed=shards, config="{")))
    assert found.missing == (shards[1],)
    assert "config.json:1:2" in str(found.config_problem)
    (tmp_path / shards[1]).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    (tmp_path / "config.json").unlink()
    found = look_in_folder(str(tmp_path))
    assert (found.missing, found.pointers) == ((), (shards[1],))
    assert found.config_problem == "it has no config.json"
    assert not found.complete


@pytest.mark.parametrize("index", ["{", "[]", '{"weight_map": 1}', '{"weight_map": {"a": ["b"]}}'])
def test_a_broken_index_is_survived(index: str, tmp_path: Path) -> None:
    checkpoint(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(index)
    assert look_in_folder(str(tmp_path)).missing


def test_a_folder_without_weights_lacks_them(tmp_path: Path) -> None:
    assert look_in_folder(str(checkpoint(tmp_path))).missing == ("the weights",)
    assert look_in_folder(str(tmp_path / "gone")).unreadable == (str(tmp_path / "gone"),)


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint(tmp_path, "model.safetensors")
    closed = str(tmp_path / "model.safetensors")
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != closed)  # root may read everything
    assert look_in_folder(str(tmp_path)).unreadable == ("model.safetensors",)


def never(model: str, env: Any) -> HubAnswer:
    raise AssertionError("the hub was asked")


def test_a_path_is_told_from_a_hub_id(tmp_path: Path) -> None:
    gguf = tmp_path / "m.gguf"
    gguf.write_bytes(b"GGUF....")
    assert look_for_model(str(gguf), {}, ask=never) == ModelFiles("file", str(gguf), weight_bytes=8)
    assert look_for_model("s3://bucket/m", {}, ask=never).kind == "remote"
    for gone in ("./gone", "/gone", "a/b/c"):
        assert look_for_model(gone, {}, ask=never).kind == "missing"
    env = {**OFFLINE, "HF_HOME": str(tmp_path)}
    assert look_for_model("org/m", env) == ModelFiles("hub", hub=HubAnswer("not asked", "HF_HUB_OFFLINE is set"))


def snapshot(cache: Path, *shards: str, listed: tuple[str, ...] = ()) -> Path:
    base = cache / "models--org--m"
    (base / "refs").mkdir(parents=True)
    (base / "refs" / "main").write_text("abc")
    return checkpoint(base / "snapshots" / "abc", *shards, listed=listed)


def test_a_cached_model_is_not_asked_for(tmp_path: Path) -> None:
    folder = snapshot(tmp_path, "model.safetensors")
    found = look_for_model("org/m", {"HF_HUB_CACHE": str(tmp_path)}, ask=never)
    assert (found.kind, found.folder, found.complete) == ("cached", str(folder), True)


def test_a_part_of_a_model_in_the_cache_is_asked_for(tmp_path: Path) -> None:
    snapshot(tmp_path, "model-1.safetensors", listed=("model-1.safetensors", "model-2.safetensors"))
    found = look_for_model("org/m", {"HF_HUB_CACHE": str(tmp_path)}, ask=lambda *_: HubAnswer("open", "", 9))
    assert (found.missing, found.weight_bytes, found.hub) == (("model-2.safetensors",), 4000, ("open", "", 9))


def test_weights_in_the_download_folder_count(tmp_path: Path) -> None:
    folder = snapshot(tmp_path / "here", "model.safetensors")
    (folder / "config.json").unlink()
    (folder / "tokenizer.json").unlink()
    snapshot(tmp_path / "cache")
    found = look_for_model("org/m", {"HF_HUB_CACHE": str(tmp_path / "cache")}, str(tmp_path / "here"), ask=never)
    assert (found.folder, found.complete, found.config_problem, found.tokenizer) == (str(folder), True, None, True)


def test_a_token_is_named_and_never_shown(tmp_path: Path) -> None:
    assert token_place({"HF_TOKEN": SECRET, "HF_HOME": str(tmp_path)}) == "HF_TOKEN"
    assert token_place({"HUGGING_FACE_HUB_TOKEN": SECRET, "HF_HOME": str(tmp_path)}) == "HUGGING_FACE_HUB_TOKEN"
    assert token_place({"HF_TOKEN": " ", "HF_HOME": str(tmp_path)}) is None
    (tmp_path / "token").write_text(SECRET)
    assert token_place({"HF_HOME": str(tmp_path)}) == str(tmp_path / "token")
    assert token_place({"HF_TOKEN_PATH": str(tmp_path / "other")}) is None


class GatedRepoError(Exception):
    pass


class RepositoryNotFoundError(Exception):
    pass


class ReadTimeout(Exception):
    pass


@pytest.mark.parametrize(
    ("answer", "state"),
    [(GatedRepoError(SECRET), "gated"), (RepositoryNotFoundError(SECRET), "absent"), (ReadTimeout(SECRET), "silent")],
)
def test_the_hub_is_asked_once_and_its_words_are_kept_back(
    answer: Exception, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = fake_hub(answer)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    found = ask_hub("org/m", {"HF_TOKEN": SECRET})
    assert found.state == state
    assert SECRET not in repr(found)
    asked: Any = modules["huggingface_hub"]
    assert len(asked.asked) == 1


def test_an_open_model_tells_the_size_of_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [
        ("model-1.safetensors", 5),
        ("model-2.safetensors", 6),
        ("original/consolidated.safetensors", 11),
        ("x.bin", 9),
    ]
    for name, module in fake_hub(files).items():
        monkeypatch.setitem(sys.modules, name, module)
    assert ask_hub("org/m", {}) == HubAnswer("open", "", 11)


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "SGLANG_USE_MODELSCOPE"])
def test_the_hub_is_left_alone_where_it_is_not_to_be_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert ask_hub("org/m", {name: "1"}) == HubAnswer("not asked", f"{name} is set")
    assert "not installed" in ask_hub("org/m", {}).why


def test_a_taken_port_is_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml((card(),)))
    with socket.socket() as server:
        port = free_port()
        server.bind(("127.0.0.1", port))
        server.listen(1)
        world = observe(OFFLINE, Examinee(port=port))
    assert world.obstacle is not None
    assert str(port) in world.obstacle.message
    assert (len(world.nvidia.gpus), world.other) == (1, None)
