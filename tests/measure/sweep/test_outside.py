"""``bench.url``: a server that runs is measured as it is."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.measure.bench.server import Endpoint
from tests.commands import Run, must_follow, runner
from tests.measure.bench.conftest import Start, start
from tests.plans import planned
from tests.run.launch.test_server_info import answering, info_of, serving

__all__ = ["start"]
SHORT = ["bench.num_prompts=6", "bench.input_len=32", "bench.output_len=4", "bench.warmup=0"]
LIVE = ["gpu=cpu", "model=tiny", "attention_backend=torch_native", "sampling_backend=pytorch", "engine.version=0.5.2"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys, monkeypatch)


def live(start: Start, **changed: Any) -> Endpoint:
    info = {**info_of(planned(*LIVE, "engine=sglang")), "version": "0.5.2", "max_running_requests": 16, **changed}
    return start(info=info)


def asked_of(server: Endpoint) -> dict[str, int]:
    with urllib.request.urlopen(f"{server.url}/requests") as answer:
        return dict(json.loads(answer.read()))


def test_it_is_measured_under_the_plan_that_it_says(start: Start, run: Run, tmp_path: Path) -> None:
    server = live(start)
    words = ["-m", f"bench.url={server.url}", "gpu=cpu", "bench.concurrency=1,2", "sweep.folder=s", *SHORT]
    done = run("bench", *words)
    assert done.code == 0, done.out + done.err
    record = json.loads((tmp_path / "s" / "sweep.json").read_text())
    (server_id,) = record["servers"]
    plan = json.loads((tmp_path / "s" / "servers" / server_id / "plan.json").read_text())
    assert plan["engine"]["version"] == "0.5.2"
    assert plan["intent"]["max_running_requests"] == 16
    results = [json.loads(file.read_text()) for file in (tmp_path / "s").rglob("result.json")]
    assert [(item["state"], item["measures"]["failed"]) for item in results] == [("valid", 0)] * 2
    must_follow(results[0], "result")
    counts = asked_of(server)  # it goes on, and nobody emptied its cache
    assert (counts["requests"], counts["flushes"]) == (12, 0)
    assert run("bench", *words).code == 0
    assert asked_of(server)["requests"] == 12


def test_a_server_that_changed_since_is_not_measured(start: Start, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang_hydra.measure.sweep import outside

    server, other = live(start), live(start, max_running_requests=8)
    ask = outside.asked
    urls = iter([server.url])
    monkeypatch.setattr(outside, "asked", lambda url, version="": ask(next(urls, other.url), version))
    done = run("bench", f"bench.url={server.url}", "gpu=cpu", "sweep.folder=s", *SHORT)
    assert done.code == 4
    assert "max_running_requests changed" in done.out + done.err
    assert asked_of(server)["requests"] == 0


@pytest.mark.parametrize(
    ("words", "id"),
    [
        (["bench.url=127.0.0.1"], "BEN018"),
        (["-m", "bench.url=http://127.0.0.1:1,http://127.0.0.1:2"], "BEN018"),
        (["bench.url=http://127.0.0.1:1", "tp_size=2"], "BEN018"),
        (["bench.url=http://127.0.0.1:1", "gpu=cpu"], "BEN019"),
        (["mine.yaml", "gpu=cpu"], "BEN018"),
    ],
)
def test_what_is_no_server_is_refused(words: list[str], id: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("bench: {url: 'http://127.0.0.1:1'}\n")
    done = run("bench", *words)
    assert done.code in (2, 3)
    assert id in done.err


def test_a_server_of_an_unknown_release_is_refused(run: Run) -> None:
    with serving(answering({"model_path": "tiny"})) as (port, _):
        done = run("bench", f"bench.url=http://127.0.0.1:{port}", "gpu=cpu")
    assert (done.code, "BEN019" in done.err) == (3, True)


@pytest.mark.parametrize(
    ("page", "status", "said"),
    [
        (
            "/v1/models",
            200,
            "/server_info is not there, and /v1/models says that vllm serves m",
        ),
        ("/get_server_info", 401, "SGLANG_HYDRA_API_KEY is its key"),
        ("/none", 404, "sglang.bench_serving --backend vllm"),
    ],
)
def test_another_server_is_named_and_a_key_is_asked_for_only_where_one_is_missing(
    page: str, status: int, said: str, run: Run
) -> None:
    with serving(answering({"data": [{"id": "m", "owned_by": "vllm"}]}, status, only=page)) as (port, _):
        done = run("bench", f"bench.url=http://127.0.0.1:{port}", "gpu=cpu")
    shown = " ".join((done.out + done.err).split())
    assert (done.code, "BEN019" in shown) == (3, True)
    assert said in shown
    assert ("API_KEY" in shown) == (status == 401)
