"""The table of attacks: a stranger's program, package or interpreter, named in every way that a file can, through every
verb that plans. Nothing of it runs. Beside each an honest twin, which still exits with 0."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.cli.main import entry
from sglang_hydra.facts import trust
from sglang_hydra.facts.installed import installed
from sglang_hydra.text import user_settings as settings
from tests.commands import Printed, Run
from tests.security.attacks import Stranger

FINISHED = Path(__file__).parents[1] / "data" / "made_by_first_build" / "finished_sweep"
NAMED = ("engine: {python: ./evil.sh}",)
ROUTED = ("topology: replicas", "replicas: 2", "topology.router: {python: ./evil.sh}")
PRIMARY = "defaults: [sglang_hydra_schema, {gpu: h200}, {model: qwen3_8b}, {engine: auto}, {launch: local}, _self_]\n"

VERBS: list[tuple[str, ...]] = [
    ("plan", "server.yaml"),
    ("plan", "--json", "server.yaml"),
    ("plan", "-m", "server.yaml", "tp_size=1,2"),
    ("check", "server.yaml"),
    ("check", "--strict", "server.yaml"),
    ("check", "."),
    ("check", "--base", ".", "server.yaml"),
    ("check", "--format", "markdown", "--base", ".", "."),
    ("fit", "server.yaml"),
    ("explain", "tp_size", "server.yaml"),
    ("diff", "server.yaml", "gpu=h100 model=qwen3_8b"),
    ("export", "shell", "server.yaml"),
    ("upgrade", "--to", "0.5.3", "server.yaml"),
    ("bench", "server.yaml", "sweep.dry_run=true"),
]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Command lines in this process, on this machine as it is: what is to be started can be."""

    def of(*words: str) -> Printed:
        code = entry(words)
        return Printed(code, *capsys.readouterr())

    return of


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stranger:
    made = Stranger(tmp_path)
    monkeypatch.chdir(made.folder)
    monkeypatch.setattr(trust, "_granted", set())
    return made


@pytest.mark.corpus
@pytest.mark.parametrize("lines", [NAMED, ROUTED, ()], ids=["engine", "router", "honest"])
@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_no_verb_that_plans_starts_a_program_that_a_file_names(
    words: Sequence[str], lines: Sequence[str], run: Run, stranger: Stranger
) -> None:
    stranger.experiment(*lines)
    done = run(*words)
    assert stranger.ran == ""
    assert done.code == 0 or lines is ROUTED, done.out + done.err
    assert "Traceback" not in done.err


READING: list[tuple[str, ...]] = [
    ("audit", "--config-dir", "lab", "gpu=mine"),
    ("recipes", "--config-dir", "lab", "gpu=mine", "engine=evil"),
    ("import", "launch.sh"),
    ("diagnose", "server.log"),
    ("report", "finished_sweep"),
    ("status", "finished_sweep"),
    ("logs", "finished_sweep"),
]


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_no_verb_that_reads_starts_a_program_that_its_files_name(
    words: Sequence[str], run: Run, stranger: Stranger
) -> None:
    stranger.write("lab/engine/evil.yaml", "# an engine\npython: ./evil.sh\n")
    stranger.write("lab/gpu/mine.yaml", "# mine\ndefaults: [h200]\nname: mine\n")
    stranger.write("launch.sh", "./evil.sh -m sglang.launch_server --model-path Qwen/Qwen3-8B\n")
    stranger.write("server.log", "./evil.sh: server_args=ServerArgs(model_path='./evil.sh')\nKilled\n")
    shutil.copytree(FINISHED, stranger.folder / "finished_sweep")
    record = json.loads((FINISHED / "sweep.json").read_text())
    record["words"] = [*record["words"], "engine.python=./evil.sh"]
    (stranger.folder / "finished_sweep" / "sweep.json").write_text(json.dumps(record))
    done = run(*words)
    assert stranger.ran == ""
    assert done.code in (0, 2), done.out + done.err
    assert "Traceback" not in done.err


def test_the_doctor_starts_no_program_that_a_file_names(run: Run, stranger: Stranger) -> None:
    stranger.experiment(*NAMED)
    assert "was not asked" in " ".join(run("doctor", "server.yaml").out.split())
    assert stranger.ran == ""


def _engine_preset(stranger: Stranger) -> list[str]:
    stranger.write("lab/engine/evil.yaml", "# an engine\npython: ./evil.sh\n")
    return ["--config-dir", "lab", "engine=evil", "gpu=h200", "model=qwen3_8b"]


