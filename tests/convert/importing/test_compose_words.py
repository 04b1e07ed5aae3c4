"""Compose splits a command into words whatever its lines; the port of an address is kept where the address is open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import Run, runner

FLAGS = "--model-path Qwen/Qwen3-8B\n--tp 2\n--host 0.0.0.0\n"
START = "python3 -m sglang.launch_server"
SERVICES = {
    "an entrypoint of text": {"entrypoint": START, "command": FLAGS},
    "an entrypoint of words": {"entrypoint": START.split(), "command": FLAGS},
    "no entrypoint": {"command": f"{START}\n{FLAGS}"},
    "ends of lines that are escaped": {"command": f"{START} \\\n{FLAGS}"},
    "quotes and a default": {"command": f"{START}\n--model-path 'Qwen/Qwen3-8B' --tp ${{TP:-2}}\n--host \"0.0.0.0\""},
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys, monkeypatch)


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)
def test_a_block_of_lines_is_words(service: dict[str, object], run: Run) -> None:
    image = {"image": "lmsysorg/sglang:v0.5.20-cu130"}
    Path("compose.yaml").write_text(json.dumps({"services": {"a": {**image, **service}}}))
    (server,) = json.loads(run("import", "compose.yaml", "--json").out)["servers"]
    assert {item["name"]: item["value"] for item in server["arguments"]} == {
        "model_path": "Qwen/Qwen3-8B",
        "tp_size": 2,
        "host": "0.0.0.0",
    }


@pytest.mark.parametrize("format", ["shell", "slurm", "k8s", "compose", "docker", "argv", "engine-kwargs"])
def test_the_port_of_an_open_address_is_exported(format: str, run: Run) -> None:
    flags = "--model-path deepseek-ai/DeepSeek-V3 --tp 16 --nnodes 2 --node-rank $NODE_RANK"
    Path("n.sh").write_text(f"{START} {flags} --dist-init-addr ${{NODE0_IP}}:62001\n")
    made = run("export", format, "n.sh", "gpu=h200", "engine.version=0.5.2").out
    assert ":62001" in made
    assert ":20000" not in made
