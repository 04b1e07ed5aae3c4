"""``python serve.py`` as a user runs it, with a fake SGLang: what is looked at first, what is said, what is left."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.planning.topology.fake_sglang import environment
from tests.run.launch.place import DEADLINE_S, ROOT, Place, alive, place_in
from tests.run.launch.processes import free_port, listens, wait_until


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of the fake SGLang."""
    return environment(tmp_path_factory.mktemp("engine"))


@pytest.fixture
def place(tmp_path: Path, python: Path) -> Iterator[Place]:
    with place_in(tmp_path, python) as made:
        yield made


def served(place: Place, *overrides: str, until: str = "Ready after", number: int = signal.SIGINT) -> str:
    """What the command prints from its start to its end, which a signal brings about once it has said ``until``."""
    argv = place.serve("run", *overrides)
    with subprocess.Popen(argv, cwd=ROOT, env=place.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as program:
        overdue = threading.Timer(DEADLINE_S, program.kill)
        overdue.start()
        assert program.stdout is not None
        said = b""
        for line in program.stdout:
            said += line
            if until.encode() in line:
                program.send_signal(number)
                break
        said += program.stdout.read()
        assert program.wait(DEADLINE_S) == 130, said.decode()
        overdue.cancel()
    assert alive(place.folder) == []
    return said.decode()


def test_everything_that_is_wrong_is_said_at_once_and_nothing_is_started(place: Place) -> None:
    (place.folder / "model").mkdir()
    (place.folder / "model" / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        overrides = [f"model_path={place.folder / 'model'}", "engine.version=0.5.9"]
        said = place.run(*place.serve("run", *overrides, port=other.getsockname()[1]), code=3)
    assert {"DOC013", "LCH004", "ENG006"} <= set(said.split())
    assert said.count("hint: ") >= 3
    assert said.endswith("Not started: 3 errors of this machine; launch.force=true starts it all the same\n")
    assert not (place.folder / "run").exists()


def test_an_engine_and_a_model_that_are_missing_are_both_said(place: Place) -> None:
    said = place.run(*place.serve("run", "engine.python=/nowhere/python", "model_path=/nowhere/model"), code=3)
    assert {"ENG002", "DOC013"} <= set(said.split())


@pytest.mark.thorough
def test_force_starts_despite_what_the_preflight_says(place: Place) -> None:
    said = served(place, "engine.version=0.5.9", "launch.force=true")
    assert "LCH004" in said
    assert "Ready after" in said


@pytest.mark.thorough
def test_progress_is_shown_with_the_seconds_it_took(place: Place) -> None:
    said = served(place)
    (line,) = [line for line in said.splitlines() if line.endswith(" s  loading weights")]
    assert 0 <= float(line.split()[0]) < DEADLINE_S
    assert "SIGINT: stopping the server" in said


@pytest.mark.thorough
def test_a_log_that_cannot_be_written_is_said_and_stops_nothing(place: Place) -> None:
    (place.folder / "run").mkdir()
    (place.folder / "run" / "server.log").symlink_to("/dev/full")
    said = served(place)
    assert "cannot be written: No space left on device; the server goes on" in said
    assert "Ready after" in said
    assert "LCH006" in said


@pytest.mark.thorough
def test_a_reader_that_goes_away_stops_nothing(place: Place) -> None:
    port = free_port()
    argv = place.serve("run", port=port)
    with subprocess.Popen(argv, cwd=ROOT, env=place.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as program:
        assert program.stdout is not None
        assert any(b"Load weight begin" in line for line in program.stdout)
        program.stdout.close()
        assert wait_until((place.folder / "run" / "actual.json").exists, DEADLINE_S)
        assert not wait_until(lambda: program.poll() is not None, 1)
        assert listens(port)
        program.send_signal(signal.SIGTERM)
        assert program.wait(DEADLINE_S) == 130
    assert alive(place.folder) == []


def test_a_run_folder_that_cannot_be_made_is_an_error_of_this_machine(place: Place) -> None:
    said = place.run(*place.serve("run", "hydra.run.dir=/proc/nowhere"), code=3)
    assert "LCH001" in said
    assert "Traceback" not in said


def test_a_key_that_hydra_does_not_have_is_an_error_of_the_command_line(place: Place) -> None:
    said = place.run(*place.serve("run", "hydra.nonsense=1"), code=2)
    assert "CLI023" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("seconds", ["0", "-1", "1e9", "nan"])
def test_a_time_that_cannot_be_waited_is_refused(place: Place, seconds: str) -> None:
    assert "launch.stop_timeout" in place.run(*place.serve("run", f"launch.stop_timeout={seconds}"), code=2)


def test_hydras_own_words_and_every_config_folder_are_in_its_record(place: Place) -> None:
    for name in ("one", "two"):
        (place.folder / name / "model").mkdir(parents=True)
        preset = f"defaults: [tiny]\nname: {name}\nargs: {{served_model_name: {name}}}\n"
        (place.folder / name / "model" / f"mine_{name}.yaml").write_text(preset)
    words = ["--config-dir", str(place.folder / "one"), "--config-dir", str(place.folder / "two")]
    words += ["model=mine_two", "+hydra.job.env_set.MARK=here", "hydra.job.name=mine"]
    argv = [word for word in place.serve("run", *words) if word != "model=tiny"]
    place.run(*argv, code=4, FAKE_CRASH=str(place.folder / "crash"))
    record = place.folder / "run" / ".hydra"
    hydra = yaml.safe_load((record / "hydra.yaml").read_text())["hydra"]
    assert hydra["job"]["env_set"] == {"MARK": "here"}
    assert hydra["job"]["name"] == "mine"
    assert {"+hydra.job.env_set.MARK=here", "hydra.job.name=mine"} <= set(hydra["overrides"]["hydra"])
    assert yaml.safe_load((record / "config.yaml").read_text())["model"]["name"] == "two"
    assert json.loads((place.folder / "run" / "plan.json").read_text())["values"]["served_model_name"] == "two"


def test_hydras_own_flags_are_answered_and_nothing_is_started(place: Place) -> None:
    argv = [sys.executable, "serve.py", "--cfg", "job", "model=tiny", "gpu=cpu", "tp_size=3"]
    assert yaml.safe_load(place.run(*argv))["tp_size"] == 3


def test_a_run_folder_that_nobody_named_has_the_port_in_its_name(place: Place) -> None:
    port = free_port()
    argv = [word for word in place.serve("run", port=port) if not word.startswith("hydra.run.dir")]
    env = {**place.env, "FAKE_CRASH": str(place.folder / "crash")}
    script = [argv[0], str(ROOT / "serve.py"), *argv[2:]]
    done = subprocess.run(script, cwd=place.folder, env=env, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 4, done.stderr
    (plan,) = (place.folder / "outputs").glob("*/*/plan.json")
    assert re.fullmatch(rf"\d\d-\d\d-\d\d-{port}", plan.parent.name)


def test_port_zero_takes_one_that_is_free_and_says_who_chose_it(place: Place) -> None:
    said = served(place, "port=0")
    port = int(json.loads((place.folder / "run" / "plan.json").read_text())["values"]["port"])
    shown = " ".join(said.split())  # lines are folded, by the length of this folder's name too
    assert f"port {port} " in shown
    assert "port=0 takes one that was free" in shown
    assert not listens(port)
