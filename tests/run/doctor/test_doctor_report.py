"""The whole examination: its order, its pages, what it prints, its JSON, and that nothing breaks it."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import sglang_hydra
from sglang_hydra.planning.finding_meanings import RETIRED
from sglang_hydra.run.doctor import Examination, doctor_record, doctor_screen, examine
from sglang_hydra.run.doctor.checks import CHECKS
from sglang_hydra.run.doctor.machine_state import Examinee, Gpu, Holder, ModelFiles, World
from tests.run.doctor.doctor_fakes import card, fake_nvml
from tests.run.doctor.doctor_worlds import HEALTHY, LAPTOP, with_gpus

SCHEMA = Path(sglang_hydra.__file__).parent / "schemas" / "doctor.schema.json"
SECRET = "hf_do_not_show_me"


def shown(examinations: list[Examination]) -> str:
    return "\n".join("".join(content for content, _ in line) for line in doctor_screen(examinations))


def valid(record: dict[str, Any]) -> None:
    text = json.dumps(record, allow_nan=False)
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(json.loads(text))


def test_the_checks_have_an_id_and_a_page_each() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    assert {check.id for check in CHECKS}.isdisjoint(RETIRED)
    for check in CHECKS:
        lines = inspect.cleandoc(check.page).splitlines()
        parts = [line.partition(":")[0] for line in lines if not line.startswith(" ")]
        assert parts == ["What", "Why", "Source", "Example"], check.id


@pytest.mark.parametrize("world", [HEALTHY, LAPTOP, World(), with_gpus(Gpu(0, problem="GPU is lost"))])
def test_every_world_has_a_screen_and_a_valid_record(world: World) -> None:
    examinations = [check(world) for check in CHECKS]
    valid(doctor_record(examinations))
    text = shown(examinations)
    for item in examinations:
        assert f"{item.state:<8}" in text or item.state in text
        assert item.id in text


def test_nothing_stands_in_the_way_on_a_healthy_machine() -> None:
    examinations = [check(HEALTHY) for check in CHECKS]
    assert [item.id for item in examinations if item.state != "ok"] == []
    record = doctor_record(examinations)
    assert record["ok"]
    assert record["counts"] == {"ok": len(CHECKS), "warning": 0, "error": 0, "unknown": 0}
    assert "no problems found" in shown(examinations)


def test_an_error_makes_the_record_not_ok_and_shows_its_fix() -> None:
    item = Examination("DOC007", "/dev/shm", "error", "64 MiB \x1b[31m free", "docker run", ("one \x07 line",))
    fine = Examination("DOC014", "port", "ok", "enough", "not to be shown", ("nor this",))
    assert not doctor_record([item, fine])["ok"]
    lines = shown([item, fine]).splitlines()
    assert lines[1] == "  error  DOC007  /dev/shm  64 MiB \\x1b[31m free"
    assert lines[2:4] == ["      one \\x07 line", "      type: docker run"]
    assert lines[-1] == "2 looked at; 1 error, 0 warnings, 0 unknown: a server would fail here"
    assert len(lines) == 7


@pytest.mark.parametrize(
    "world",
    [
        World(),
        World(model=ModelFiles("cached"), env={"CUDA_VISIBLE_DEVICES": "x"}),
        with_gpus(
            Gpu(0), Gpu(1, holders=(Holder(1),), total_mib=0.0, used_mib=9999.0, free_mib=0.0), driver="", cuda=None
        ),
    ],
)
def test_half_known_machines_are_judged(world: World) -> None:
    valid(doctor_record([check(world) for check in CHECKS]))


def test_this_machine_can_be_examined(tmp_path: Path) -> None:
    env = {"HF_HUB_OFFLINE": "1", "HOME": str(tmp_path), "HF_TOKEN": SECRET}
    examinations = examine(
        env, Examinee(model_path="org/m", port=0, download_dir=str(tmp_path / "new"), transfer="nixl")
    )
    assert [item.id for item in examinations] == [check.id for check in CHECKS]
    valid(doctor_record(examinations))
    assert SECRET not in shown(examinations) + json.dumps(doctor_record(examinations))
    assert list(tmp_path.iterdir()) == []


def test_a_broken_machine_is_examined_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml((card(lost="GPU is lost"), card(total=None))))
    env = {"HF_HOME": "/proc/nowhere", "PATH": "", "CUDA_VISIBLE_DEVICES": "7", "HF_HUB_OFFLINE": "1"}
    request = Examinee(python=str(tmp_path / "none"), model_path="/none", host="192.0.2.1", port=99999)
    examinations = examine(env, request)
    states = {item.id: item.state for item in examinations}
    assert {states[id] for id in ("DOC002", "DOC013", "DOC014", "DOC016")} == {"error"}
    valid(doctor_record(examinations))


def test_examining_imports_no_engine() -> None:
    code = (
        "import sys; from sglang_hydra.run.doctor import Examinee, examine;"
        "examine({'HF_HUB_OFFLINE': '1'}, Examinee(port=0));"
        "heavy = {'torch', 'numpy', 'transformers', 'hydra', 'omegaconf', 'rich'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    root = Path(sglang_hydra.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
