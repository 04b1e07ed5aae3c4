"""What a report says of sweeps: fronts, winners and noise, what does not count, and three renderings of it."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from sglang_hydra.cli.main import entry
from sglang_hydra.cli.report import points_csv
from sglang_hydra.fit.roofline import Roofline
from sglang_hydra.measure.report.charts import Axis, Mark, log_ticks, scatter, short, ticks
from sglang_hydra.measure.report.comparing import (
    INTERACTIVITY,
    ITL,
    THROUGHPUT,
    TTFT,
    Group,
    Metric,
    best,
    difference,
    interval,
    pareto,
)
from sglang_hydra.measure.report.contents import Report, latency_note, make_report
from sglang_hydra.measure.report.page import page, title
from sglang_hydra.measure.report.reading import read_sweeps
from sglang_hydra.measure.sweep.store import SEARCH_SCHEMA, Store
from sglang_hydra.text.errors import ConfigError
from tests.commands import must_follow, valid
from tests.measure.report.folders import SERVER, grid, result, write_sweep

WORDS = [
    "model=a b",
    "tp_size=1",
    "bench.input_len=8",
    "bench/workload=1k1k",
    "sweep.retries=2",
    "hydra/launcher=basic",
]


def made(*folders: Path) -> Report:
    return make_report(read_sweeps(list(folders)))


def test_only_the_settings_that_vary_are_shown(tmp_path: Path) -> None:
    report = made(write_sweep(tmp_path / "s", grid()))
    assert report.keys == ("bench.concurrency", "bench.output_len")
    assert report.cells(report.groups[0]) == ["1", "8"]


def _open_loop(latency_from: str) -> dict[str, Any]:
    found = result(0.1, {"request_rate": 5.0})
    found["client"] = {"name": "builtin", "latency_from": latency_from}
    if latency_from == "due":
        found["measures"]["from_sent"] = {"ttft_ms": {**found["measures"]["ttft_ms"], "p50": 7.0}}
    return {"words": [f"a={latency_from}"], "result": found}


@pytest.mark.parametrize(
    ("kinds", "note", "has_both"),
    [
        (["due"], "count from when a request was due; 'from sending'", True),
        (["sent"], "TTFT and end-to-end count from when a request was sent.", False),
        (["due", "sent"], "from when a request was due where a request rate was asked for", True),
        ([], "TTFT and end-to-end count from when a request was sent.", False),
    ],
)
def test_what_latencies_count_from_is_said(tmp_path: Path, kinds: list[str], note: str, has_both: bool) -> None:
    report = made(write_sweep(tmp_path / "s", [_open_loop(kind) for kind in kinds] or grid()))
    assert note in latency_note(report.sweeps)
    assert latency_note(report.sweeps).replace("'", "&#39;") in page(report)
    assert ("TTFT p50 ms from sending" in [metric.words for metric in report.columns]) is has_both
    assert ("latency_from" in report.keys) is (len(kinds) == 2)


@pytest.mark.parametrize("x", [TTFT, ITL, INTERACTIVITY])
def test_nothing_beats_what_is_on_the_front_and_something_beats_the_rest(tmp_path: Path, x: Metric) -> None:
    groups = made(write_sweep(tmp_path / "s", grid())).groups
    front = pareto(groups, x, THROUGHPUT)
    assert front

    def gain(metric: Metric, one: Group, other: Group) -> float:
        return (1 if metric.more_is_better else -1) * ((one.mean(metric) or 0.0) - (other.mean(metric) or 0.0))

    def beats(one: Group, other: Group) -> bool:
        gains = [gain(metric, one, other) for metric in (x, THROUGHPUT)]
        return min(gains) >= 0 and max(gains) > 0

    for group in groups:
        assert any(beats(other, group) for other in groups) == (group not in front)


def test_a_winner_needs_repeats(tmp_path: Path) -> None:
    once = best(made(write_sweep(tmp_path / "once", grid())).groups, THROUGHPUT)
    often = best(made(write_sweep(tmp_path / "often", grid(repeats=3))).groups, THROUGHPUT)
    assert once is not None
    assert often is not None
    assert (once.sure, "bench.repeats=3" in once.why) == (False, True)
    assert often.sure
    assert often.best.first.words == ("bench.concurrency=4", "bench.output_len=8")


def test_no_winner_is_declared_inside_the_noise(tmp_path: Path) -> None:
    points = []
    for name, times in (("a", (0.10, 0.12, 0.11)), ("b", (0.105, 0.115, 0.112))):
        for repeat, seconds in enumerate(times, 1):
            load = {"concurrency": 1, "output_len": len(name), "dataset": name}
            points.append({"words": [name], "workload_id": name, "repeat": repeat, "result": result(seconds, load)})
    verdict = best(made(write_sweep(tmp_path / "s", points)).groups, THROUGHPUT)
    assert verdict is not None
    assert not verdict.sure
    assert "within the noise" in verdict.why
    assert verdict.why.startswith("1 of the others")


def test_an_interval_holds_the_mean_and_shrinks_with_repeats() -> None:
    few, many = interval([1, 2, 3]), interval([1, 2, 3] * 10)
    assert few is not None
    assert many is not None
    assert few.low <= 2 <= few.high
    assert many.high - many.low < few.high - few.low
    assert interval([1.0]) is None
    assert difference([1.0], [1.0, 2.0]) is None


def test_only_points_within_the_slo_are_best_within_it(tmp_path: Path) -> None:
    slo = {"ttft_ms": 8.0, "itl_ms": None, "e2e_ms": None, "share": 0.99}
    fast = {"words": ["fast"], "result": result(0.05, {"concurrency": 1, "slo": slo})}
    slow = {"words": ["slow"], "result": result(0.2, {"concurrency": 2, "slo": slo})}
    winners = {winner.title: winner for winner in made(write_sweep(tmp_path / "s", [slow, fast])).winners}
    assert winners["highest throughput within TTFT <= 8 ms for 0.99 of the requests"].verdict.best.first.words == (
        "fast",
    )


def test_the_winner_comes_with_the_command_that_starts_it(tmp_path: Path) -> None:
    points = [{"words": ["tp_size=2", "bench.concurrency=1"], "result": result(0.1, {"concurrency": 1})}]
    folder = write_sweep(tmp_path / "s", points, WORDS)
    assert made(folder).winners[0].command == "sglang-hydra 'model=a b' tp_size=2"


def test_two_sweeps_are_compared_point_by_point(tmp_path: Path) -> None:
    before = write_sweep(tmp_path / "before", grid(repeats=3))
    after = write_sweep(tmp_path / "after", grid(0.8, repeats=3))
    same = write_sweep(tmp_path / "same", grid(repeats=3))
    changes = made(before, after).changes
    assert len(changes) == 6 * 3
    throughput = [item for item in changes if item.metric.key.startswith("output")]
    assert all(item.change == pytest.approx(0.25) and item.noise is False for item in throughput)
    assert all(item.noise for item in made(before, same).changes)


def test_what_does_not_count_is_shown_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    points: list[dict[str, Any]] = [
        {"words": ["one"], "result": result(0.1, {"concurrency": 1}, "invalid", ["the clocks were lowered"])},
        {"words": ["two"], "failure": {"kind": "kv_oom", "findings": [{"id": "DIA003", "message": "no memory"}]}},
        {"words": ["three"]},
    ]
    folder = write_sweep(tmp_path / "s", points)
    assert entry(["report", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "3 points, 1 invalid, 1 failed, 1 open, 3 refused before anything started" in said
    for words in ("the clocks were lowered", "kv_oom; DIA003: no memory", "MOE003"):
        assert words in said


def test_the_files_are_written_beside_the_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_sweep(tmp_path / "s", grid())
    assert entry(["report", str(folder)]) == 0
    rows = list(csv.DictReader(io.StringIO((folder / "points.csv").read_text())))
    assert len(rows) == 6
    assert rows[0]["state"] == "valid"
    assert float(rows[0]["output_throughput"]) > 0
    assert (folder / "report.html").read_text().startswith("<!doctype html>")


def test_csv_and_json_hold_every_point(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_sweep(tmp_path / "s", grid(repeats=2))
    assert len(points_csv(made(folder)).splitlines()) == 13
    assert entry(["report", "--json", str(folder)]) == 0
    record = json.loads(capsys.readouterr().out)
    must_follow(record, "report")
    assert len(record["points"]) == 12
    other = write_sweep(tmp_path / "other", grid(0.9, repeats=2))
    assert entry(["report", "--json", str(folder), str(other)]) == 0
    record = json.loads(capsys.readouterr().out)
    must_follow(record, "report")
    assert len(record["changes"]) == 6 * 3


@pytest.mark.parametrize(
    ("content", "id"),
    [
        (None, "STO001"),
        ('{"schema": "sglang_hydra.sweep/1"}', "STO002"),
        ('{"schema": "sglang_hydra.sweep/1", "points": 3, "words": [], "shared": []}', "STO002"),
        ('{"schema": "sglang_hydra.sweep/0"}', "STO003"),
        ('{"points": ', "STO002"),
        ("[]", "STO002"),
    ],
)
def test_a_foreign_or_broken_folder_says_so(tmp_path: Path, content: str | None, id: str) -> None:
    if content is not None:
        (tmp_path / "sweep.json").write_text(content)
    with pytest.raises(ConfigError, match=id):
        read_sweeps([tmp_path])


def test_a_half_written_result_is_named_and_left_out(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", grid())
    (folder / "points" / f"{0:016x}" / "result.json").write_text('{"state": "val')
    (read,) = read_sweeps([folder])
    assert len(read.rows) == 5
    assert "result.json cannot be read" in read.problems[0].message


@pytest.mark.parametrize(
    "content", ['{"schema": "sglang_hydra.result/1"}', '{"schema": "sglang_hydra.result/0"}', "[1]"]
)
def test_a_result_of_another_shape_is_named_and_left_out(tmp_path: Path, content: str) -> None:
    folder = write_sweep(tmp_path / "s", grid())
    (folder / "points" / f"{0:016x}" / "result.json").write_text(content)
    (read,) = read_sweeps([folder])
    assert len(read.rows) == 5
    assert "result.json" in read.problems[0].message


@pytest.mark.parametrize("content", ["{", "[]", '{"values": 3}'])
def test_a_plan_that_cannot_be_read_costs_its_settings_only(tmp_path: Path, content: str) -> None:
    folder = write_sweep(tmp_path / "s", grid())
    (folder / "servers" / SERVER / "plan.json").write_text(content)
    (read,) = read_sweeps([folder])
    assert len(read.rows) == 6
    assert len(read.problems) == 1
    assert "plan.json" in read.problems[0].message
    assert "<svg" in page(make_report([read]))


def test_a_plan_that_is_not_there_is_said(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", grid())
    (Store(folder).server(SERVER) / "plan.json").unlink()
    (read,) = read_sweeps([folder])
    assert [finding.id for finding in read.problems] == ["STO002"]
    assert "is not there" in read.problems[0].message
    assert len(read.valid) == 6
    open_only = write_sweep(tmp_path / "t", [{"words": ["x"]}])
    (Store(open_only).server(SERVER) / "plan.json").unlink()
    (read,) = read_sweeps([open_only])
    assert read.problems == (), "it is written when the server is started"


def test_a_folder_of_sweeps_names_them(tmp_path: Path) -> None:
    write_sweep(tmp_path / "multirun" / "one", grid())
    with pytest.raises(ConfigError) as raised:
        read_sweeps([tmp_path / "multirun"])
    assert raised.value.findings[0].id == "STO001"
    assert str(tmp_path / "multirun" / "one") in (raised.value.findings[0].hint or "")


def test_a_sweep_that_is_named_twice_is_one(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", grid())
    assert len(read_sweeps([folder, tmp_path / "s" / ".", folder])) == 1


def test_a_report_that_cannot_be_written_is_still_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_sweep(tmp_path / "s", grid())
    (folder / "report.html").mkdir()
    assert entry(["report", str(folder)]) == 3
    said = capsys.readouterr()
    best = [line for line in said.out.splitlines() if line.startswith("highest throughput")]
    assert len(best) == 2, "one for each length of answers"
    assert all("bench.concurrency=" in line for line in best), "which point it is, not only its number"
    assert "REP002" in said.err
    assert "Traceback" not in said.err


def test_points_typed_differently_are_found_again_by_what_varies(tmp_path: Path) -> None:
    before = grid(repeats=3)
    after = [{**point, "words": [f"+x={number}"]} for number, point in enumerate(grid(0.5, repeats=3))]
    for point in after:
        point["words"] = [f"bench.output_len={point['result']['workload']['output_len']}", *point["words"]]
    changes = made(write_sweep(tmp_path / "a", before), write_sweep(tmp_path / "b", after)).changes
    assert len(changes) == 6 * 3
    assert all(item.noise is False for item in changes)


def test_each_slo_has_a_winner_of_its_own(tmp_path: Path) -> None:
    points = []
    for limit in (8.0, 30.0):
        slo = {"ttft_ms": limit, "itl_ms": None, "e2e_ms": None, "share": 1.0}
        for seconds in (0.05, 0.2):
            found = result(seconds, {"concurrency": 1, "slo": slo})
            points.append({"words": [f"{limit:g} {seconds}"], "result": found})
    titles = {winner.title: winner for winner in made(write_sweep(tmp_path / "s", points)).winners}
    for limit in ("8", "30"):
        assert titles[f"highest throughput within TTFT <= {limit} ms"].verdict.best.first.words == (f"{limit} 0.05",)


def test_the_command_names_the_folders_of_its_configs(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [{"words": ["tp_size=2"], "result": result(0.1, {"concurrency": 1})}])
    file = folder / "sweep.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "config_dirs": ["/my conf"], "config_name": "mine"}))
    command = made(folder).winners[0].command
    assert command == "sglang-hydra --config-dir '/my conf' --config-name mine model=tiny tp_size=2"


def test_what_it_was_measured_on_is_shown(tmp_path: Path) -> None:
    found = {**result(0.1, {"concurrency": 1}), "machine": {"host": "node7", "gpu driver": "580.1"}}
    text = page(made(write_sweep(tmp_path / "s", [{"words": ["x"], "result": found}])))
    for words in ("node7", "580.1", "sglang 0.5.2", "81559 MiB"):
        assert words in text


def test_an_interval_of_equal_things_holds_zero_as_often_as_it_says() -> None:
    draw = random.Random(7)
    wrong = 0
    for _ in range(300):
        before, after = ([draw.gauss(100, 5) for _ in range(3)] for _ in range(2))
        found = difference(before, after)
        assert found is not None
        wrong += not found.low <= 0 <= found.high
    assert wrong <= 0.1 * 300


@pytest.mark.thorough
def test_a_thousand_points_are_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)  # the folder is for reading only
    points = [
        {"words": [f"bench.concurrency={n}"], "result": result(0.1 + n / 1e4, {"concurrency": n, "output_len": n % 7})}
        for n in range(1, 1001)
    ]
    report = made(write_sweep(tmp_path / "s", points))
    text = page(report)
    assert text.count("<tr data-p=") == 1000
    assert text.count('tabindex="0"') < 100, "a keyboard does not walk through every mark"


def test_series_differ_in_shape_and_not_in_colour_alone() -> None:
    svg = ElementTree.fromstring(
        scatter([Mark(1, 1, series, True, str(series)) for series in range(12)], Axis("x"), Axis("y"))
    )
    shapes = {re.sub(r"-?[\d.]+", "#", path.get("d", "")) + path.get("d", "") for path in svg.iter() if path.get("d")}
    assert len(shapes) == 6
    looks = {path.get("class", "") + path.get("d", "") for path in svg.iter() if path.get("d")}
    assert len(looks) == 12, "beyond six servers a colour has another shape"


@pytest.mark.parametrize(
    ("high", "expected"),
    [(0, [0, 1]), (1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (29.6, [0, 10, 20, 30]), (8000, [0, 2000, 4000, 6000, 8000])],
)
def test_ticks_are_round_and_reach_the_top(high: float, expected: list[float]) -> None:
    assert ticks(0, high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(6.1, 23, [5, 10, 20, 50]), (2, 2, [2, 5]), (0.3, 4000, [0.1, 1, 10, 100, 1000, 10_000]), (1, 10, [1, 2, 5, 10])],
)
def test_log_ticks_hold_both_ends(low: float, high: float, expected: list[float]) -> None:
    assert log_ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (0.0123, "0.012"), (1.5, "1.5"), (12, "12"), (1240.4, "1,240"), (12_400, "12.4k"), (3_200_000, "3.2M")],
)
def test_numbers_are_short(value: float, words: str) -> None:
    assert short(value) == words


def test_charts_of_a_single_point_can_be_drawn() -> None:
    assert "<path" in scatter([Mark(0, 0, 0, True, "one")], Axis("x"), Axis("y"))


@pytest.mark.parametrize("bandwidth", [1e9, 1e3], ids=["below", "above"])
def test_each_point_has_its_share_of_the_hardwares_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bandwidth: float
) -> None:
    folder = write_sweep(tmp_path / "a", grid())
    file = Store(folder).server(SERVER) / "plan.json"
    terms = Roofline(
        gpu="h100",
        bandwidth=bandwidth,
        peak=0.0,
        link=0.0,
        gpus=2,
        copies=1,
        replicas=1,
        stages=1,
        weights=1e5,
        experts=0.0,
        expert_number=0,
        expert_chosen=0,
        caches=(),
        state=0.0,
        work=(),
        exchanged=0.0,
    )
    plan = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps({**plan, "roofline": terms.to_json()}), "utf-8")
    row = read_sweeps([folder])[0].rows[0]
    limit, per_gpu = bandwidth / 1e5 / 2, row.measures["output_throughput_per_gpu"]
    assert row.measures["limit_per_gpu"] == pytest.approx(limit)
    assert row.measures["limit_share"] == pytest.approx(100 * per_gpu / limit)
    assert entry(["report", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "% of the limit" in printed
    assert ("check inputs" in printed) is (bandwidth == 1e3)
    assert ("check inputs" in (folder / "report.html").read_text("utf-8")) is (bandwidth == 1e3)


def test_a_point_without_a_limit_has_no_share(tmp_path: Path) -> None:
    row = read_sweeps([write_sweep(tmp_path / "a", grid())])[0].rows[0]
    assert "limit_share" not in row.measures


@pytest.mark.parametrize(("slo", "held"), [("ttft=0.001ms", "0 of "), ("ttft=1000000ms", "")])
def test_the_terminal_says_how_many_points_hold_the_limits(
    slo: str, held: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_sweep(tmp_path / "s", grid())
    assert entry(["report", str(folder)]) == 0
    assert " points hold " not in capsys.readouterr().out
    assert entry(["report", str(folder), "--slo", slo]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if " points hold " in line)
    count, _, of, *_ = line.split()
    assert line.startswith(held) if held else count == of


def test_what_an_slo_search_found_is_in_status_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It looks for the most requests at a time within the SLO; fewer bring more output here, and more miss the SLO."""
    points = []
    for concurrency, throughput, met in ((2, 30.0, True), (3, 29.0, True), (4, 99.0, False)):
        found = result(0.1, {"concurrency": concurrency})
        found["measures"] |= {"output_throughput": throughput, "slo_met": met}
        points.append({"words": [f"bench.concurrency={concurrency}"], "result": found})
    folder = write_sweep(tmp_path / "s", points)
    steps = Store(folder).read_sweep()["points"]
    planned, best = [id for id, step in steps.items() if step["words"] in ([f"bench.concurrency={n}"] for n in (2, 3))]
    record = {"search": "bisect", "key": "bench.concurrency", "planned": planned, "over": True, "best": best}
    Store(folder).keep_search("5e" * 8, {"schema": SEARCH_SCHEMA, **record, "steps": steps})
    for command in ("status", "report"):
        assert entry([command, str(folder)]) == 0
        assert "the bisect search of bench.concurrency found bench.concurrency=3" in capsys.readouterr().out
    assert "the bisect search of bench.concurrency found bench.concurrency=3" in (folder / "report.html").read_text()
    assert entry(["status", str(folder), "--json"]) == 0
    stands = valid("sweep_status", capsys.readouterr().out)
    assert stands["best"]["words"] == ["bench.concurrency=2"]
    assert stands["searches"][0]["words"] == ["bench.concurrency=3"]
    assert entry(["report", str(folder), "--json"]) == 0
    assert valid("report", capsys.readouterr().out)["sweeps"][0]["searches"] == stands["searches"]


def test_a_local_model_is_titled_by_its_folder() -> None:
    models = ["/home/me/models/tiny-1, float32", "Qwen/Qwen3-8B, bfloat16"]
    sweep = SimpleNamespace(name="s", environment={"model": models, "gpu": ["cpu, 2 cores"]})
    assert title(cast(Any, SimpleNamespace(sweeps=[sweep]))) == "tiny-1, Qwen/Qwen3-8B on cpu"