def _engine_preset_chosen_by_a_file(stranger: Stranger) -> list[str]:
    stranger.write("lab/engine/evil.yaml", "# an engine\npython: ./evil.sh\n")
    stranger.experiment("engine: evil")
    return ["--config-dir", "lab", "server.yaml"]


def _experiment_preset(stranger: Stranger) -> list[str]:
    stranger.write("lab/experiment/x.yaml", "# @package _global_\nengine: {python: ./evil.sh}\n")
    return ["--config-dir", "lab", "+experiment=x", "gpu=h200", "model=qwen3_8b"]


def _primary_config(stranger: Stranger) -> list[str]:
    stranger.write("lab/top.yaml", f"{PRIMARY}engine: {{python: ./evil.sh}}\n")
    return ["--config-dir", "lab", "--config-name", "top"]


def _typed_reference(stranger: Stranger) -> list[str]:
    stranger.experiment("model.source: ./evil.sh")
    return ["server.yaml", "engine.python=${model.source}"]


PLACES: list[tuple[Callable[[Stranger], list[str]], str]] = [
    (_engine_preset, "lab/engine/evil.yaml:2"),
    (_engine_preset_chosen_by_a_file, "lab/engine/evil.yaml:2"),
    (_experiment_preset, "lab/experiment/x.yaml:2"),
    (_primary_config, "lab/top.yaml:2"),
    (_typed_reference, "argument 3, by the reference ${model.source},"),
]


@pytest.mark.parametrize(("words", "place"), PLACES, ids=lambda item: getattr(item, "__name__", ""))
def test_the_plan_says_which_file_names_a_program_and_what_would_allow_it(
    words: Callable[[Stranger], list[str]], place: str, run: Run, stranger: Stranger
) -> None:
    done = run("plan", *words(stranger))
    said = " ".join(done.out.split())
    assert (done.code, stranger.ran) == (0, "")
    assert f"SEC001 engine.python=./evil.sh was not asked, because {place} names it and you did not type it" in said
    assert "--trust" in said


def _lock(run: Run, stranger: Stranger, python: str) -> None:
    """A saved plan that says that its program was typed."""
    plan = json.loads(run("plan", "--json", "gpu=h200", "model=qwen3_8b", "random_seed=1").out)
    plan["settings"]["engine.python"] = {"layer": "cli", "place": "argument 1", "value": python}
    plan["engine"]["python"] = python
    stranger.write("plan.json", json.dumps(plan))


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "lock=plan.json"),
        ("export", "shell", "lock=plan.json"),
        ("check", "plan.json"),
        ("check", "."),
        ("diff", "plan.json", "gpu=h200 model=qwen3_8b"),
        ("upgrade", "--to", "0.5.3", "plan.json"),
    ],
    ids=" ".join,
)
def test_a_saved_plan_names_no_program_that_planning_starts(words: Sequence[str], run: Run, stranger: Stranger) -> None:
    _lock(run, stranger, "./evil.sh")
    assert run(*words).code == 0
    assert stranger.ran == ""


@pytest.mark.parametrize("words", [("plan", "server.yaml"), ("check", "server.yaml"), ("doctor", "server.yaml")])
def test_a_virtual_environment_of_a_stranger_is_read_and_not_run(
    words: Sequence[str], run: Run, stranger: Stranger
) -> None:
    stranger.environment("0.5.1")
    # A torch that only itself could be asked about, and import lines in .pth files.
    stranger.write("venv/lib/python3.11/site-packages/torch/version.py", "hip = '6.3'\nxpu = '1'\ncuda = None\n")
    stranger.write("server.yaml", "gpu: auto\nmodel: qwen3_8b\nengine: {python: venv/bin/python}\n")
    run(*words)
    assert stranger.ran == ""
    assert installed("venv/bin/python").versions == {"sglang": "0.5.1"}


@pytest.mark.parametrize(
    ("settings_of_it", "versions"),
    [
        ({"include-system-site-packages": "true", "home": "/dev/null"}, {"sglang": "0.5.2"}),
        ({"include-system-site-packages": "true", "home": "../../.."}, {"sglang": "0.5.2"}),
        ({"include-system-site-packages": "TRUE", "home": "/dev/zero"}, {"sglang": "0.5.2"}),
        ({"home": "\x00"}, {"sglang": "0.5.2"}),
    ],
)
def test_what_a_pyvenv_cfg_says_starts_nothing(
    settings_of_it: dict[str, str], versions: dict[str, str], stranger: Stranger
) -> None:
    python = stranger.environment(settings=settings_of_it)
    assert installed(str(python)).versions == versions
    assert stranger.ran == ""


