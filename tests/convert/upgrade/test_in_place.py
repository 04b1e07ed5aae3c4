"""``upgrade --in-place``: arguments and the image change, everything else of the file stays."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path

import pytest

from tests.commands import Run, runner
from tests.convert.importing.published_servers import published

MANIFEST = """\
# our chat server
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat, labels: {b: c, a: "1"}}   # in this order
spec:
  template:
    spec:
      containers:
        - name: sidecar   # --enable-ep-moe is no flag of this one
          image: busybox:1.36
          command: ["tail", "-f", "/log"]
        - name: sglang
          image: lmsysorg/sglang:v0.5.2-cu126 # pinned
          command: [python3, -m, sglang.launch_server]
          args:
            - --model-path
            - Qwen/Qwen3-8B   # the model
            - --enable-ep-moe  # why
            - --tp
            - "2"
            # keep --mem-fraction-static low
            - --mem-fraction-static
            - "0.8"
          env:
            - {name: SGL_ENABLE_JIT_DEEPGEMM, value: "1"}
"""
WANTED = (
    MANIFEST.replace("v0.5.2-cu126", "v0.5.20-cu130")
    .replace("- --enable-ep-moe  # why", '- --ep-size\n            - "2"  # why')
    .replace("SGL_ENABLE", "SGLANG_ENABLE")
)
SCRIPT = """\
#!/bin/bash
# start it with --enable-ep-moe
pip install "sglang[all]==0.5.2"   # pinned
exec python -m sglang.launch_server \\
  --model-path Qwen/Qwen3-8B \\
  --tp 2 --enable-ep-moe \\
  --mem-fraction-static 0.8   # low
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys, monkeypatch)


def test_only_arguments_and_the_image_change(run: Run, tmp_path: Path) -> None:
    (tmp_path / "deploy.yaml").write_text(MANIFEST)
    done = run("upgrade", "--to", "0.5.20", "--in-place", "deploy.yaml", "gpu=h200")
    assert done.code == 0, done.err
    assert (tmp_path / "deploy.yaml").read_text() == WANTED
    assert "-            - --enable-ep-moe  # why" in done.out
    assert done.out.index("+            - --ep-size") < done.out.index("Written to deploy.yaml")


def test_a_script_keeps_its_comments_and_gets_its_pinned_release(run: Run, tmp_path: Path) -> None:
    (tmp_path / "serve.sh").write_text(SCRIPT)
    assert run("upgrade", "--to", "0.5.20", "--in-place", "serve.sh", "gpu=h200").code == 0
    wanted = SCRIPT.replace("--tp 2 --enable-ep-moe", "--tp 2 --ep-size 2").replace("==0.5.2", "==0.5.20")
    assert (tmp_path / "serve.sh").read_text() == wanted


def test_an_image_that_no_table_has_gets_the_published_one(run: Run, tmp_path: Path) -> None:
    unlisted = MANIFEST.replace("v0.5.2-cu126", "v0.5.2-cu999").replace("busybox:1.36", "docker.io/me/sglang:0.5.2")
    (tmp_path / "deploy.yaml").write_text(unlisted)
    assert run("upgrade", "--to", "0.5.20", "--in-place", "deploy.yaml", "gpu=h200").code == 0
    after = (tmp_path / "deploy.yaml").read_text()
    assert "lmsysorg/sglang:v0.5.20-cu130 # pinned" in after
    assert "image: docker.io/me/sglang:0.5.2\n" in after


def test_one_flag_that_became_two_is_written_as_two(run: Run, tmp_path: Path) -> None:
    line = "exec python -m sglang.launch_server --model-path Qwen/Qwen3-8B \\\n  {} --tp 2\n"
    text = 'pip install "sglang==0.5.9"\n' + line.format("--enable-nsa-prefill-context-parallel")
    (tmp_path / "serve.sh").write_text(text)
    run("upgrade", "--to", "0.5.23", "--in-place", "serve.sh", "gpu=h200")
    assert line.format("--enable-prefill-cp --cp-strategy interleave") in (tmp_path / "serve.sh").read_text()


