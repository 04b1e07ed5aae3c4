"""What people read: the screens as they are, and that nothing in a value can change what a screen says or does."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_hydra.arguments.fields import FIELDS, LoRARef
from sglang_hydra.cli.id_pages import id_record, id_screen, known_ids
from sglang_hydra.compose.overrides import Request
from sglang_hydra.show.argument import field_record, field_screen
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.show.plan import command_line, plan_screen, summary
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.locations import conf_dir
from sglang_hydra.text.screen import VERBATIM, Line, columns, folded, printable, shown, text, write
from tests.for_0_5_2 import plans_are_for_0_5_2 as plans_are_for_0_5_2
from tests.plans import H200, composer, planned, without_accelerator, without_engines

GPUS = sorted(path.stem for path in (conf_dir() / "gpu").glob("*.yaml"))
MODELS = sorted(path.stem for path in (conf_dir() / "model").glob("*.yaml"))
CASES = [
    *(["model=llama_3_1_8b", f"gpu={gpu}"] for gpu in GPUS),
    *(["gpu=h200", "tp_size=8", f"model={model}"] for model in MODELS),
]


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)
    without_accelerator(monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    monkeypatch.delenv("SGLANG_HYDRA_CACHE", raising=False)


def printed(lines: Sequence[Line]) -> str:
    out = io.StringIO()
    write(lines, out)
    return out.getvalue()


# The plan


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_every_preset_has_a_verdict_first_and_its_identity_last(case: list[str]) -> None:
    plan = planned(*case, "random_seed=42")
    first, *_, last = printed(plan_screen(plan)).splitlines()
    verdict = re.match(r"Launch    (yes|no|unknown)\b", first)
    assert verdict is not None, first
    assert {"yes": True, "no": False, "unknown": None}[verdict[1]] is plan.launchable
    assert plan.server_id in last


def test_a_plan_says_what_it_is_for_who_set_what_and_what_became_of_it() -> None:
    screen = printed(plan_screen(planned("gpu=h200", "model=deepseek_v3", "tp_size=8")))
    assert screen.splitlines()[:4] == [
        "Launch    yes, by SGLang 0.5.2",
        "GPUs      8 of 8 x h200, 143771 MiB each",
        "Capacity  646,231 KV tokens, 3 requests of 163,840 tokens at a time",
        "Command   python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --random-seed 42 --tp-size 8",
    ]
    for line in (
        "SGLang 0.5.2 serving deepseek-ai/DeepSeek-V3 on h200",
        r"  \+  model_path  deepseek-ai/DeepSeek-V3  conf/model/deepseek_v3.yaml:\d+",
        r"  \+  tp_size     8                        argument 3",
        r"  ~  mem_fraction_static +null -> 0\.886 +MEM001  .*",
        r"  and \d+ more that every plan has: --all",
        r"Plan [0-9a-f]{16}: 2 set, \d+ resolved, \d+ at their defaults",
    ):
        assert re.search(f"^{line}$", screen, re.MULTILINE), line


def test_a_value_that_a_rule_took_away_is_marked() -> None:
    plan = planned(*H200, "disable_cuda_graph=false", "enable_dp_attention=true")
    screen = printed(plan_screen(plan))
    assert re.search(r"^  !  enable_dp_attention +true -> false +DPA\d+", screen, re.MULTILINE)
    assert re.search(r"^  warning DPA\d+  enable_dp_attention=true was set, and SGLang", screen, re.MULTILINE)


def test_who_beat_whom_is_shown() -> None:
    screen = printed(plan_screen(planned(*H200, "model_path=/else", "tp_size=2")))
    assert re.search(
        r"^  \+  model_path  /else +argument 3 \(over conf/model/qwen3_8b.yaml:\d+\)$", screen, re.MULTILINE
    )


def test_a_finding_names_who_set_the_values_and_what_to_type() -> None:
    screen = printed(
        plan_screen(planned(*H200, "tp_size=16", "quantization=awq", "model.config.quantization_config={}"))
    )
    assert "  error GPU001  16 ranks need 16 GPUs on one node; h200 has 8\n" in screen
    assert "      tp_size=16 was set by argument 3\n" in screen
    assert "      hint: nnodes=2\n        or: gpu.count=16 if a node has as many\n" in screen
    computed = printed(finding_lines([Finding("error", "CFG005", "no", ("mem_fraction_static",))], planned(*H200)))
    assert re.search(r"mem_fraction_static=0\.\d+ comes from MEM001 \(", computed)


def test_errors_come_first_and_an_unlaunchable_plan_shows_no_command() -> None:
    screen = printed(plan_screen(planned(*H200, "api_key=x", "tp_size=3")))
    assert screen.index("error CFG004") < screen.index("warning CLI010")
    assert "launch_server" not in screen
    assert screen.startswith("Launch    no: 32 attention heads do not divide by 3 ranks")
    assert "\nCommand   none\n" in screen
    for overrides, verdict in (
        (["tp_size=3"], "SGLang would accept it and then fail"),
        (["page_size=0"], "SGLang would refuse it"),
    ):
        assert printed([summary(planned(*H200, *overrides))]).startswith(f"{verdict}: plan ")


# One field


def test_a_field_is_explained_step_by_step() -> None:
    plan = planned("gpu=h100", "model=qwen3_8b", "tp_size=2", "enable_dp_attention=true", "dp_size=2")
    screen = printed(field_screen("chunked_prefill_size", plan))
    assert screen.startswith("chunked_prefill_size = 4096\n")
    steps = screen.partition("How it got there\n")[2].splitlines()[:3]
    assert [step.split()[0] for step in steps] == ["schema", "SCH001", "DPA004"]
    assert "server_args.py:" in steps[1]
    assert "null -> 8192" in steps[1]
    assert "8192 -> 4096" in steps[2]


def test_a_field_is_explained_without_a_plan() -> None:
    screen = printed(field_screen("tp_size", None))
    assert screen.startswith("tp_size\n")
    assert "How it got there" not in screen
    assert "--tp-size" in screen
    assert "default  none: it must be set" in printed(field_screen("model_path", None))


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_every_field_has_a_page(name: str) -> None:
    plan = planned(*H200)
    assert printed(field_screen(name, plan)).startswith(name)
    assert json.dumps(field_record(name, plan), allow_nan=False)
    assert all(len(line) <= 160 for line in printed(field_screen(name, plan)).splitlines())


def test_a_secret_is_not_explained() -> None:
    plan = planned(*H200, "api_key=sekret")
    assert "sekret" not in printed(field_screen("api_key", plan)) + json.dumps(field_record("api_key", plan))


# One id


def test_a_rule_has_a_page_with_four_parts() -> None:
    screen = printed(id_screen("MEM003") or [])
    assert screen.startswith("MEM003  make room for vision\n  SGLang 0.5.2, server_args.py:2513-2549\n")
    for part in ("  What: ", "  Why: ", "  Upstream: ", "  Example: "):
        assert part in screen


def test_every_id_in_the_sources_has_a_page() -> None:
    sources = Path(__file__).parents[2] / "sglang_hydra"
    rooms = [path for path in sources.rglob("*.py") if path.parent.name not in ("doctor", "fit")]
    used = {id for path in rooms for id in re.findall(r'"([A-Z]{3}\d{3})"', path.read_text(encoding="utf-8"))}
    assert used - known_ids() == set()
    for id in sorted(known_ids()):
        assert id_screen(id), id
        assert json.dumps(id_record(id))
    assert id_screen("MEM999") is None


# Values and text


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "null"),
        (True, "true"),
        (8, "8"),
        (0.5, "0.5"),
        ("text", "text"),
        ("", '""'),
        ("null", '"null"'),
        ("true", '"true"'),
        ("8", '"8"'),
        ("-1e5", '"-1e5"'),
        (" a", '" a"'),
        ("8b", "8b"),
        ([1, None, "a"], "[1, null, a]"),
        pytest.param({"b", "a"}, "[a, b]", id="a set"),
        ({"a": None, "b": [True]}, "{a: null, b: [true]}"),
        ([], "[]"),
        ("a\x1b[0m\n", '"a\\x1b[0m\\n"'),
        ("x" * 100, "x" * 40 + "..." + "x" * 17),
        ([LoRARef("a", "b"), LoRARef("c", "d", True)], "[a=b, c=d (pinned)]"),
    ],
    ids=str,
)
def test_a_value_is_shown_as_it_is_typed(value: Any, written: str) -> None:
    assert shown(value) == written


def test_columns_stand_under_each_other() -> None:
    rows = [[text("a"), text("long cell"), text("end")], [text("bbb"), text("x"), text("end of this")]]
    assert printed(columns(rows)) == "  a    long cell  end\n  bbb  x          end of this\n"


@pytest.mark.parametrize(
    ("line", "width", "lines"),
    [
        ([text("  short")], 20, ["  short"]),
        ([text("  id  "), text("one two three four")], 16, ["  id  one two", "      three four"]),
        ([text("    one two three")], 12, ["    one two", "    three"]),
        ([text("  id  "), text("unbreakablelongword and more")], 16, ["  id  unbreakablelongword", "      and more"]),
        ([text("x" * 30), text("one two three")], 20, ["x" * 30, "      one two three"]),
        ([text("x" * 30), text(", one two three")], 20, ["x" * 30 + ",", "      one two three"]),
        ([text("x" * 9), text("   "), text("one two three")], 15, ["x" * 9, "      one two", "      three"]),
        ([text("  "), text("one two three four five", VERBATIM)], 10, ["  one two three four five"]),
        ([], 10, [""]),
    ],
    ids=str,
)
def test_a_long_line_is_folded_under_where_its_last_piece_began(line: Line, width: int, lines: list[str]) -> None:
    assert ["".join(content for content, _ in part) for part in folded(line, width)] == lines


HOSTILE = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "a\nPlan 0000: can be launched",
    "a\r\tb",
    "[red]bold[/red]",
    "[link=http://x]x[/link]",
    'it\'s "quoted"',
    "$(touch owned); `id` && rm -rf / | cat > x",
    "a b  c",
    "a\\b\\",
    "$HOME ${HOME} $'x'",
    "!history #comment ~ *",
    "日本語 é \u202e\u200b",
    "\udcff\udc80",
    "-x",
    "--flag=1",
    ":smile:",
]


def hostile_plan(word: str) -> Any:
    from sglang_hydra.planning.making.make import make_plan

    names = ("served_model_name", "chat_template", "tokenizer_path", "file_storage_path")
    typed = [Request(text, "argument 1") for text in (*H200, "engine.env.A='x'")]
    return make_plan(
        composer(),
        [*typed, *(Request.typed(name, word, f"place {word}") for name in names)],
        env={"SGLANG_RUN_ID": word},
    )


@pytest.mark.parametrize("word", HOSTILE, ids=ascii)
def test_nothing_in_a_value_steers_a_terminal_or_fakes_a_line(word: str) -> None:
    plan = hostile_plan(word)
    screens = [
        printed(plan_screen(plan)),
        printed(field_screen("served_model_name", plan)),
        printed(finding_lines([Finding("error", "CLI001", word, ("served_model_name",), word)], plan)),
        printed([[text(word)], summary(plan)]),
    ]
    for screen in screens:
        assert all(char.isprintable() or char == "\n" for char in screen)
        assert not re.search("^Plan 0000", screen, re.MULTILINE)
    json.dumps(plan.to_json(), allow_nan=False)


@pytest.mark.parametrize("word", HOSTILE, ids=ascii)
def test_the_printed_command_is_the_command(word: str) -> None:
    plan = hostile_plan(word)
    (line,) = [line for line in printed(plan_screen(plan)).splitlines() if "launch_server" in line]
    title, line = line.split(maxsplit=1)
    assert (title, line) == ("Command", command_line(plan))
    if word.isprintable():
        words = shlex.split(line)
        assert words == ["A=x", *plan.command]
    assert said_by_bash(line) == [os.fsencode(part) for part in plan.command[1:]]


def said_by_bash(line: str) -> list[bytes]:
    """The arguments that a shell makes of the printed line."""
    function = """python() { printf '%s\\0' "$@"; }\n"""
    script = (function + line.strip()).encode("utf-8", "surrogateescape")
    run = subprocess.run(["bash"], input=script, capture_output=True, check=True, timeout=250)
    return run.stdout.split(b"\0")[:-1]


@given(st.text(max_size=40))
@settings(max_examples=200, deadline=None)
def test_no_text_reaches_a_screen_with_control_characters(content: str) -> None:
    assert printable(content).isprintable()
    assert shown(content).isprintable()
    assert text(content)[0].isprintable()


# Streams


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_colours_and_a_pipe_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    lines = plan_screen(planned(*H200, "served_model_name=[red]x[/red] :smile:"))
    coloured = Terminal()
    write(lines, coloured)
    assert "\x1b[" in coloured.getvalue()
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured.getvalue())
    assert "[red]x[/red] :smile:" in bare
    assert "\x1b" not in printed(lines)
    folded_lines = [part for line in lines for part in folded(line, 100)]
    assert bare.split() == printed(folded_lines).split()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_turned_off(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    out = Terminal()
    write(plan_screen(planned(*H200)), out)
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "cp1252"])
@pytest.mark.parametrize("terminal", [True, False])
def test_a_stream_of_any_encoding_can_be_written_to(
    encoding: str, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    out.isatty = lambda: terminal  # type: ignore[method-assign]
    write(plan_screen(hostile_plan("日本語 é \udcff")), out)
    assert b"launch_server" in raw.getvalue()


def test_the_pages_of_help_fold_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    write(finding_lines([Finding("error", "CLI006", "word " * 60, (), "hint " * 30)]), out)
    assert max(len(line) for line in out.getvalue().splitlines()) <= 60


def test_an_argument_of_a_later_release_has_its_default_and_its_findings() -> None:
    later = "engine.version=0.5.23"
    assert "SGLang 0.5.23's default" in printed(field_screen("dcp_size", planned(later)))
    refused = planned(later, "gpu=h200", "model=qwen3_8b", "cuda_graph_max_bs=4")
    assert "VER004" in printed(field_screen("cuda_graph_max_bs", refused))