@pytest.mark.parametrize("name", ["pyvenv.cfg", "lib/python3.11/site-packages/x.pth"])
def test_a_pipe_in_an_environment_is_not_waited_for(name: str, stranger: Stranger) -> None:
    python = stranger.environment()
    (stranger.folder / "venv" / name).unlink(missing_ok=True)
    os.mkfifo(stranger.folder / "venv" / name)
    assert installed(str(python)).versions == {"sglang": "0.5.2"}


def test_a_typed_program_is_asked(run: Run, stranger: Stranger) -> None:
    stranger.experiment()
    for others in (["server.yaml"], ["gpu=h200", "model=qwen3_8b"]):
        stranger.mark.unlink(missing_ok=True)
        done = run("plan", *others, "engine.python=./evil.sh")
        assert (done.code, "SEC001" in done.out) == (0, False)
        assert stranger.ran != ""


@pytest.mark.parametrize("how", ["flag", "variable", "settings"])
def test_a_program_in_a_trusted_folder_is_asked_and_the_plan_says_who_trusts_it(
    how: str, run: Run, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger.experiment(*NAMED)
    words = ["plan", "server.yaml"]
    if how == "flag":
        words += ["--trust", "."]
    elif how == "variable":
        monkeypatch.setenv("SGLANG_HYDRA_TRUST", str(stranger.folder))
    else:
        stranger.write("../settings.yaml", f"trusted_folders: [{stranger.folder}]\n")
        monkeypatch.setenv(settings.FILE_VARIABLE, str(stranger.folder.parent / "settings.yaml"))
    done = run(*words)
    assert done.code == 0
    assert stranger.ran != ""
    place = {"flag": "--trust", "variable": "SGLANG_HYDRA_TRUST", "settings": "settings.yaml:1"}[how]
    note = next(line for line in json.loads(run(*words, "--json").out)["notes"] if line.startswith("program:"))
    assert "engine.python=./evil.sh, named by server.yaml:3" in note
    assert f"{place} trusts {os.path.realpath(stranger.folder)}" in note


def test_a_link_out_of_a_trusted_folder_is_not_asked_and_the_link_of_its_environment_is(
    stranger: Stranger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted = tmp_path / "trusted"
    (trusted / "bin").mkdir(parents=True)
    (trusted / "bin" / "python").symlink_to(stranger.program)
    monkeypatch.setenv("SGLANG_HYDRA_TRUST", str(trusted))
    settings.begin()
    assert not trust.may_start(str(trusted / "bin" / "python"))
    (trusted / "pyvenv.cfg").write_text("home = /usr/bin\n")
    assert not trust.may_start(str(trusted / "bin" / "python")), "it was made from another interpreter"
    (trusted / "bin" / "python").unlink()
    (trusted / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    (trusted / "pyvenv.cfg").write_text(f"home = {os.path.dirname(os.path.realpath(sys.executable))}\n")
    assert trust.may_start(str(trusted / "bin" / "python"))


@pytest.mark.parametrize(
    "lines",
    [
        ("SGLANG_HYDRA_SETTINGS: ../settings.yaml",),
        ("engine: {python: ./evil.sh, env: {SGLANG_HYDRA_SETTINGS: ../settings.yaml}}",),
        ("engine: {python: ./evil.sh, env: {SGLANG_HYDRA_TRUST: .}}",),
        ("engine: {python: ./evil.sh}", "hydra: {job: {env_set: {SGLANG_HYDRA_TRUST: .}}}"),
    ],
)
def test_no_file_says_where_the_settings_are(lines: Sequence[str], run: Run, stranger: Stranger) -> None:
    stranger.write("../settings.yaml", f"trusted_folders: [{stranger.folder}]\n")
    stranger.write(".env", "SGLANG_HYDRA_SETTINGS=../settings.yaml\n")
    stranger.experiment(*lines)
    run("plan", "server.yaml")
    assert stranger.ran == ""


SEARCHED: list[tuple[str, ...]] = [
    ("hydra: {searchpath: ['pkg://evilpkg']}",),
    ("hydra.searchpath: ['pkg://evilpkg']",),
    ("'+hydra.searchpath': ['pkg://evilpkg']",),
    ("defaults: [{hydra.searchpath: '[pkg://evilpkg]'}]",),
    ("sweep: {params: {hydra.searchpath: ['[pkg://evilpkg]']}}",),
]


def _importable(stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(stranger.package("evilpkg"))
    monkeypatch.delitem(sys.modules, "evilpkg", raising=False)
    stranger.write("evilpkg/gpu/lab.yaml", "defaults: [h100]\nname: lab\n")


@pytest.mark.corpus
@pytest.mark.parametrize("lines", SEARCHED)
@pytest.mark.parametrize(
    "words", [("plan",), ("check",), ("plan", "-m"), ("bench", "sweep.dry_run=true")], ids=" ".join
)
def test_no_package_is_imported_that_a_file_names(
    words: Sequence[str], lines: Sequence[str], run: Run, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    _importable(stranger, monkeypatch)
    stranger.experiment(*lines)
    run(*words, "server.yaml")
    assert stranger.ran == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lab/top.yaml", ("plan", "--config-dir", "lab", "--config-name", "top")),
        ("lab/sglang_hydra.yaml", ("check", "lab/experiment")),
    ],
)
def test_a_primary_config_adds_no_package_to_the_search_path_unless_it_is_trusted(
    name: str, words: Sequence[str], run: Run, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    _importable(stranger, monkeypatch)
    stranger.write(name, f"{PRIMARY}hydra: {{searchpath: ['pkg://evilpkg']}}\n")
    stranger.write("lab/experiment/x.yaml", "tp_size: 1\n")
    refused = run(*words)
    assert refused.code == 2
    assert f"SEC002 {name}:2: hydra.searchpath names pkg://evilpkg" in " ".join((refused.out + refused.err).split())
    assert stranger.ran == ""
    assert run(*words, "--trust", "lab").code == 0
    assert stranger.ran != ""


def test_a_config_that_nobody_named_searches_no_folder_elsewhere(run: Run, stranger: Stranger, tmp_path: Path) -> None:
    stranger.write("lab/sglang_hydra.yaml", f"{PRIMARY}hydra: {{searchpath: ['file://{tmp_path}/elsewhere']}}\n")
    stranger.write("lab/experiment/x.yaml", "tp_size: 1\n")
    done = run("check", "lab/experiment")
    assert (done.code, "SEC002 lab/sglang_hydra.yaml:2" in " ".join((done.out + done.err).split())) == (2, True)


def test_an_interpreter_without_an_environment_is_read_beside_it_and_said_to_be_incomplete(
    run: Run, stranger: Stranger
) -> None:
    stranger.write("conda/lib/python3.11/site-packages/sglang-0.5.2.dist-info/METADATA", "Name: sglang\n")
    (stranger.folder / "conda" / "bin").mkdir()
    (stranger.folder / "conda" / "bin" / "python").symlink_to(stranger.program)
    stranger.experiment("engine: {python: conda/bin/python}")
    done = run("plan", "server.yaml")
    assert "SEC001" in done.out
    assert (installed("conda/bin/python").versions, stranger.ran) == ({"sglang": "0.5.2"}, "")


def test_a_typed_package_is_searched(run: Run, stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    _importable(stranger, monkeypatch)
    assert run("plan", "gpu=lab", "model=qwen3_8b", "hydra.searchpath=[pkg://evilpkg]").code == 0
    assert stranger.ran != ""


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"words": ["gpu=h200", "model=qwen3_8b", "engine.python=./evil.sh"]}, ()),
        ({"words": ["gpu=h200", "model=qwen3_8b", "hydra.searchpath=[pkg://evilpkg]"]}, ()),
        ({"words": ["gpu=h200", "model=qwen3_8b"], "config_dirs": ["pkg://evilpkg"]}, ()),
    ],
)
def test_the_record_of_a_sweep_is_no_typed_word(
    record: dict[str, list[str]],
    words: Sequence[str],
    run: Run,
    stranger: Stranger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _importable(stranger, monkeypatch)
    from sglang_hydra.cli import resume as resuming

    whole = {"config_dirs": [], "config_name": "sglang_hydra", **record}
    monkeypatch.setattr(resuming.Store, "read_sweep", lambda self: whole)
    run("resume", "sweep", "sweep.dry_run=true")
    assert stranger.ran == ""


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("served_model_name: !!python/object/apply:os.system ['./evil.sh']", 2),
        ("served_model_name: !!python/name:os.system", 2),
        ("served_model_name: ${oc.create:{a: 1}}", 2),
        ("served_model_name: \"${oc.decode:'[1]'}\"", 2),
        ("served_model_name: ${oc.decode:name}", 0),
        ("served_model_name: ${model.name}", 0),
        ("served_model_name: ${no_such:./evil.sh}", 2),
        ("model: {_target_: os.system, command: ./evil.sh}", 2),
        ("engine: {_target_: os.system, command: ./evil.sh}", 2),
        ("hydra: {run: {dir: /}, launcher: {_target_: os.system}, callbacks: {x: {_target_: os.system}}}", 0),
        ("trust_remote_code: true", 0),
        ("engine: {version: ./evil.whl}", 2),
    ],
)
def test_yaml_and_interpolations_run_nothing(line: str, code: int, run: Run, stranger: Stranger) -> None:
    stranger.write("server.yaml", f"gpu: h200\nmodel_path: ./checkpoint\n{line}\n")
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "auto_map": {"AutoConfig": "evil.Config"}}
    stranger.write("checkpoint/config.json", json.dumps(config))
    stranger.write("checkpoint/evil.py", stranger.leaves_mark("imported"))
    done = run("plan", "server.yaml")
    assert (done.code, stranger.ran) == (code, ""), done.out + done.err


