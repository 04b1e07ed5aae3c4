"""Pipes, devices, links, huge files and odd names where a file or a folder of others has them, each beside an honest
twin; formulas in a CSV and control characters in a report."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.cli.report import points_csv
from sglang_hydra.measure.report.contents import make_report
from sglang_hydra.measure.report.page import page
from sglang_hydra.measure.report.reading import read_sweeps
from sglang_hydra.measure.sweep.claims import Claims
from sglang_hydra.text.file_text import CONFIG_BYTES
from tests.commands import Run, runner
from tests.measure.report.folders import result, write_sweep
from tests.security.attacks import Stranger

HONEST = "gpu: h200\nmodel: qwen3_8b\n"
SECRET = "A" * 20


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def _fifo(file: Path, outside: Path) -> None:
    os.mkfifo(file)


def _endless(file: Path, outside: Path) -> None:
    file.symlink_to("/dev/zero")


def _leaving(file: Path, outside: Path) -> None:
    outside.write_text(f"{SECRET}: 1\n")
    file.symlink_to(outside)


def _leaving_by_two(file: Path, outside: Path) -> None:
    outside.write_text(f"{SECRET}: 1\n")
    step = file.with_name("step.txt")
    step.symlink_to(outside)
    file.symlink_to(step)


def _leaving_relatively(file: Path, outside: Path) -> None:
    outside.write_text(f"{SECRET}: 1\n")
    file.symlink_to(os.path.relpath(outside, file.parent))


def _broken(file: Path, outside: Path) -> None:
    file.symlink_to(outside)


def _loop(file: Path, outside: Path) -> None:
    file.symlink_to(file.name)


def _huge(file: Path, outside: Path) -> None:
    file.write_text(HONEST + "#" * CONFIG_BYTES)


def _plain(file: Path, outside: Path) -> None:
    file.write_text(HONEST)


def _link_inside(file: Path, outside: Path) -> None:
    # As Kubernetes mounts a ConfigMap.
    (file.parent / "..data").mkdir()
    (file.parent / "..data" / "x").write_text(HONEST)
    file.symlink_to("..data/x")


FILES: list[tuple[Callable[[Path, Path], None], str | None]] = [
    (_fifo, "it is a pipe, not a file"),
    (_endless, "it is a link that leads out of the folder that was given"),
    (_leaving, "it is a link that leads out of the folder that was given"),
    (_leaving_by_two, "it is a link that leads out of the folder that was given"),
    (_leaving_relatively, "it is a link that leads out of the folder that was given"),
    (_broken, "it is a link to a file that is not there"),
    (_loop, "it is a link that leads to itself"),
    (_huge, "it is larger than 1 MiB"),
    (_plain, None),
    (_link_inside, None),
]


@pytest.mark.parametrize(("make", "why"), FILES, ids=lambda value: getattr(value, "__name__", None))
def test_check_reads_only_plain_files_of_the_folder_it_was_given(
    make: Callable[[Path, Path], None], why: str | None, run: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "checked"
    folder.mkdir()
    make(folder / "mine.yaml", tmp_path / "outside.yaml")
    done = run("check", str(folder))
    assert done.code == (2 if why else 0)
    assert SECRET not in done.out + done.err
    assert why is None or ("CLI017" in done.out and why in " ".join(done.out.split()))


WORDS: list[tuple[Callable[[Path], list[str]], str]] = [
    (lambda file: ["plan", "gpu=h200", "model=qwen3_8b", f"lock={file}"], "LCK001"),
    (lambda file: ["plan", str(file.rename(file.with_suffix(".yaml")))], "CLI017"),
    (lambda file: ["diff", str(file.rename(file.with_suffix(".yaml"))), "gpu=h200 model=qwen3_8b"], "CLI017"),
    (lambda file: ["diagnose", str(file)], "DIA902"),
    (lambda file: ["import", str(file)], "IMP002"),
    (lambda file: ["plan", "gpu=h200", "model_path=org/x", f"model.facts_from={file}"], "HUB003"),
]


@pytest.mark.parametrize("words", [words for words, _ in WORDS], ids=[id for _, id in WORDS])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_is_named_and_not_waited_for(
    words: Callable[[Path], list[str]], kind: str, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    os.mkfifo(file) if kind == "pipe" else file.symlink_to("/dev/zero")
    id = next(id for candidate, id in WORDS if candidate is words)
    done = run(*words(file))
    assert done.code == 2
    assert id in done.out + done.err


def test_a_pipe_of_the_shell_is_read_where_it_was_typed(run: Run) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"python -m sglang.launch_server --model-path org/x --tp 2\n")
    os.close(writing)
    done = run("import", f"/dev/fd/{reading}")
    os.close(reading)
    assert done.code == 0
    assert "tp_size: 2" in done.out


@pytest.mark.parametrize("where", ["config.json", "model.safetensors.index.json", "model.safetensors"])
def test_a_model_folder_of_pipes_is_no_reason_to_wait(where: str, run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / where)
    if where != "config.json":
        (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    assert "Traceback" not in run("plan", "gpu=h200", f"model_path={tmp_path}").err


def test_a_preset_that_is_a_pipe_or_huge_is_a_finding(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gpu").mkdir()
    os.mkfifo(tmp_path / "gpu" / "mine.yaml")
    (tmp_path / "gpu" / "large.yaml").write_text("name: large\n" + "#" * CONFIG_BYTES)
    assert "CLI006" in run("plan", "--config-dir", str(tmp_path), "gpu=mine", "model=qwen3_8b").err
    done = run("plan", "--config-dir", str(tmp_path), "gpu=large", "model=qwen3_8b")
    assert done.code == 2
    assert "larger than 1 MiB" in " ".join((done.out + done.err).split())
    assert run("plan", "--config-dir", str(tmp_path), "gpu=h200", "model=qwen3_8b").code == 0


@pytest.mark.parametrize("name", ["²", "1²", "9" * 200, "-1", "1.released", "x", "٣"])
def test_a_claims_file_of_an_odd_name_claims_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "points").mkdir(parents=True)
    (tmp_path / "points" / name).write_text("{}")
    claims = Claims(tmp_path)
    assert claims.is_free("points")
    claim = claims.take("points")
    assert claim is not None
    assert claim.number == 1


@pytest.mark.parametrize("name", ["²", "9" * 200, "NaN", "-1"])
def test_a_results_folder_with_odd_names_is_reported(name: str, run: Run, tmp_path: Path) -> None:
    folder = _sweep(tmp_path, reason="no reason")
    failed = next((folder / "points").iterdir()) / "failed"
    failed.mkdir()
    (failed / f"{name}.json").write_text("{}")
    assert run("report", str(folder)).code == 0
    assert run("status", str(folder)).code == 0


def test_a_results_folder_of_pipes_is_no_reason_to_wait(run: Run, tmp_path: Path) -> None:
    folder = _sweep(tmp_path, reason="no reason")
    record = next((folder / "points").iterdir()) / "result.json"
    record.unlink()
    os.mkfifo(record)
    done = run("report", str(folder))
    assert "it is a pipe, not a file" in " ".join(done.out.split())


def _sweep(folder: Path, reason: str, words: str = "bench.concurrency=1") -> Path:
    workload = {"concurrency": 1, "seed": 1}
    points: list[dict[str, Any]] = [
        {"words": [words], "workload": workload, "result": result(0.1, workload, "invalid", [reason])},
        {"words": ["a"], "workload": {**workload, "concurrency": 2}, "result": result(0.1, workload)},
    ]
    return write_sweep(folder / "sweep", points)


CELLS = [
    ('=HYPERLINK("http://x","y")', '\'=HYPERLINK("http://x","y")'),
    ("+1+cmd|' /C calc'!A0", "'+1+cmd|' /C calc'!A0"),
    ("-1+1", "'-1+1"),
    ("@SUM(1)", "'@SUM(1)"),
    ("\t=1+1", "\\t=1+1"),
    ("\r=1+1", "\\r=1+1"),
    ("  =1+1", "  '=1+1"),
    ('"=1+1', "\"'=1+1"),
    ("'=1+1", "''=1+1"),
    ("＝1+1", "'＝1+1"),
    ("late; =1+1", "late; '=1+1"),
    ("no \x1b[31m colour", "no \\x1b[31m colour"),
    ("-1", "-1"),
    ("+1.5e3", "+1.5e3"),
    ("TTFT 3 - 4 ms, a=b", "TTFT 3 - 4 ms, a=b"),
]


@pytest.mark.parametrize(("reason", "cell"), CELLS)
def test_no_cell_of_the_csv_is_a_formula(reason: str, cell: str, tmp_path: Path) -> None:
    text = points_csv(make_report(read_sweeps([_sweep(tmp_path, reason)])))
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert cell in [row["reasons"] for row in rows]
    assert all(float(row["output_throughput"]) > 0 for row in rows)


HIDDEN = ["\x1b[31m", "\x9b31m", "\u202e", "\u2066", "\u200b", "\u200f", "\ufeff", "\x00", "\U000e0041"]


@pytest.mark.parametrize("char", HIDDEN, ids=lambda char: f"U+{ord(char[0]):04X}")
def test_nothing_in_a_report_is_invisible_or_steers(char: str, run: Run, tmp_path: Path) -> None:
    folder = _sweep(tmp_path, f"late{char}late", words=f"served_model_name=a{char}b")
    made = make_report(read_sweeps([folder]))
    spelled = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in char)
    html = page(made)
    assert char not in html
    assert f"late{spelled}late" in html
    done = run("report", str(folder))
    assert char not in done.out + done.err


def test_a_chart_shows_a_harmless_name(tmp_path: Path) -> None:
    folder = _sweep(tmp_path, "é and 中文 stay")
    assert "é and 中文 stay" in page(make_report(read_sweeps([folder])))


def test_a_tilde_is_the_home_folder_wherever_a_path_is_typed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "conf" / "experiment").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    assert run("export", "shell", "gpu=h200", "model=qwen3_8b", "engine=sglang", "--output=~/serve.sh").code == 0
    assert (home / "serve.sh").exists()
    assert run("plan", "--config-dir=~/conf", "gpu=h200", "model=qwen3_8b").code == 0
    done = run("bench", "-m", "gpu=h200", "model=qwen3_8b", "sweep.dry_run=true", "sweep.folder=~/x", "--json")
    assert json.loads(done.out)["folder"] == str(home / "x")
    (tmp_path / "mine.yaml").write_text(f"{HONEST}download_dir: ~/weights\n")
    plan = json.loads(run("plan", "--json", "mine.yaml").out)
    assert plan["values"]["download_dir"] == str(home / "weights")
    assert not (tmp_path / "~").exists()


TARGETS = [
    ("hydra/launcher=evil", "hydra.launcher._target_=evil_module.Launcher"),
    ("hydra/sweeper=evil", "hydra.sweeper._target_=evil_module.Launcher"),
    ("hydra.launcher._target_=evil_module.Launcher", "hydra.launcher._target_=evil_module.Launcher"),
    ("hydra.launcher._target_=os.system", "hydra.launcher._target_=os.system"),
    ("hydra.sweeper._target_=hydra_plugins.none.Such", "hydra.sweeper._target_=hydra_plugins.none.Such"),
]


@pytest.mark.corpus
@pytest.mark.parametrize(("word", "named"), TARGETS)
def test_a_launcher_that_is_no_plugin_is_a_finding_and_is_not_imported(
    word: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sglang_hydra.compose.composer import Composer
    from sglang_hydra.compose.overrides import Request
    from sglang_hydra.measure.sweep.grid import read_grid
    from sglang_hydra.measure.sweep.hydra_sweeps import with_launcher
    from sglang_hydra.measure.sweep.planning import plan_sweep, sweep_of
    from sglang_hydra.measure.sweep.points import Source
    from sglang_hydra.text.errors import ConfigError

    mark = tmp_path / "imported"
    (tmp_path / "evil_module.py").write_text(f"open({str(mark)!r}, 'w')\nclass Launcher: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for part in ("launcher", "sweeper"):
        (tmp_path / "conf" / "hydra" / part).mkdir(parents=True)
        (tmp_path / "conf" / "hydra" / part / "evil.yaml").write_text("_target_: evil_module.Launcher\n")
    composer = Composer([tmp_path / "conf"])

    def sweep(*words: str) -> Any:
        asked = ["gpu=h200", "model=qwen3_8b", "bench.concurrency=1,2", *words]
        grid = read_grid(composer, [Request(text, text) for text in asked])
        return sweep_of(plan_sweep(composer, grid, 1), Source((), (str(tmp_path / "conf"),), "sglang_hydra", seed=1))

    with pytest.raises(ConfigError) as refused:
        with_launcher(sweep(word), composer)
    (finding,) = refused.value.findings
    assert finding.id == "SWP021"
    assert named in finding.message
    assert not mark.exists()
    assert with_launcher(sweep("hydra/launcher=joblib"), composer).running is not None


def test_a_repository_inside_a_checkout_starts_no_program_of_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """A bare repository can be committed as plain files: git takes it for one, with settings that name programs."""
    stranger = Stranger(tmp_path)
    inner = stranger.folder / "inner"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q", "--bare", str(inner)], check=True)
    stranger.experiment(name="inner/server.yaml")
    program = str(stranger.program)
    for name in ("core.fsmonitor", "core.sshCommand", "diff.external", "core.pager"):
        subprocess.run([*git, "-C", str(inner), "config", name, program], check=True)
    subprocess.run([*git, "-C", str(inner), "config", "core.bare", "false"], check=True)
    subprocess.run([*git, "-C", str(inner), "config", "core.worktree", str(inner)], check=True)
    monkeypatch.chdir(inner)
    assert subprocess.run([*git, "status"], capture_output=True, check=False).returncode == 0, "git itself takes it"
    assert stranger.ran != "", "and starts the program"
    stranger.mark.unlink()
    run("check", "--base", "HEAD", "server.yaml")
    assert stranger.ran == ""
