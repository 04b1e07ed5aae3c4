"""The last line of what is refused: the whole command line, corrected, planned, and without a secret."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.commands import H200, Run, runner
from tests.for_0_5_2 import plans_are_for_0_5_2 as plans_are_for_0_5_2

HEAD = "Corrected\n  "


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


@pytest.mark.parametrize(
    ("typed", "corrected"),
    [
        ("plan gpu=h200 model=qwen3_8b tp_size=3", "plan gpu=h200 model=qwen3_8b tp_size=4"),
        ("plan tp_size=3 gpu=h200 model=qwen3_8b", "plan tp_size=4 gpu=h200 model=qwen3_8b"),
        ("check gpu=h200 model=qwen3_8b tpsize=2", "check gpu=h200 model=qwen3_8b tp_size=2"),
        ("fit gpu=h100 model=deepseek_v3 tp_size=8", "fit gpu=h100 model=deepseek_v3 tp_size=16 nnodes=2"),
        ("export argv gpu=h200 model=qwen3_8b tp_size=3", "export argv gpu=h200 model=qwen3_8b tp_size=4"),
        ("serve gpu=h200 model=qwen3_8b tp_size=3", "serve gpu=h200 model=qwen3_8b tp_size=4"),
        ("plan gpu=h200 model=qwen3_8b tp_size=3 mem_fraction_static=85",
         "plan gpu=h200 model=qwen3_8b tp_size=4 mem_fraction_static=0.85"),
        ("plan gpu=h200 model=qwen3_8b tp_size=3 api_key=hush", "plan gpu=h200 model=qwen3_8b tp_size=4 api_key=***"),
        ("plan gpu=h200 model=qwen3_8b topology=replicas replicas=9",
         "plan gpu=h200 model=qwen3_8b topology=replicas replicas=8"),
        ("plan -- --model-path Qwen/Qwen3-8B", "plan model_path=Qwen/Qwen3-8B gpu=h100"),
        ("plan model=gpt_oss", "plan model=gpt_oss gpu=h200"),
        ("plan three.yaml", "plan three.yaml tp_size=4"),
        ("check three.yaml", "check three.yaml tp_size=4"),
        ("check good.yaml three.yaml", "check three.yaml tp_size=4"),
        ("check gpu h200 model=qwen3_8b", "check gpu=h200 model=qwen3_8b"),
    ],
)  # fmt: skip
def test_what_is_refused_ends_with_the_corrected_command(
    typed: str, corrected: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, size in (("good", 2), ("three", 3)):
        Path(f"{name}.yaml").write_text(f"gpu: h200\nmodel: qwen3_8b\ntp_size: {size}\n", encoding="utf-8")
    refused = run(*shlex.split(typed))
    assert refused.code == 2
    printed = (refused.out + refused.err).rstrip()
    assert printed.endswith(f"{HEAD}sglang-hydra {corrected}"), printed
    assert "hush" not in printed
    if "***" not in corrected and not corrected.startswith("serve"):
        assert run(*shlex.split(corrected)).code == 0


@pytest.mark.parametrize(
    ("typed", "ends"),
    [
        ("gpu=l4 model=deepseek_v3",
         "For example, on another GPU\n  sglang-hydra plan gpu=b300 model=deepseek_v3 tp_size=4"),
        ("gpu=rtx_4090 gpu.count=1 model=llama_3_1_70b",
         "For example, on another GPU\n  sglang-hydra plan gpu=b300 gpu.count=1 model=llama_3_1_70b"),
        ("gpu=a10 model=qwen3_32b", f"{HEAD}sglang-hydra plan gpu=a10 model=qwen3_32b gpu.count=4 tp_size=4"),
        ("gpu=t4 model=llama_3_1_8b", f"{HEAD}sglang-hydra plan gpu=t4 model=llama_3_1_8b model_path="),
        ("gpu=cpu model=gpt_oss engine=sglang", ""),
    ],
)  # fmt: skip
def test_a_gpu_that_was_typed_is_never_corrected_to_another(typed: str, ends: str, run: Run) -> None:
    printed = run("plan", *typed.split()).out
    assert ends in printed
    corrected = printed.partition(HEAD)[2].split()
    assert {word for word in typed.split() if word[:4] == "gpu="} <= set(corrected) or not corrected
    if corrected:
        assert run(*corrected[1:]).code == 0


@pytest.mark.parametrize("words", [["gpu=h200"], [*H200, "-m", "tp_size=3,5"]], ids=str)
def test_nothing_is_made_up_where_no_hint_leads_to_a_plan(words: list[str], run: Run) -> None:
    printed = run("plan", *words)
    assert "launch_server" not in printed.out
    if "-m" in words:
        assert HEAD not in printed.out


def test_for_machines_there_are_the_findings_alone(run: Run) -> None:
    printed = run("plan", "--json", "gpu=h200", "model=gpt_oss", "tpsize=4")
    assert (printed.code, HEAD in printed.out + printed.err) == (2, False)


def test_a_sweep_is_corrected_by_leaving_out_the_values_that_no_point_can_be_launched_with(run: Run) -> None:
    printed = run("plan", *H200, "-m", "tp_size=2,3", "dtype=auto,half")
    assert printed.out.endswith(f"{HEAD}sglang-hydra plan -m {' '.join(H200)} tp_size=2 dtype=auto,half\n")


@pytest.mark.parametrize("text", ["tp_size: two\n", "tp: 2\n", "server: {tp_size: 2}\n"], ids=str)
def test_no_command_is_named_where_only_the_file_can_be_corrected(
    text: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.yaml").write_text(f"gpu: h200\nmodel: qwen3_8b\n{text}", encoding="utf-8")
    for verb in ("plan", "check"):
        printed = run(verb, "wrong.yaml")
        assert (printed.code, HEAD in printed.out + printed.err) == (2, False)
        assert "hint: " in printed.out + printed.err


def test_json_with_groups_is_an_experiment(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text('{"gpu": "h200", "model": "qwen3_8b", "tp_size": 2}', encoding="utf-8")
    assert "--tp-size 2" in run("plan", str(file)).out
    assert run("check", str(file)).code == 0