def test_modules_beside_a_checkout_are_not_imported_by_an_interpreter_that_is_asked(
    run: Run, stranger: Stranger
) -> None:
    for name in ("json", "torch", "sysconfig", "site"):
        stranger.write(f"{name}.py", stranger.leaves_mark(name))
    own = stranger.folder.parent / "own" / "python"
    own.parent.mkdir()
    own.symlink_to(os.path.realpath(sys.executable))
    run("doctor", "gpu=h200", "model=qwen3_8b", f"engine.python={own}")
    run("plan", "gpu=auto", "model=qwen3_8b", f"engine.python={own}")
    assert stranger.ran == ""


def test_a_json_that_is_no_model_is_not_repeated(run: Run, stranger: Stranger) -> None:
    stranger.write("home/config.json", json.dumps({"auths": {"registry": {"auth": "c2VjcmV0"}}}))
    for line in ("model_path: home", "model: {facts_from: home/config.json, model_path: org/x}"):
        stranger.write("server.yaml", f"gpu: h200\n{line}\n")
        done = run("plan", "--json", "server.yaml")
        assert ("HUB001" in done.out, "c2VjcmV0" in done.out + done.err) == (True, False)


def test_serve_names_a_program_of_a_file_before_it_is_asked_or_started(
    run: Run, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sglang_hydra.cli import serve

    seen: list[str] = []
    shown: Callable[..., None] = serve.write_lines

    def write_lines(*lines: Any) -> None:
        seen.append(stranger.ran)
        shown(*lines)

    monkeypatch.setattr(serve, "write_lines", write_lines)
    monkeypatch.setattr(serve, "serve_here", lambda asked, plan: 0)
    stranger.experiment(*NAMED)
    done = run("serve", "server.yaml")
    assert "Starting engine.python=./evil.sh, named by server.yaml:3" in done.out
    assert seen == [""]
    assert stranger.ran != "", "the plan that is started was made with what it has"


def test_bench_names_a_program_of_a_file_before_it_is_asked_or_started(
    run: Run, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sglang_hydra.measure.sweep import progress

    monkeypatch.setattr(import_module("sglang_hydra.measure.sweep.runner"), "run", lambda sweep: 0)
    monkeypatch.setattr(progress, "status", lambda folder, as_json: 0)
    stranger.experiment(*NAMED)
    done = run("bench", "server.yaml")
    assert done.code == 0, done
    assert "Starting engine.python=./evil.sh, named by server.yaml:3" in done.err
    assert stranger.ran != ""


def test_what_serve_refuses_is_not_started(run: Run, stranger: Stranger) -> None:
    stranger.experiment(*NAMED, "tp_size: 3")
    assert run("serve", "server.yaml").code == 2
    assert stranger.ran == ""


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["yaml.py", "hydra/__init__.py", "hydra_plugins/evil.py", "json/__init__.py"])
def test_modules_of_a_checkout_are_not_imported_where_the_package_is_run_as_a_module(
    name: str, stranger: Stranger
) -> None:
    stranger.write(name, stranger.leaves_mark(name))
    stranger.experiment()
    command = [sys.executable, "-m", "sglang_hydra", "plan", "server.yaml"]
    done = subprocess.run(command, cwd=stranger.folder, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert (done.returncode, stranger.ran) == (0, ""), done.stderr
