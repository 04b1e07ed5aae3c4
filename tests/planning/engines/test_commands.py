"""What each engine is started with, and what it refuses or does not use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.arguments.fields import fresh_defaults
from sglang_hydra.planning.engines.base import Engine, EngineRequest, Machine
from sglang_hydra.planning.engines.planned import engines
from sglang_hydra.planning.engines.sglang import ENGINE as SGLANG
from sglang_hydra.planning.engines.transformers import ENGINE as TRANSFORMERS

KEY = "sk-very-secret"


def request(machine: Machine | None = None, **intent: Any) -> EngineRequest:
    asked = {"model_path": "org/name", **intent}
    return EngineRequest(asked, "python", "127.0.0.1", 30000, {"A": "1"}, machine or Machine(None))


def flags(**intent: Any) -> list[str]:
    """The embedded engine's own flags, without where it listens."""
    argv = list(TRANSFORMERS.command(request(**intent)).argv)
    return argv[2:3] + argv[argv.index("--device") :]


def test_sglang_gets_the_flags_of_the_intent_through_our_program() -> None:
    command = SGLANG.command(request(tp_size=2, trust_remote_code=True))
    assert Path(command.argv[1]).name == "child_sglang.py"
    assert list(command.argv[2:]) == list(command.shown[3:])
    assert command.shown[:3] == ["python", "-m", "sglang.launch_server"]
    assert "--trust-remote-code" in command.shown
    assert command.env == {"A": "1"}


def test_the_key_is_in_neither_command_line_nor_environment_nor_repr() -> None:
    command = SGLANG.command(request(api_key=KEY))
    assert command.secret == KEY
    assert KEY not in repr((list(command.argv), list(command.shown), dict(command.env)))
    assert KEY not in repr(command)


def test_without_python_ours_runs_the_engine() -> None:
    for engine in engines().values():
        made = engine.command(EngineRequest({"model_path": "org/name"}, None, "127.0.0.1", 30000))
        assert made.argv[0] == sys.executable


@pytest.mark.parametrize(
    ("intent", "expected"),
    [
        ({}, ["org/name", "--device", "cpu"]),
        ({"dtype": "auto", "trust_remote_code": False}, ["org/name", "--device", "cpu"]),
        ({"dtype": "half"}, ["org/name", "--device", "cpu", "--dtype", "float16"]),
        ({"dtype": "bfloat16"}, ["org/name", "--device", "cpu", "--dtype", "bfloat16"]),
        ({"device": "cuda"}, ["org/name", "--device", "cuda"]),
        ({"machine": Machine(None, "cuda")}, ["org/name", "--device", "cuda"]),
        ({"machine": Machine(None, "cuda"), "device": "cpu"}, ["org/name", "--device", "cpu"]),
        ({"revision": "abc"}, ["org/name@abc", "--device", "cpu"]),
        ({"trust_remote_code": True}, ["org/name", "--device", "cpu", "--trust-remote-code"]),
        ({"random_seed": 0}, ["org/name", "--device", "cpu", "--default-seed", "0"]),
        ({"log_level": "debug"}, ["org/name", "--device", "cpu", "--log-level", "debug"]),
    ],
)
def test_the_embedded_engine_gets_what_it_knows(intent: dict[str, Any], expected: list[str]) -> None:
    assert flags(**intent) == expected


@pytest.mark.parametrize(
    ("folder", "name", "served_as"),
    [
        ("model", None, ""),
        ("model", "tiny", "tiny"),
        ("model", "org/tiny-1.0", "org/tiny-1.0"),
        ("model", "../up", ""),
        ("model", "a@b", ""),
        ("me@home", None, "model"),
        ("me@home", "tiny", "tiny"),
    ],
)
def test_a_local_folder_may_be_served_under_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, name: str | None, served_as: str
) -> None:
    monkeypatch.setenv("SGLANG_HYDRA_CACHE", str(tmp_path / "cache"))
    (tmp_path / folder).mkdir()
    asked = request(model_path=str(tmp_path / folder), served_model_name=name)
    _, _, model, where, alias, *_ = TRANSFORMERS.command(asked).argv
    assert (model, alias) == (str(tmp_path / folder), served_as)
    assert where.startswith(str(tmp_path / "cache")) == bool(served_as)
    unused = [finding.fields for finding in TRANSFORMERS.findings(asked)]
    assert unused == ([("served_model_name",)] if name and not served_as else [])


def test_the_name_becomes_a_link_to_the_folder(tmp_path: Path) -> None:
    program = (
        "import os, sys; from sglang_hydra.run.launch.child_transformers import under_name;"
        "name = under_name(*sys.argv[1:]); name = under_name(*sys.argv[1:]); print(os.listdir(name))"
    )
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    argv = [sys.executable, "-c", program, str(tmp_path / "model"), str(tmp_path / "names"), "org/tiny"]
    run = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['config.json']"


@pytest.mark.parametrize(
    ("intent", "expected"),
    [
        ({"dtype": "half", "random_seed": 1, "host": "0.0.0.0", "port": 1}, []),
        ({"tp_size": 1, "attention_backend": None}, []),
        ({"tokenizer_path": "org/name"}, []),
        ({"tp_size": 2, "attention_backend": "triton"}, [("warning", "ENG004", ("attention_backend", "tp_size"))]),
        ({"tokenizer_path": "org/other"}, [("warning", "ENG004", ("tokenizer_path",))]),
        ({"served_model_name": "tiny"}, [("warning", "ENG004", ("served_model_name",))]),
        ({"api_key": KEY}, [("error", "ENG003", ("api_key",))]),
        ({"api_key": None}, []),
    ],
)
def test_the_embedded_engine_says_what_it_refuses_and_does_not_use(intent: dict[str, Any], expected: list[Any]) -> None:
    findings = TRANSFORMERS.findings(request(**intent))
    assert [(finding.level, finding.id, finding.fields) for finding in findings] == expected
    assert KEY not in repr(findings)


@pytest.mark.parametrize("engine", engines().values(), ids=list(engines()))
def test_an_engine_uses_only_arguments_that_exist(engine: Engine) -> None:
    assert (engine.used_fields or frozenset()) <= set(fresh_defaults())


def test_describing_engines_imports_none() -> None:
    program = (
        "import sys; from sglang_hydra.planning.engines.planned import engines;"
        "from sglang_hydra.planning.engines.base import EngineRequest;"
        "[e.available(None) for e in engines().values()];"
        "print({'torch', 'transformers', 'sglang', 'hydra', 'omegaconf', 'subprocess'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
