"""An experiment's YAML among the words: the values of ``check FILE``, below what is typed, named as who set them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.measure.sweep.grid import as_words
from sglang_hydra.text.errors import ConfigError
from tests.commands import Run, runner, valid
from tests.for_0_5_2 import plans_are_for_0_5_2 as plans_are_for_0_5_2
from tests.plans import composer, without_engines, written

FILES = {
    "mine.yaml": "gpu: h200\nmodel: qwen3_8b\ntp_size: 2\nmem_fraction_static: 0.8\n",
    "listed.yaml": "defaults:\n  - override /gpu: h100\n  - override /model: gpt_oss\ntp_size: ${gpu.count}\n",
    "slip.yaml": "gpu: h200\nmodel: qwen3_8b\ntpsize: 2\n",
    "refused.yaml": "gpu: h200\nmodel: qwen3_8b\ntp_size: 3\n",
    "several.yaml": "gpu: h200\nmodel: qwen3_8b\ntp_size: 2\ntopology: replicas\nreplicas: 2\n",
    "swept.yaml": "defaults: [{override /gpu: 'h100,h200'}]\nmodel: qwen3_8b\n",
    "key.yaml": "gpu: h200\nmodel: qwen3_8b\napi_key: sesame-open\n",
    "token.yaml": "gpu: h200\nmodel: qwen3_8b\nengine: {env: {HF_TOKEN: sesame-open}}\n",
    "pod.yaml": "apiVersion: v1\nkind: Pod\nspec: {}\n",
    "flags.yaml": "model-path: org/name\ntp-size: 2\n",
    "ours.yaml": "server: {gpu: h200, model: qwen3_8b}\n",
    "mixed.yaml": "gpu: h200\nserver:\n  model_path: lab/ours\n  tp_size: 4\n",
    "under.yaml": "server:\n  model_path: lab/ours\n  tp_size: 4\n",
    "dashes.yaml": "server:\n  model-path: lab/ours\n  tp-size: 4\n",
    "others.yaml": "trainer:\n  model: lab/ours\n  rollout: {tp_size: 4}\n",
    "flags.json": '{"tp-size": 2}',
    "conf/experiment/long.yaml": "# @package _global_\ndefaults: [{override /model: ours}]\ncontext_length: 4096\n",
    "conf/model/ours.yaml": "defaults: [qwen3_8b]\nname: ours\nmodel_path: lab/ours\n",
    "shell/there.txt": "a folder with the name of a format",
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    written(tmp_path, FILES)
    monkeypatch.chdir(tmp_path)
    without_engines(monkeypatch)
    return runner(capsys, monkeypatch)


def _plan(run: Run, *words: str) -> dict[str, Any]:
    return valid("plan", run("plan", "--json", *words).out)


# The same as check


@pytest.mark.parametrize(
    "words",
    [
        ("mine.yaml",),
        ("listed.yaml",),
        ("./mine.yaml", "tp_size=4"),
        ("tp_size=4", "mine.yaml"),
        ("mine.yaml", "gpu=h100"),
        ("refused.yaml",),
    ],
    ids=" ".join,
)
def test_a_file_plans_what_check_judges(words: tuple[str, ...], run: Run) -> None:
    planned = run("plan", "--json", *words)
    judged = run("check", "--json", *words)
    (result,) = json.loads(judged.out)["results"]
    record = valid("plan", planned.out)
    assert (planned.code, record["server_id"]) == (judged.code, result["server_id"])
    assert [item["id"] for item in record["findings"]] == [item["id"] for item in result["findings"]]


def test_a_mistake_in_a_file_is_said_as_check_says_it(run: Run) -> None:
    planned = valid("findings", run("plan", "--json", "slip.yaml").out)
    (result,) = json.loads(run("check", "--json", "slip.yaml").out)["results"]
    assert planned["findings"] == result["findings"]
    assert "slip.yaml:3" in planned["findings"][0]["message"]


@pytest.mark.parametrize("words", [("mine.yaml", "tp_size=4"), ("tp_size=4", "mine.yaml")], ids=" ".join)
def test_what_is_typed_wins_wherever_the_file_stands(words: tuple[str, ...], run: Run) -> None:
    record = _plan(run, *words)
    assert (record["values"]["tp_size"], record["values"]["mem_fraction_static"]) == (4, 0.8)
    chain = [(origin["layer"], origin["place"]) for origin in record["origins"]["tp_size"]]
    typed = 2 + words.index("tp_size=4") + 1  # plan --json are words, too
    assert chain == [("experiment", "mine.yaml:3"), ("cli", f"argument {typed}")]


# Every verb


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("explain", "tp_size", "mine.yaml"), "experiment  2  mine.yaml:3"),
        (("explain", "mine.yaml", "tp_size"), "experiment  2  mine.yaml:3"),
        (("explain", "tp_size=4", "mine.yaml"), "cli         4  argument 2"),
        (("fit", "mine.yaml"), "h200: fits"),
        (("fit", "-m", "mine.yaml", "gpu=h100,t4"), "gpu=t4"),
        (("plan", "-m", "mine.yaml", "tp_size=1,2"), "2 of 2 points can be launched"),
        (("check", "-m", "tp_size=1,2", "mine.yaml"), "2 of 2 points can be launched"),
        (("export", "shell", "mine.yaml"), "once more: sglang-hydra export shell mine.yaml\n"),
        (("export", "argv", "mine.yaml", "tp_size=4"), "--tp-size"),
        (("plan", "several.yaml"), "topology: 2 x replica"),
        (("bench", "-m", "mine.yaml", "tp_size=1,2", "sweep.dry_run=true"), "Sweep of 2 points over tp_size"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_every_verb_that_plans_takes_a_file(words: tuple[str, ...], said: str, run: Run) -> None:
    printed = run(*words)
    assert (printed.code, printed.err) == (0, "")
    assert said in printed.out


@pytest.mark.parametrize("file", ["under.yaml", "dashes.yaml"])
def test_what_stands_below_one_key_is_the_server(file: str, run: Run) -> None:
    made = valid("plan", run("plan", "--json", file, "gpu=h100", "model.facts_from=qwen3_8b").out)
    assert made["intent"] == {"model_path": "lab/ours", "tp_size": 4}
    assert run("plan", "ours.yaml").out.startswith("Launch    yes")


@pytest.mark.parametrize("words", [("refused.yaml",), ("serve", "refused.yaml")], ids=" ".join)
def test_a_file_is_served_with_and_without_the_verb(words: tuple[str, ...], run: Run) -> None:
    printed = run(*words)
    assert printed.code == 2
    assert "tp_size=3 was set by refused.yaml:3" in printed.out


# No experiment


@pytest.mark.parametrize(
    ("words", "id", "said"),
    [
        (("plan", "nowhere.yaml"), "CLI004", "import serve.sh -o nowhere.yaml"),
        (("nowhere.yaml",), "CLI004", "there is no such file"),
        (("plan", "mien.yaml"), "CLI004", "did you mean mine.yaml?"),
        (("plan", "conf"), "CLI004", "check conf judges every file in it"),
        (("fit", "conf/experiment"), "CLI004", "fit ... conf/experiment/long.yaml"),
        (("plan", "mine.yaml", "listed.yaml"), "CLI004", "diff mine.yaml listed.yaml compares them"),
        (("bench", "-m", "mine.yaml", "mine.yaml"), "CLI004", "bench takes one file, and 2 were given"),
        (("serve", "pod.yaml"), "CLI017", "import pod.yaml -o mine.yaml"),
        (("serve", "flags.yaml"), "CLI017", "import flags.yaml -o mine.yaml"),
        (("plan", "mixed.yaml"), "CLI001", "model_path and what is beside it, without server around them"),
        (("serve", "dashes.yaml"), "CLI017", "import dashes.yaml -o mine.yaml"),
        (("import", "mine.yaml"), "IMP001", "sglang-hydra plan mine.yaml"),
        (("import", "ours.yaml", "tp_size=4"), "IMP001", "sglang-hydra plan ours.yaml tp_size=4"),
        (("plan", "others.yaml"), "IMP001", "starts no SGLang server"),
        (("serve", "flags.json"), "CLI017", "import flags.json -o mine.yaml"),
        (("plan", "plan.json"), "CLI004", "lock=plan.json plans it again"),
        (("plan", "nowhere.json"), "CLI004", "lock=nowhere.json"),
        (("explain", "mine.yaml"), "CLI015", "explain mem_fraction_static mine.yaml"),
        (("export", "mine.yaml"), "EXP012", "export needs a format"),
        (("plan", "-m", "swept.yaml", "tp_size=1,2"), "CLI007", "gpu takes one option"),
        (("resume", "multirun/sweep", "mine.yaml"), "SWP010", "bench -m mine.yaml"),
        (("bench", "token.yaml"), "SWP010", "${oc.env:NAME}"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_no_experiment_is_refused_with_what_to_type(
    words: tuple[str, ...], id: str, said: str, run: Run
) -> None:
    Path("plan.json").write_text(run("plan", "--json", "mine.yaml").out)
    printed = run(*words, "--json")
    (finding,) = valid("findings", printed.out)["findings"]
    assert (printed.code, finding["id"]) == (2, id)
    assert said in f"{finding['message']} {finding['hint']}"


# The presets beside it


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("plan", "conf/experiment/long.yaml", "gpu=h200"), 0),
        (("check", "conf/experiment/long.yaml", "gpu=h200"), 0),
        (("check", "conf/experiment", "gpu=h200"), 0),
        (("check", "conf", "gpu=h200"), 0),
        (("check", "--config-dir", "shell", "conf/experiment", "gpu=h200"), 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_experiment_brings_the_presets_of_its_folder(words: tuple[str, ...], code: int, run: Run) -> None:
    assert run(*words).code == code


def test_an_experiment_brings_its_presets_from_inside_its_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "conf" / "experiment")
    assert run("plan", "long.yaml", "gpu=h200").code == 0
    assert run("check", ".", "gpu=h200").code == 0


def test_experiments_of_several_folders_bring_none(run: Run, tmp_path: Path) -> None:
    written(tmp_path, {"other/experiment/long.yaml": FILES["conf/experiment/long.yaml"]})
    assert "model=ours does not exist" in run("check", "conf/experiment", "other/experiment", "gpu=h200").out


# A sweep keeps what the file said


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("model", "gpt_oss", "model=gpt_oss"),
        ("model", "org/name", "model=org/name"),
        ("tp_size", 4, "tp_size=4"),
        ("mem_fraction_static", 1e-5, "mem_fraction_static=1e-05"),
        ("context_length", None, "context_length=null"),
        ("enable_metrics", True, "enable_metrics=true"),
        ("api_key", "${oc.env:KEY}", "api_key=${oc.env:KEY}"),
        ("served_model_name", "it's, a {x}: 1", "served_model_name='it\\'s, a {x}: 1'"),
        ("served_model_name", "a ${gpu.name}, b", "served_model_name='a ${gpu.name}, b'"),
        ("served_model_name", "true", "served_model_name='true'"),
        ("cuda_graph_bs", [1, 2], "cuda_graph_bs=[1,2]"),
        ("engine.env", {"A": "1", "B": "${oc.env:B}"}, "engine.env={A:'1',B:'${oc.env:B}'}"),
        ("sweep.params", {"bench.seed": [1, 2]}, "sweep.params={bench.seed:[1,2]}"),
    ],
)
def test_what_a_file_says_is_kept_as_a_word(key: str, value: object, word: str) -> None:
    said = Request.typed(key, value, "mine.yaml:1", "experiment", interpolate=True)
    (kept,) = as_words(composer(), [said])
    assert (kept.text, kept.place, kept.layer, kept.key) == (word, "mine.yaml:1", "experiment", None)


def test_a_typed_key_takes_the_place_of_the_one_in_the_file() -> None:
    said = [Request.typed(key, 2, "mine.yaml:1", "experiment", interpolate=True) for key in ("tp_size", "dp_size")]
    kept = as_words(composer(), [*said, Request("tp_size=4,8", "argument 1")])
    assert [request.text for request in kept] == ["dp_size=2", "tp_size=4,8"]


def test_what_only_a_file_can_spell_begins_no_sweep() -> None:
    said = Request.typed("model.config", {"a b": 1}, "mine.yaml:1", "experiment", interpolate=True)
    with pytest.raises(ConfigError, match="cannot be kept as a word"):
        as_words(Composer(), [said])


def test_a_sweep_of_a_file_is_made_again_from_its_folder_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang_hydra.measure.sweep import runner as sweeps
    from sglang_hydra.measure.sweep.points import Sweep
    from sglang_hydra.measure.sweep.runner import _without_keys
    from sglang_hydra.measure.sweep.store import Store

    begun: list[Sweep] = []

    def begin(sweep: Sweep) -> int:
        begun.append(_without_keys(sweep))
        Store(sweep.folder).begin(begun[-1])
        return 0

    monkeypatch.setattr(sweeps, "run", begin)
    monkeypatch.setattr("sglang_hydra.measure.sweep.settings_checks.check_packages", lambda *names: None)
    monkeypatch.delenv("SGLANG_HYDRA_API_KEY", raising=False)
    assert run("bench", "-m", "key.yaml", "tp_size=1,2", "sweep.folder=sweep").code == 0
    kept = Path("sweep/sweep.json").read_text()
    assert "sesame-open" not in kept
    assert json.loads(kept)["words"][:2] == ["gpu=h200", "model=qwen3_8b"]
    Path("key.yaml").write_text("gpu: h100\nmodel: gpt_oss\n")
    assert run("resume", "sweep").code == 0
    first, second = ({point.point_id for point in sweep.points()} for sweep in begun)
    assert len(first) == 2
    assert first == second