@pytest.mark.parametrize("format", ["shell", "docker", "compose", "slurm", "k8s"])
def test_an_export_in_place_is_the_plan_of_the_new_release(format: str, run: Run, tmp_path: Path) -> None:
    words = ["gpu=h200", "model=qwen3_8b", "enable_ep_moe=true", "tp_size=2", "random_seed=7"]
    file = "made.yaml" if format in ("compose", "k8s") else "made.sh"
    (tmp_path / file).write_text(run("export", format, *words, "engine.version=0.5.2").out)
    assert run("upgrade", "--to", "0.5.20", "--in-place", file).code == 0
    again = json.loads(run("check", "--json", file).out)["results"][0]
    there = json.loads(run("plan", "--json", *words[:2], *words[3:], "ep_size=2", "engine.version=0.5.20").out)
    assert again["server_id"] == there["server_id"]
    assert f"plan={there['server_id']}" in (tmp_path / file).read_text()


AS_IT_IS = """\
# --enable-ep-moe in a comment
data: {note: "with --enable-ep-moe"}
---
services:
  watch: {image: watcher:1, command: ["--enable-ep-moe", "--port", "9"]}   # not a server
  a:
    image: lmsysorg/sglang:v0.5.2-cu126
    command: [python3, -m, sglang.launch_server, "--model-path", Qwen/Qwen3-8B, FIRST]
  b:
    image: lmsysorg/sglang:v0.5.2-cu126
    command: >-
      python3 -m sglang.launch_server
      --model-path Qwen/Qwen3-8B --tp 2
      SECOND
"""
CALLED_BY = """\
ARGS="--tp 2 FIRST"   # why
sglang serve Qwen/Qwen3-8B $ARGS \\
  --log-requests \\
  SECOND
echo done
"""
RECIPE = """\
model: {path: dsr1}   # the model
backend:
  sglang_config:
    aggregated:
      model-path: deepseek-ai/DeepSeek-V3
      tensor-parallel-size: 8
      FIRST   # experts
SECOND"""
PLACES = {
    "a key of a recipe": (RECIPE, ["enable-ep-moe: true", ""], ["ep-size: 8", ""]),
    "each server has its own value": (
        AS_IT_IS,
        ['"--enable-ep-moe"', "--enable-ep-moe"],
        ['"--ep-size", "1"', "--ep-size 2"],
    ),
    "quotes around several words": (CALLED_BY, ["--enable-ep-moe", ""], ["--ep-size 2", ""]),
    "the last line of a command": (CALLED_BY, ["", "--enable-ep-moe"], ["", "--ep-size 2"]),
}


@pytest.mark.parametrize(("text", "before", "after"), PLACES.values(), ids=PLACES.keys())
def test_only_the_places_of_servers_change(
    text: str, before: list[str], after: list[str], run: Run, tmp_path: Path
) -> None:
    def filled(with_words: list[str]) -> str:
        return text.replace("FIRST", with_words[0]).replace("SECOND", with_words[1])

    file = tmp_path / ("serve.sh" if text is CALLED_BY else "two.yaml")
    file.write_text(filled(before))
    done = run("upgrade", "--to", "0.5.20", "--from", "0.5.2", "--in-place", file.name, "gpu=h200")
    assert done.code == 0, done.err
    assert file.read_text() == filled(after).replace("v0.5.2-cu126", "v0.5.20-cu130")


def test_what_is_gone_leaves_its_comment(run: Run, tmp_path: Path) -> None:
    gone = "            - --torchao-config\n            - int4wo-128  # smaller\n"
    text = MANIFEST.replace("            - --tp\n", f"{gone}            - --tp\n")
    (tmp_path / "deploy.yaml").write_text(text)
    assert run("upgrade", "--to", "0.5.20", "--in-place", "deploy.yaml", "gpu=h200").code == 2
    assert (tmp_path / "deploy.yaml").read_text() == WANTED.replace(
        "            - --tp\n", "            # smaller\n            - --tp\n"
    )


def test_the_image_that_stays_is_named(run: Run, tmp_path: Path) -> None:
    text = AS_IT_IS.replace("FIRST", "--tp, '1'").replace("SECOND", "")
    (tmp_path / "two.yaml").write_text(text)
    done = run("upgrade", "--to", "0.5.23", "--in-place", "two.yaml", "gpu=h200")
    assert done.code == 2
    assert "error UPG008" in done.err
    assert "lmsysorg/sglang:v0.5.2-cu126 holds SGLang 0.5.2" in " ".join(done.err.split())
    assert (tmp_path / "two.yaml").read_text() == text
    done = run("upgrade", "--to", "0.5.23", "--in-place", "two.yaml", "gpu=h200", "launch.image=mine/sglang:v0.5.23")
    assert done.err == ""
    assert (tmp_path / "two.yaml").read_text().count("mine/sglang:v0.5.23") == 2


