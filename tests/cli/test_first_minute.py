"""What a newcomer types first: the effect of each correction is what was asked, and nothing more."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

import sglang_hydra
from sglang_hydra.cli import corrected
from sglang_hydra.cli.explain import _TOPICS, _title
from sglang_hydra.cli.reading import refused
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.planning.making import composed
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.releases import fetching
from sglang_hydra.text.flags import OTHER_VERBS, VERBS
from sglang_hydra.text.words import install_command, nearest
from tests.commands import Run, runner, valid

STARTING = ("serve", "bench", "resume")
LOCAL = "pip install 'sglang-hydra[local]' && sglang-hydra"
DATA = Path(__file__).parents[1] / "data"
MISTAKES = yaml.safe_load((DATA / "mistakes.yaml").read_text(encoding="utf-8"))
ELSEWHERE = yaml.safe_load((DATA / "typed_elsewhere.yaml").read_text(encoding="utf-8"))
KEPT_BACK = yaml.safe_load((DATA / "kept_back.yaml").read_text(encoding="utf-8"))
IN_FILES = yaml.safe_load((DATA / "mistakes_in_files.yaml").read_text(encoding="utf-8"))
TYPED = yaml.safe_load((DATA / "first_words.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def verb_of(words: list[str]) -> str:
    """The verb that a command line asks for; serve where none is typed."""
    typed = next((word for word in words if not word.startswith("-")), "serve")
    return "serve" if "=" in typed else OTHER_VERBS.get(typed.lower()) or nearest(typed, VERBS) or typed.lower()


@pytest.mark.parametrize("row", [row for row in MISTAKES if "works" in row], ids=lambda row: row["typed"])
def test_a_correction_starts_no_more_than_what_was_typed(row: dict[str, str]) -> None:
    typed, works = shlex.split(row["typed"]), shlex.split(row["works"])
    if verb_of(works) in STARTING and "sweep.dry_run=true" not in works:
        is_preset = "=" not in typed[0] and any(word.endswith(f"={typed[0].replace('-', '_')}") for word in works)
        assert verb_of(typed) in STARTING or is_preset or "/" in typed[0]
        assert not {"--dry-run", "--check", "dry_run=true"} & set(typed)


@pytest.mark.parametrize("words", [["sweep.dry_run=true"], ["serve", "sweep.dry_run=true"]], ids=str)
def test_nothing_is_started_where_a_dry_run_is_asked_for(words: list[str], run: Run) -> None:
    shown = run(*words, "gpu=h200", "model=qwen3_8b")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith("Launch    yes")
    assert "Not started" not in shown.out


@pytest.mark.parametrize(
    ("typed", "corrected", "code"),
    [
        ("model=tiny", "serve model=tiny", 3),
        ("serve model=qwen3_8b", "serve model=qwen3_8b", 3),
        ("plan model=tiny", "plan model=tiny", 2),
        ("start model=tiny", "serve model=tiny", 2),
        ("model=tiny --dry-run", "plan model=tiny", 2),
    ],
)
def test_without_an_engine_the_embedded_one_is_named_and_no_gpu_made_up(
    typed: str, corrected: str, code: int, run: Run
) -> None:
    shown = run(*shlex.split(typed))
    assert shown.code == code
    assert (shown.out + shown.err).rstrip().endswith(f"Corrected\n  {LOCAL} {corrected}")


@pytest.mark.parametrize(("started", "what"), [("sglang-hydra", "sglang-hydra"), ("serve.py", ".")])
def test_what_to_install_needs_no_registry_of_this_package(
    started: str, what: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An extra of what is installed, or of the checkout whose ``serve.py`` was started."""
    monkeypatch.setattr("sys.argv", [started])
    assert install_command("local") == f"pip install '{what}[local]'"


def test_a_sweep_without_an_engine_names_what_to_install(run: Run) -> None:
    assert "hint: pip install 'sglang-hydra[local]'" in run("bench", "-m", "model=tiny", "bench.concurrency=1,2").out


