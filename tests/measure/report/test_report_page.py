"""The page of a report: it needs nothing else, hides nothing, and hostile text stays text."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from sglang_hydra.cli.main import entry
from sglang_hydra.cli.report import to_json
from sglang_hydra.measure.report.comparing import misses, read_slo
from sglang_hydra.measure.report.contents import Report, make_report
from sglang_hydra.measure.report.page import page
from sglang_hydra.measure.report.reading import read_sweeps
from tests.measure.report.folders import grid, many_servers, result, three_servers, write_sweep

HOSTILE = "</td><script>alert('x')</script>&amp;${x}\x1b[31m"


RECORDED = Path(__file__).parents[2] / "data" / "report.json"


def made(*folders: Path) -> Report:
    return make_report(read_sweeps(list(folders)))


def test_the_page_needs_nothing_else_and_allows_nothing_else(tmp_path: Path) -> None:
    text = page(made(write_sweep(tmp_path / "s", grid())))
    assert not re.search(r"<script\s|<link|@import|url\(|\sstyle=|\son\w+=", text)
    assert "http://" not in text
    assert "https://" not in text
    assert text.count('<svg viewBox="0 0 420') == 2 * 6, "each chart with even and with log axes"
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(svg)
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="(.*?)">', text)
    rules = dict(rule.split(" ", 1) for rule in html.unescape(policy).split("; "))
    assert (rules.pop("default-src"), rules.pop("base-uri"), rules.pop("form-action")) == ("'none'",) * 3
    for name in ("style", "script"):
        (content,) = re.findall(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules.pop(f"{name}-src") == f"'sha256-{digest}'"
    assert not rules


def test_a_server_is_one_line_with_its_concurrencies_and_one_card(tmp_path: Path) -> None:
    report = made(write_sweep(tmp_path / "sweep", three_servers()))
    text = page(report)
    charts = [svg for svg in re.findall(r"<svg viewBox.*?</svg>", text, re.DOTALL) if "polyline" in svg]
    assert len(charts) == 2 * 3
    for svg in charts:
        assert [svg.count(f'class="server s{number}"') for number in range(4)] == [1, 1, 1, 0]
        assert svg.count('class="noise ') == 2 * 18
        labels = re.findall(r'text-anchor="start" data-s="\d">(\d+)</text>', svg)
        assert {"4", "16", "32"} <= set(labels), "those that would cover others are left out"
    cards = re.findall(r'<section class="card">.*?</section>', text, re.DOTALL)
    assert ["tp_size=1" in cards[0], "tp_size=4" in cards[1], len(cards)] == [True, True, 2]
    assert cards[1].count("lowest median") == 2


def test_the_best_is_found_among_equal_workloads(tmp_path: Path) -> None:
    report = made(write_sweep(tmp_path / "s", grid(repeats=3)))
    assert [each.words for each in report.workloads] == ["output_len 8", "output_len 16"]
    for workload in report.workloads:
        lengths = {group.first.settings["bench.output_len"] for group in workload.groups}
        assert lengths == {int(workload.words.split()[-1])}
        assert [winner.title for winner in workload.winners] == [
            "highest throughput",
            "lowest median TTFT",
            "lowest median ITL",
        ]
        assert all(winner.verdict.best in workload.groups for winner in workload.winners)
        assert workload.leaders == (), "one server has nobody to lead"


def test_of_many_workloads_those_with_the_most_points_are_drawn(tmp_path: Path) -> None:
    points = [{"words": [str(n)], "result": result(0.1, {"concurrency": 1, "output_len": n})} for n in range(8, 24)]
    points += [{"words": ["more"], "result": result(0.1, {"concurrency": 2, "output_len": 20})}]
    text = page(made(write_sweep(tmp_path / "s", points)))
    drawn = re.findall(r"<h2>output_len (\d+)</h2>", text)
    assert (len(drawn), drawn[0]) == (12, "20")
    assert "4 more workloads" in text
    assert text.count("<tr data-p=") == 17


def test_who_leads_is_said_for_each_load(tmp_path: Path) -> None:
    (workload,) = made(write_sweep(tmp_path / "s", three_servers())).workloads
    assert [leader.load for leader in workload.leaders] == [f"concurrency {n}" for n in (1, 2, 4, 8, 16, 32)]
    for leader in workload.leaders:
        throughput, ttft, itl = (verdict.best.first.settings["tp_size"] for verdict in leader.verdicts if verdict)
        assert (throughput, ttft, itl) == (1, 4, 4)
    text = page(made(tmp_path / "s"))
    assert "Best at each load" in text
    assert "Best at each load" not in page(made(write_sweep(tmp_path / "one", grid())))


@pytest.mark.parametrize("is_measured", [False, True], ids=["asked for", "measured"])
def test_what_misses_the_limits_is_hollow_and_beyond_them_is_shaded(tmp_path: Path, is_measured: bool) -> None:
    slo = {"ttft_ms": 300.0, "itl_ms": 15.0}
    points = three_servers(slo={**slo, "e2e_ms": None, "share": 0.99} if is_measured else None)
    for point in points:
        found = point["result"]["measures"]
        found["slo_met"] = found["ttft_ms"]["p50"] <= 300 and found["itl_ms"]["p50"] <= 15
    report = make_report(read_sweeps([write_sweep(tmp_path / "s", points)]), None if is_measured else slo)
    (workload,) = report.workloads
    assert workload.slo == slo
    missed = {group.first.words for group in workload.groups if misses(group, slo)}
    assert (("tp_size=1", "bench.concurrency=1") in missed) is not is_measured, "its 99th percentile is 18 ms"
    assert ("tp_size=1", "bench.concurrency=32") in missed
    assert ("tp_size=4", "bench.concurrency=16") not in missed
    text = page(report)
    assert workload.held.startswith(f"{len(workload.groups) - len(missed)} of {len(workload.groups)} points hold")
    assert html.escape(workload.held) in text
    assert text.count('class="beyond"') == 2 * 3
    assert len(re.findall(r'class="mark s\d[a-z ]* missed"', text)) == 2 * 3 * len(missed)
    best = [winner for winner in workload.winners if "TTFT <= 300 ms, ITL <= 15 ms" in winner.title]
    assert all(winner.verdict.best.first.words not in missed for winner in best)
    assert [winner.title.split(" for ")[0] for winner in best][:1] == [
        f"highest throughput with{'in' if is_measured else ' p99'} TTFT <= 300 ms, ITL <= 15 ms"
    ]


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("ttft=500ms,itl=30ms", {"ttft_ms": 500, "itl_ms": 30}),
        ("TTFT=0.5s", {"ttft_ms": 500}),
        ("ttft_ms=500, e2e=4s", {"ttft_ms": 500, "e2e_ms": 4000}),
        ("ttft=0", None),
        ("ttft=500ms;itl=30", None),
        ("tpot=3", None),
        ("ttft=500ms,", None),
        ("", None),
    ],
)
def test_limits_are_read(
    text: str, limits: dict[str, float] | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read_slo(text) == limits
    folder = write_sweep(tmp_path / "s", grid())
    assert entry(["report", str(folder), f"--slo={text}"]) == (2 if limits is None else 0)
    assert ("REP004" in capsys.readouterr().err) is (limits is None)


def test_two_sweeps_share_the_colours_of_their_servers(tmp_path: Path) -> None:
    old = write_sweep(tmp_path / "old", three_servers(1.1))
    text = page(made(old, write_sweep(tmp_path / "new", three_servers())))
    chart = next(svg for svg in re.findall(r"<svg viewBox.*?</svg>", text, re.DOTALL) if "polyline" in svg)
    for number in range(3):
        assert [chart.count(f'class="server s{number}{older}"') for older in ("", " old")] == [1, 1]
    assert text.count('aria-pressed="true"') == 3
    assert "Full lines are new, broken ones old" in text


def test_of_many_servers_the_best_five_have_a_colour_and_the_page_says_what_it_is_of_and_when(tmp_path: Path) -> None:
    report = made(write_sweep(tmp_path / "s", many_servers(50), ["model=tiny", "gpu=h100"]))
    text = page(report)
    assert text.count("<tr data-p=") == 300
    assert text.count('aria-pressed="true"') == 6
    assert "</svg>45 other servers</button>" in text
    best = {winner.verdict.best.first.server_id for each in report.workloads for winner in each.winners}
    coloured = set(re.findall(r'<tr data-p="(\d+)" data-s="[0-4]"', text))
    assert best <= {report.groups[int(number)].first.server_id for number in coloured}
    assert len({report.groups[int(number)].first.server_id for number in coloured}) == 5
    chart = next(svg for svg in re.findall(r"<svg viewBox.*?</svg>", text, re.DOTALL) if "polyline" in svg)
    assert chart.count('class="server s5"') == 45
    assert "<h1>tiny on h100</h1>" in text
    assert "s, 2026-11-28, 300 points, 300 valid" in text
    assert "All servers: <code>model=tiny gpu=h100</code>" in text


def test_the_json_is_the_one_that_programs_read(tmp_path: Path) -> None:
    """Workloads, limits and pictures are for people."""
    folders = [write_sweep(tmp_path / "old", grid(repeats=3)), write_sweep(tmp_path / "new", grid(0.9, repeats=3))]
    record = to_json(make_report(read_sweeps(folders), {"ttft_ms": 5.0}))
    shape = sorted({name for point in record.pop("points") for name in point})
    assert shape == ["measures", "point_id", "reasons", "repeat", "server_id", "settings", "state", "sweep", "words"]
    for sweep in record["sweeps"]:
        sweep.pop("folder")
    assert json.loads(json.dumps(record)) == json.loads(RECORDED.read_text(encoding="utf-8"))


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    points: list[dict[str, Any]] = [
        {"words": [HOSTILE], "result": result(0.1, {"concurrency": 1, "dataset": HOSTILE})},
        {"words": ["x"], "result": result(0.2, {"concurrency": 2, "dataset": "y"}, "valid")},
        {"words": ["z"], "failure": {"kind": HOSTILE, "findings": []}},
    ]
    text = page(made(write_sweep(tmp_path / "s", points, [HOSTILE])))

    class Tags(HTMLParser):
        seen: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.seen.append(tag)

    Tags().feed(text)
    assert Tags.seen.count("script") == 1, "the page's own"
    assert "alert" not in text.rpartition("<script>")[2]
    assert "alert" in text