def test_what_cannot_be_changed_at_its_place_is_left_alone(run: Run, tmp_path: Path) -> None:
    text = "A=--enable-ep\nexec python -m sglang.launch_server --model-path Qwen/Qwen3-8B ${A}-moe --tp 2\n"
    (tmp_path / "serve.sh").write_text(text)
    done = run("upgrade", "--to", "0.5.20", "--from", "0.5.2", "--in-place", "serve.sh", "gpu=h200")
    assert done.code == 2
    assert "UPG007" in done.err
    assert (tmp_path / "serve.sh").read_text() == text


def test_one_server_of_a_file_is_no_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(AS_IT_IS.replace("FIRST", "--tp, '1'").replace("SECOND", ""))
    done = run("upgrade", "--to", "0.5.20", "--in-place", "two.yaml#a", "gpu=h200")
    assert done.code == 2
    assert "--in-place two.yaml" in done.err


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(8))
def test_published_servers_lose_no_flag_and_no_comment(run: Run, tmp_path: Path, part: int) -> None:
    """Of every published source: each comment stays, and each flag of the old text is in the new one, or is named as
    gone or renamed; a file that cannot be edited so is refused and stays as it is."""
    changed = same = 0
    refused: list[str] = []
    unfit: list[str] = []
    comments = "# first\n{}\n# last --tp 64\n"
    for number, source in enumerate(islice(published(tmp_path), part, 60, 8)):
        suffix = "yaml" if source.text.lstrip().startswith(("apiVersion", "backend", "base", "name", "model")) else "sh"
        file = tmp_path / f"{number}.{suffix}"
        file.write_text(before := comments.format(source.text))
        env = ["--env", *(f"{key}={value}" for key, value in source.env.items())] if source.env else []
        image = "launch.image=lmsysorg/sglang:v0.5.23"
        made = run("upgrade", "--to", "0.5.23", "--in-place", file.name, "gpu=h200", image, *env, "--json")
        after = file.read_text()
        if "UPG007" in made.out + made.err:
            assert after == before
            refused.append(source.name + made.out[-400:])
            continue
        if "UPG009" in made.out:
            assert (after, made.code) == (before, 2)
            unfit.append(source.name)
            continue
        if not env:
            checked = run("check", file.name, "gpu=h200")
            assert checked.code == 0, (source.name, checked.out)
        assert (after[:8], after[-15:]) == ("# first\n", "# last --tp 64\n"), source.name
        record = json.loads(made.out)
        assert "servers" in record, (source.name, made.out, before)
        gone = {item["key"].removeprefix("extra.") for each in record["servers"] for item in each["breaks"]}
        lost = set(re.findall(r"--[a-z][\w-]+", before)) - set(re.findall(r"--[a-z][\w-]+", after))
        named = json.dumps(record)
        assert all(flag in named or flag[2:].replace("-", "_") in gone for flag in lost), (source.name, lost)
        changed, same = changed + (after != before), same + (after == before)
    assert refused == []
    assert changed >= 2
    assert changed + same + len(unfit) >= 6, "those of another GPU than h200 are refused, and stay as they are"


def test_a_flag_that_goes_is_named_also_where_a_variable_has_its_value(run: Run, tmp_path: Path) -> None:
    image = "docker run lmsysorg/sglang:v0.5.12 python3 -m sglang.launch_server"
    (tmp_path / "run.sh").write_text(
        f"{image} --model-path Qwen/Qwen3-8B --tp 2 --cuda-graph-max-bs $BS --port $PORT\n"
    )
    done = run("upgrade", "--to", "0.5.23", "--json", str(tmp_path / "run.sh"), "gpu=h200")
    errors = [
        item for server in json.loads(done.out)["servers"] for item in server["findings"] if item["level"] == "error"
    ]
    assert done.code == 2
    assert [(item["fields"], item["hint"]) for item in errors] == [
        (["cuda_graph_max_bs"], "--cuda-graph-max-bs-decode with the same value")
    ]
