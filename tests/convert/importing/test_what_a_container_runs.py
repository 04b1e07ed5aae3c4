"""A container's words start the server in them, or the reason why not is found: each row is run, with a ``python3``
that writes down what it gets."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.commands import Run, runner

MODEL = ["--model-path", "Qwen/Qwen3-8B"]
START = ["python3", "-m", "sglang.launch_server"]
LINE = " ".join([*START, *MODEL, "--tp", "2"])
WORDS = {
    "words": [*START, *MODEL],
    "a shell with one word": ["sh", "-c", LINE],
    "a shell that stops at errors": ["/bin/bash", "-ec", f"exec {LINE}"],
    "a script that passes its words on": ["sh", "-c", '"$@"', "-", *START, *MODEL],
    "a shell with many words": ["sh", "-c", *START, *MODEL],
    "a shell with the flags beside": ["/bin/sh", "-ec", " ".join(START), *MODEL],
    "a shell with a line for each item": ["bash", "-c", " ".join(START), " ".join(MODEL), "--tp 2"],
    "the whole command as a program": [LINE],
    "the module as one word": ["python3", "-m sglang.launch_server", *MODEL],
    "flags alone": [*MODEL, "--tp", "2"],
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys, monkeypatch)


def is_started(words: list[str], folder: Path) -> bool:
    """Whether Python gets the module and the model when a system runs ``words``."""
    python, got = folder / "bin" / "python3", folder / "got"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {got}\n')
    python.chmod(0o755)
    try:
        environment = {"PATH": f"{python.parent}:{os.environ['PATH']}"}
        subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False)
    except FileNotFoundError:
        return False
    lines = got.read_text().split("\n") if got.exists() else []
    return lines[:2] == ["-m", "sglang.launch_server"] and "--model-path" in lines


@pytest.mark.corpus
@pytest.mark.parametrize("place", ["Kubernetes", "Compose", "Dockerfile", "docker run"])
@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_what_does_not_start_is_an_error(words: list[str], place: str, run: Run, tmp_path: Path) -> None:
    image = "lmsysorg/sglang:v0.5.20"
    container = {"name": "a", "image": image, "command": words[:1], "args": words[1:]}
    if words[0].startswith("-"):
        container = {"name": "a", "image": image, "args": words}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container]}}
    written = " ".join(f"'{word}'" for word in words)
    name, text = {
        "Kubernetes": ("pod.yaml", json.dumps(pod)),
        "Compose": ("compose.yaml", json.dumps({"services": {"a": {"image": image, "command": words}}})),
        "Dockerfile": ("Dockerfile", f"FROM {image}\nCMD {json.dumps(words)}\n"),
        "docker run": ("run.sh", f"docker run --gpus all {image} {written}\n"),
    }[place]
    Path(name).write_text(text)
    found = run("check", name, "gpu=h200").out
    assert ("IMP020" in found) is not is_started(words, tmp_path), found


def test_compose_splits_a_text_for_a_shell(run: Run) -> None:
    """A text is words, and the shell of the entry point runs the first (Compose specification, command)."""
    service = {"image": "lmsysorg/sglang:v0.5.20", "entrypoint": ["sh", "-c"], "command": LINE}
    Path("compose.yaml").write_text(json.dumps({"services": {"a": service}}))
    assert "runs only the word after it, 'python3'" in run("check", "compose.yaml", "gpu=h200").out.replace("\n", " ")


def test_a_flag_with_its_value_in_one_word(run: Run) -> None:
    Path("compose.yaml").write_text(
        json.dumps({"services": {"a": {"image": "lmsysorg/sglang:v0.5.20", "command": [*START, *MODEL, "--tp 2"]}}})
    )
    made = run("check", "compose.yaml", "gpu=h200")
    assert made.code == 2
    assert "two words" in made.out