def test_a_plan_that_names_no_gpu_is_still_corrected_by_a_class(run: Run) -> None:
    assert run("plan", "model=qwen3_8b").out.rstrip().endswith("sglang-hydra plan model=qwen3_8b gpu=h100")


def test_the_first_line_of_serve_is_about_this_machine(run: Run) -> None:
    shown = run("serve", "gpu=h200", "model=gpt_oss")
    assert shown.code == 3
    first, *rest = shown.out.splitlines()
    assert first.startswith("Launch    no: the plan is for gpu=h200 (nvidia), and this machine has no accelerator")
    assert next(line for line in rest if line.startswith("  error ")).startswith("  error GPU002")
    assert run("plan", "gpu=h200", "model=gpt_oss").out.startswith("Launch    yes")


@pytest.mark.parametrize(("verb", "why"), [("check", False), ("plan", True)])
def test_a_verdict_asks_a_release_for_no_reasons(
    verb: str, why: bool, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take as long as the answer, and ``check`` shows none."""
    asked, serving = [], composed.serving
    monkeypatch.setattr(composed, "serving", lambda find, why=True: asked.append(why) or serving(find, why=why))
    assert run(verb, "gpu=h200", "model=qwen3_8b").code == 0
    assert asked == [why]


def test_lists_of_presets(run: Run) -> None:
    models = valid("presets", run("models", "--json").out)["presets"]
    sizes = {row["model"]: (row["weights_gib"], row["context"]) for row in models}
    assert sizes["qwen3_8b"] == (15.3, 40960)
    assert sizes["gpt_oss_120b"] == (60.8, 131072)  # MXFP4 as it lies in the files
    assert {row["model"] for row in valid("presets", run("models", "qwen3", "coder", "--json").out)["presets"]} == {
        "qwen3_coder_30b",
        "qwen3_coder_480b",
    }
    gpus = {row["gpu"]: row for row in valid("presets", run("gpus", "--json").out)["presets"]}
    assert (gpus["h200"]["memory_gib"], gpus["h200"]["compute_capability"]) == (140.4, "9.0")
    assert "h200" in run("gpus").out
    assert run("gpus", "gh100").code == 2


@pytest.mark.parametrize("row", _TOPICS, ids=lambda row: row["words"][0])
def test_a_topic_has_its_pages(row: dict[str, list[str]], run: Run) -> None:
    for name in row["pages"]:
        assert name[1:].split()[0] in VERBS if name[0] == "!" else _title(name), name
    shown = run("explain", row["words"][0].upper().replace(" ", "_"))
    assert shown.code == 0
    assert f"sglang-hydra explain {next(name for name in row['pages'] if name[0] != '!')}" in shown.out


@pytest.mark.parametrize(
    ("flag", "broken"),
    [("--disable-jump-forward", "1 argument breaks"), ("--schedule-policy lpm", "0 arguments break")],
)
def test_upgrade_counts_a_flag_that_is_gone(flag: str, broken: str, run: Run) -> None:
    command = f"python -m sglang.launch_server --model-path openai/gpt-oss-120b {flag}"
    shown = run("upgrade", "--to", "0.5.23", command, "gpu=h200")
    assert shown.out.splitlines()[-1].startswith(f"{broken}, ")
    assert ("SGLang 0.4.2 had it; nothing took its place: leave it out" in shown.out) == broken.startswith("1")


@pytest.mark.corpus
@pytest.mark.parametrize("row", TYPED, ids=lambda row: row["typed"])
def test_what_people_type_is_answered_and_a_command_is_sure_and_works(row: dict[str, str], run: Run) -> None:
    shown = run(*shlex.split(row["typed"]))
    text = f"{shown.out}\n{shown.err}"
    assert row["says"] in " ".join(text.split())
    corrected = [line.strip() for line in text.partition("\nCorrected\n")[2].splitlines()[:1]]
    assert corrected == ([f"sglang-hydra {row['works']}"] if "works" in row else [])
    works = shlex.split(row.get("works", ""))
    if works[:1] in (["plan"], ["fit"], ["explain"], ["export"]):
        assert run(*works).code == 0
    assert verb_of(works or ["plan"]) not in STARTING or verb_of(row["typed"].split()) in STARTING


@pytest.mark.corpus
@pytest.mark.parametrize("row", [*ELSEWHERE, *KEPT_BACK], ids=lambda row: row["typed"])
def test_what_users_of_others_type_does_what_they_asked_for_and_no_more(
    row: dict[str, Any], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = run(*shlex.split(row["typed"]))
    text = f"{shown.out}\n{shown.err}"
    corrected = [line.strip() for line in text.partition("\nCorrected\n")[2].splitlines()[:1]]
    assert (shown.code, corrected) == (
        row.get("exit", 2), [f"sglang-hydra {row['command']}"] if "command" in row else []
    )  # fmt: skip
    assert row.get("says", "") in " ".join(text.split())
    assert not refused(shlex.split(row.get("command", "--version")))
    if "gives" in row:
        _, *words = shlex.split(row.get("command", row["typed"]))
        plan = valid("plan", run("plan", "--json", *words).out)
        intent = {name: value for name, value in plan["intent"].items() if name != "model_path"}
        assert {"gpu": f"{plan['gpu']['name']} x {plan['gpu']['count']}", **intent} == row["gives"]


@pytest.mark.parametrize("row", IN_FILES, ids=lambda row: row["typed"])
def test_what_is_wrong_in_a_file_is_found_there(
    row: dict[str, Any], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in row["files"].items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(content, encoding="utf-8")
    shown = run(*shlex.split(row["typed"]))
    text = f"{shown.out}\n{shown.err}"
    assert row["says"] in " ".join(text.split())
    assert shown.code == row.get("exit", 2)
    corrected = [line.strip() for line in text.partition("\nCorrected\n")[2].splitlines()[:1]]
    assert corrected == ([f"sglang-hydra {row['works']}"] if "works" in row else [])
    if corrected:
        assert run(*shlex.split(row["works"])).code == 0


@pytest.mark.parametrize("between", ["kill %1", "wait", "export PORT=30001"])
def test_a_port_may_be_used_again(between: str, run: Run, tmp_path: Path) -> None:
    start = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --port ${PORT:-30000}"
    file = tmp_path / "run.sh"
    file.write_text(f"{start} &\n{between}\n{start} --tp 2 &\n", encoding="utf-8")
    shown = run("check", str(file), "gpu=h100")
    assert "server-2: can be launched" in shown.out
    assert "still runs" not in shown.out


def test_offline_fetches_no_release_that_is_typed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglang_hydra.releases.wheels.missing", lambda record: [record])
    monkeypatch.setattr("sglang_hydra.releases.wheels.fetch", lambda *given: pytest.fail("fetched"))
    shown = run("release", "fetch", "0.5.23", "--offline")
    assert (shown.code, "--offline fetches nothing" in shown.err) == (2, True)


def test_a_typing_error_is_answered_without_a_fetch(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr("sglang_hydra.releases.wheels.fetch", lambda *given: asked.append(given))
    assert run("plan", "gpu=h100", "model=qwen3_8b", "mem_fraction_static=91%").err.endswith(
        "mem_fraction_static=0.91\n"
    )
    assert asked == []


@pytest.mark.parametrize(
    "word", ["hf_token=hf_secret", "HF_TOKEN=hf_secret", "--hf-token hf_secret", "token=hf_secret"]
)
def test_a_token_is_asked_for_in_the_environment_and_not_shown(word: str, run: Run) -> None:
    shown = run("plan", "gpu=h100", "model=qwen3_8b", *word.split())
    assert "export HF_TOKEN=" in shown.err
    assert "hf_secret" not in shown.out + shown.err


@pytest.mark.parametrize(
    ("words", "content", "says"),
    [
        ("plan mine.toml", 'gpu = "h100"\nmodel = "qwen3_8b"', "an experiment is a YAML file: gpu: h100"),
        ("plan mine.yaml", "gpu: h100\nsweep: {tp_size: [1, 2]}", "-m tp_size=A,B varies it"),
        ("report mine --format csv", None, "points.csv and report.html are written beside the results"),
    ],
)
def test_a_file_of_another_kind_says_where_its_values_go(
    words: str, content: str | None, says: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / words.split()[1]).write_text(content)
    shown = run(*words.split())
    assert shown.code == 2
    assert says in " ".join(shown.err.split())


API: Any = sglang_hydra
"""For calls that a type checker refuses."""


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: API.plan("gpu=h100 model=tiny"), r"plan\(\['gpu=h100', 'model=tiny'\]\)"),
        (lambda: API.plan("tiny", gpu="h100"), r"plan\(\['model=tiny', 'gpu=h100'\]\)"),
        (lambda: API.plan(["gpu=h100", "model=qwen3_8b"]).fit.kv_token_count, "did you mean kv_tokens"),
        (lambda: API.plan(["gpu=h100", "model=qwen3_8b"]).memory, "it has .*fit"),
        (lambda: API.plan("gpu=h100", "model=tiny"), r"plan\(\['gpu=h100', 'model=tiny'\]\)"),
        (lambda: API.ServerArgs(tp=2), r"tp \(did you mean tp_size\?\)"),
        (lambda: API.schema("plans"), "no schema 'plans'; there are .*plan"),
        (lambda: API.serve, "a verb of the command line, sglang-hydra serve"),
        (lambda: API.plan(["gpu=h100", "model=qwen3_8b"]).tp_size, r"plan.values\['tp_size'\]"),
        (lambda: API.plan(["gpu=h100", "model=qwen3_8b"])["tp_size"], r"plan.values\['tp_size'\]"),
        (lambda: API.ServerArgs(tensor_parallel_size=2), r"tensor_parallel_size \(did you mean tp_size\?\)"),
        (lambda: API.launch, "serve is a verb of the command line"),
        (lambda: API.initialize, "composes and plans"),
        (lambda: API.main(lambda plan: None)(), "belongs above @sglang_hydra.main"),
    ],
)
def test_a_wrong_use_of_the_api_names_the_right_one(call: Callable[[], object], says: str) -> None:
    with pytest.raises((AttributeError, TypeError, FileNotFoundError), match=says):
        call()


def test_the_hint_of_an_error_is_in_its_traceback() -> None:
    with pytest.raises(sglang_hydra.ConfigError) as caught:
        sglang_hydra.plan(["gpu=h100", "model=qwen3_8b", "tp=2"])
    assert "hint: tp_size=2" in getattr(caught.value, "__notes__", ())


def test_a_correction_fetches_no_release(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[object] = []

    def planned(composer: Composer, requests: Sequence[Request]) -> Plan:
        allowed.append(fetching._progress)
        return make_plan(composer, requests)

    monkeypatch.setattr(corrected, "make_plan", planned)
    assert run("export", "k8s", "gpu=h100", "model=qwen3_8b", "image=v0.5.9").err.endswith("=0.5.9\n")
    assert allowed == [None]


@pytest.mark.parametrize("rows", [TYPED, ELSEWHERE], ids=["first words", "elsewhere"])
def test_there_are_one_hundred_and_fifty(rows: list[dict[str, Any]]) -> None:
    assert len({row["typed"] for row in rows}) >= 150
    assert sum("useless" in row for row in rows) <= len(rows) * 0.08


def test_those_that_were_kept_back_are_others() -> None:
    typed = {row["typed"] for row in KEPT_BACK}
    assert len(typed) >= 40
    assert typed.isdisjoint(row["typed"] for row in [*TYPED, *ELSEWHERE, *MISTAKES])
    assert sum("useless" in row for row in KEPT_BACK) <= len(KEPT_BACK) * 0.08
