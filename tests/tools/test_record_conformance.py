"""The recorder against a sample of the recorded cases, and what it says where it cannot record."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
RECORDED = REPOSITORY / "tests" / "data" / "conformance"
VERSION = "0.5.2"
# The cases were recorded with Python 3.11: others word some errors and count some lines differently.
IGNORED = [] if sys.version_info[:2] == (3, 11) else ["--ignore=error", "--ignore=line"]
H100 = {"device": "cuda", "memory_mib": 81559.0, "capability": [9, 0], "flashinfer": True, "triton_kernels": True}
CASE = {"id": "x", "hardware": H100, "hf_config": {"architectures": ["LlamaForCausalLM"]}, "args": {"model_path": "m"}}


def record(*arguments: object, version: str = VERSION) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tools/record_conformance.py", "--version", version, *map(str, arguments)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, encoding="utf-8", timeout=250, check=False)


def lines_of(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def write_lines(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def environment() -> Path:
    """The environment that holds the release, kept between runs: one for each Python that the tests run on."""
    return REPOSITORY / ".venv-record-{}-{}.{}".format(VERSION, *sys.version_info)


@pytest.fixture
def existing(environment: Path, tmp_path: Path) -> Path:
    """The same environment, made by now."""
    assert record("--env", environment, "--defaults", tmp_path / "defaults.json").returncode == 0
    return environment


def sample(kind: str) -> list[dict[str, Any]]:
    """Cases of one kind, half of them refused where there are as many."""
    names = ["ports.jsonl"] if kind == "available" else ["public.jsonl.gz", "targeted.jsonl.gz"]
    lines = [line for name in names for line in lines_of(RECORDED / name) if kind in line["case"]]
    accepted = [line for line in lines if line["expected"]["ok"]]
    refused = [line for line in lines if not line["expected"]["ok"]]
    with_files = [line for line in lines if "files" in line["case"]][:1]
    draw = random.Random(f"{kind} 2025")
    return draw.sample(accepted, 12) + draw.sample(refused, min(len(refused), 10)) + with_files


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["args", "argv", "available"])
def test_a_sample_of_the_recorded_cases_is_reproduced_exactly(kind: str, environment: Path, tmp_path: Path) -> None:
    cases = sample(kind)
    out = tmp_path / "out.jsonl"
    done = record(
        "--env", environment, write_lines(tmp_path / "cases.jsonl", cases), "--compare", "--out", out, *IGNORED
    )
    assert (done.returncode, done.stdout) == (0, f"{len(cases)} of {len(cases)} cases recorded, 0 tables\n"), done
    if not IGNORED:
        assert lines_of(out) == cases


def test_the_tables_of_the_release_are_reproduced_exactly(environment: Path, tmp_path: Path) -> None:
    done = record("--env", environment, "--defaults", tmp_path / "defaults.json", "--cli", tmp_path / "cli.json")
    assert done.returncode == 0, done
    for name in ("defaults.json", "cli.json"):
        assert json.loads((tmp_path / name).read_text()) == json.loads((RECORDED / name).read_text()), name


@pytest.mark.thorough
def test_compare_names_the_case_and_the_key_that_differ(existing: Path, tmp_path: Path) -> None:
    line = sample("args")[0]
    line["expected"]["resolved"]["device"] = "abacus"
    done = record("--env", existing, write_lines(tmp_path / "cases.jsonl", [line]), "--compare")
    assert done.returncode == 1
    assert line["case"]["id"] in done.stdout
    assert "1 cases differ: resolved in 1" in done.stdout


def test_compressed_output_reads_back_and_bare_cases_are_taken(existing: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl.gz"
    done = record("--env", existing, write_lines(tmp_path / "cases.jsonl", [CASE]), "--out", out)
    assert done.returncode == 0, done
    [line] = lines_of(out)
    assert line["case"] == CASE
    assert line["expected"]["resolved"]["mem_fraction_static"] == 0.874


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cases.jsonl:1: not JSON"),
        ("\n[1]", "cases.jsonl:2: a case is an object with an id"),
        ('{"id": "x"}', "case x has neither args nor argv"),
        ('{"id": "x", "argv": []}', "case x lacks hardware, hf_config"),
        ('{"id": "x", "args": {}, "hf_config": {}, "hardware": {"device": "cuda"}}', "lacks hardware.memory_mib"),
        ('{"id": "x", "available": "all"}', "case x lacks args, dp_rank, randint"),
    ],
)
def test_a_file_that_holds_no_cases_is_refused_with_its_place(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").write_text(content)
    done = record("--env", tmp_path / "none", tmp_path / "cases.jsonl", "--out", tmp_path / "out.jsonl")
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "out.jsonl").exists()
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("arguments", "version", "message"),
    [
        ((), VERSION, "nothing to do"),
        (("CASES",), VERSION, "nothing to do"),
        (("--compare",), VERSION, "CASES go with"),
        (("CASES", "--out", "CASES"), VERSION, "also an input"),
        (("CASES", "--compare"), VERSION, "no expected outcome"),
        (("gone.jsonl", "--compare"), VERSION, "gone.jsonl cannot be read"),
        (("CASES", "--out", "OUT"), "--help-me", "version"),
        (("CASES", "--out", "OUT"), "latest", "'latest' is not a version"),
        (("CASES", "--out", "OUT", "--env", "FOLDER"), VERSION, "is not an environment"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: tuple[str, ...], version: str, message: str, tmp_path: Path) -> None:
    places = {"CASES": write_lines(tmp_path / "cases.jsonl", [CASE]), "OUT": tmp_path / "out", "FOLDER": tmp_path}
    environment = [] if "--env" in arguments else ["--env", tmp_path / "none"]
    done = record(*(places.get(word, word) for word in arguments), *environment, version=version)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_environment_with_another_release_is_refused(existing: Path, tmp_path: Path) -> None:
    done = record("--env", existing, "--defaults", tmp_path / "defaults.json", version="0.5.3")
    assert done.returncode == 2
    assert f"holds sglang {VERSION}, not 0.5.3" in done.stderr


# Stands for all that a recording needs of a release beside what the test is about.
SERVER_ARGS = """
import subprocess
import torch

