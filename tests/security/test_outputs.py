"""No output shows a secret: logs, answers to agents, the page, reports, the webhook, diagnoses, notebooks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import pytest

import sglang_hydra
from sglang_hydra.cli import answers, mcp, ui
from sglang_hydra.convert.admission.reviews import asked
from sglang_hydra.run.launch.log import BoundedLog
from sglang_hydra.run.launch.output import Output
from tests.commands import Run, runner
from tests.gate.cluster import container, judge, made, review
from tests.measure.report.folders import result, write_sweep
from tests.security.attacks import SECRET_NAMES, SECRET_VALUES

DRAWN = "a1b2c3d4e5f6"
HONEST = (
    "TOKEN_BUDGET=40960",
    "PIN_MEMORY=enabled",
    "MAX_TOKENS=4096000",
    "NCCL_SOCKET_IFNAME=ethernet0",
    "HF_TOKEN expected and not set",
)
FORMS = (
    "{0}={1}",
    "'{0}': '{1}',",
    "{0}: {1}",
    "bad {0}={1}",
    "E: {0}={1}",
    "E: {0} {1}",
    "--{0} {1}",
    "A(x=1, {0}='{1}')",
)
NAMED = [form.format(name, DRAWN) for name in SECRET_NAMES for form in FORMS]
LINES = [*NAMED, *(f"got {value}" for value in SECRET_VALUES), *HONEST]
SERVER = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def shown_in(said: str) -> list[str]:
    """The secrets that a text shows."""
    return [secret for secret in (DRAWN, *SECRET_VALUES) if secret.split("@")[0] in unquote_plus(said)]


def test_the_log_of_a_launch_is_shown_and_kept_without_secrets(tmp_path: Path) -> None:
    shown: list[str] = []
    output = Output(lambda name, line: shown.append(line), {}, BoundedLog(tmp_path / "server.log"))
    (tmp_path / "said").write_text("\n".join(LINES) + "\n")
    output.follow("stdout", os.fdopen(os.open(tmp_path / "said", os.O_RDONLY), "rb", buffering=0))
    output.close(10)
    for said in ("\n".join(shown), (tmp_path / "server.log").read_text(), "\n".join(output.lines)):
        assert shown_in(said) == []
        assert [line for line in HONEST if line not in said] == []


def test_a_diagnosis_is_without_secrets(run: Run, tmp_path: Path) -> None:
    small = ", ".join(f"{name.lower()}='{DRAWN}'" for name in SECRET_NAMES)
    for lines in (*zip(*[iter(LINES)] * 8, strict=False), [f"server_args=ServerArgs(model_path='m', {small})"]):
        (tmp_path / "server.log").write_text("\n".join(lines) + "\n")
        assert shown_in(run("diagnose", str(tmp_path / "server.log"), "--json").out) == []


def test_a_report_of_a_folder_of_others_is_without_secrets(run: Run, tmp_path: Path) -> None:
    load = {"concurrency": 1, "seed": 1}
    words = [f"engine.env.{name}={DRAWN}" for name in SECRET_NAMES] + [f"x={value}" for value in SECRET_VALUES]
    point = {"words": words, "workload": load, "result": result(0.1, load, "invalid", LINES)}
    good = {"words": [*words, *HONEST[:4]], "workload": {**load, "concurrency": 2}, "result": result(0.1, load)}
    folder = write_sweep(tmp_path / "sweep", [point, good], ["model=tiny", *words])
    for file in folder.rglob("plan.json"):
        plan = json.loads(file.read_text())
        plan["environment"] = dict.fromkeys(SECRET_NAMES, DRAWN) | dict(enumerate(SECRET_VALUES))
        plan["values"]["served_model_name"] = SECRET_VALUES[0]
        file.write_text(json.dumps(plan))
    said = [run("report", str(folder)).out, run("report", str(folder), "--json").out]
    said += [run("status", str(folder), *json_).out for json_ in ((), ("--json",))]
    said += [run("report", str(folder), "--base", str(folder), "--format", form).out for form in ("markdown", "json")]
    said += [(folder / name).read_text() for name in ("report.html", "points.csv")]
    assert [shown_in(text) for text in said] == [[]] * len(said)
    assert json.loads(said[1])["schema"] == "sglang_hydra.report/1"
    assert [word for word in HONEST[:4] if word not in said[1]] == []


def _reviewed(name: str, value: str) -> str:
    servers = [container("--tp-size", word, env=[{"name": name, "value": value}]) for word in (value, f"$({name})")]
    servers += [container("--attention-backend", value, "--api-key", value), container("--served-model-name", value)]
    manifests = [asked(review(made("Pod", server))) for server in servers[: 2 if value == DRAWN else 4]]
    return str([_JUDGE[0].answer(item.name, item.manifest) for item in manifests])


def _on_page(name: str, value: str) -> str:
    word = f"engine.env.{name}={value}" if value == DRAWN else f"served_model_name={value}"
    form = {"gpu": "h200", "model": "qwen3_8b", "more": f"'{word}'"}
    questions: list[dict[str, Any]] = [{"ask": "plan", "form": form}, {"ask": "fill", "form": form, "add": [word]}]
    questions += [{"ask": "paste", "text": f"export {name}='{value}'\n{SERVER}\n"}]
    return "".join(json.dumps(json.loads(answers.answer(json.dumps(asked)))) for asked in questions)


def _for_agents(name: str, value: str) -> str:
    word = f"engine.env.{name}='{value}'" if value == DRAWN else f"served_model_name='{value}'"
    calls = [("plan", ["gpu=h200", "model=qwen3_8b", word], ""), ("import", [], f"export {name}='{value}'\n{SERVER}\n")]
    return "".join(str(mcp.answer(*call, "launch.sh", detail)) for call in calls for detail in (False, True))


def _in_a_notebook(name: str, value: str) -> str:
    word = f"engine.env.{name}='{value}'" if value == DRAWN else f"served_model_name='{value}'"
    plan = sglang_hydra.plan(["gpu=h200", "model=qwen3_8b", word])
    return f"{plan!r}{plan}{plan._repr_html_()}"


_JUDGE: list[Any] = []
SOME = [(name, DRAWN) for name in SECRET_NAMES[::12]] + [("MY_THING", value) for value in SECRET_VALUES[::3]]
PLACES = (_reviewed, _on_page, _for_agents, _in_a_notebook)


@pytest.mark.corpus
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__.strip("_"))
def test_no_answer_shows_a_secret(place: Callable[[str, str], str], run: Run) -> None:
    _JUDGE[:] = [judge("gpu=h100")]
    assert [(name, value) for name, value in SOME if shown_in(place(name, value))] == []


def test_no_address_of_a_plan_holds_a_secret(tmp_path: Path) -> None:
    words = [f"engine.env.{name}={DRAWN}" for name in SECRET_NAMES] + [f"x={value}" for value in SECRET_VALUES]
    with ui.PageServer(tmp_path, {}) as server:
        address = server.address(answers.filled({"more": words[0]}, [*words, "engine.env.TOKEN_BUDGET=40960"]))
    assert shown_in(address) == []
    assert "TOKEN_BUDGET=40960" in unquote_plus(address)


def test_what_is_hidden_in_json_leaves_json(run: Run, tmp_path: Path) -> None:
    for value in ("-----BEGIN PRIVATE KEY-----MIIE", "https://hooks.slack.com/services/T0000/B0000/xxxxxxxxxxxx"):
        (tmp_path / "server.log").write_text(f"RuntimeError: {value}\n")
        assert json.loads(run("diagnose", str(tmp_path / "server.log"), "--json").out)["results"]