class Anything:
    def __getattr__(self, name):
        return self

class ServerArgs:
    __post_init__ = add_cli_args = from_cli_args = check_server_args = None

    def __init__(self, **values):
        {question}

def __getattr__(name):
    return Anything()
"""
MODEL_CONFIG = """
multimodal_model_archs = []
is_multimodal_model = None

class ModelConfig:
    from_server_args = None
"""


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """The package folder of a release 0.0.1 that holds no module yet, in the environment tmp_path/environment."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=250)
    [site] = folder.glob("lib/python*/site-packages")
    (site / "sglang-0.0.1.dist-info").mkdir()
    (site / "sglang-0.0.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.0.1\n")
    (site / "sglang" / "srt" / "configs").mkdir(parents=True)
    return site / "sglang"


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("server_args", "model_config", "message"),
    [
        (None, None, "sglang.srt.server_args cannot be imported"),
        ("1 / 0", None, "sglang.srt.server_args cannot be imported among inert modules: ZeroDivisionError"),
        ("class ServerArgs: pass", None, "sglang.srt.server_args has no ServerArgs.__post_init__"),
        (SERVER_ARGS, None, "sglang.srt.configs.model_config cannot be imported"),
        (SERVER_ARGS, "class ModelConfig: pass", "sglang.srt.configs.model_config has no ModelConfig.from_server_args"),
        (SERVER_ARGS, MODEL_CONFIG, "sglang.srt.configs.model_config assigns no list to mm_disabled_models"),
    ],
)
def test_a_release_with_another_layout_is_refused_with_what_is_missing(
    server_args: str | None, model_config: str | None, message: str, release: Path, tmp_path: Path
) -> None:
    for name, source in (("srt/server_args.py", server_args), ("srt/configs/model_config.py", model_config)):
        if source is not None:
            (release / name).write_text(source.replace("{question}", "pass"))
    done = record("--env", tmp_path / "environment", "--defaults", tmp_path / "defaults.json", version="0.0.1")
    assert done.returncode == 2
    assert f"sglang 0.0.1 cannot be recorded: {message}" in done.stderr
    assert not (tmp_path / "defaults.json").exists()


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("subprocess.run(['new-smi', '-L'])", "it runs 'new-smi -L', which the faked machine has not"),
        ("torch.novel.count()", "it asks torch.novel.count(), which is not faked"),
        ("1 if torch.novel else 2", "it asks torch.novel, which is not faked"),
        ("1 + torch.novel", "it computes with an inert name"),
    ],
)
def test_a_case_that_hangs_on_what_is_not_faked_is_left_out_and_named(
    question: str, message: str, release: Path, tmp_path: Path
) -> None:
    (release / "srt/server_args.py").write_text(SERVER_ARGS.replace("{question}", question))
    (release / "srt/configs/model_config.py").write_text(MODEL_CONFIG + "mm_disabled_models = []")
    cases, out = write_lines(tmp_path / "cases.jsonl", [CASE]), tmp_path / "out.jsonl"
    done = record("--env", tmp_path / "environment", cases, "--out", out, version="0.0.1")
    assert done.returncode == 1, done
    assert done.stdout.startswith(f"1 cases not recorded, x is the first: {message}")
    assert done.stdout.endswith("0 of 1 cases recorded, 0 tables\n")
    assert out.read_text() == ""
