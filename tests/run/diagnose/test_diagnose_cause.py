"""A verdict by the release's own code: the place that raised, what its conditions read, which change they accept."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.arguments.tables.table import Argument, release
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.releases.reading_refusals import Reader, Site, Term, names_in
from sglang_hydra.releases.refusals import look_up, recorded, recorded_versions
from sglang_hydra.run.diagnose.cause import _candidates, _compares, _values, cause_of, evaluated
from sglang_hydra.run.diagnose.diagnosis import UNKNOWN, Diagnosis, diagnose
from sglang_hydra.run.diagnose.life import Raised
from sglang_hydra.run.diagnose.lines import Line, as_written, read_lines
from sglang_hydra.run.diagnose.remedy import with_remedies

SITE = "/usr/local/lib/python3.12/dist-packages/sglang"
CODE = """
class Worker:
    def __init__(self, server_args, config):
        self.server_args = server_args
        self.page = server_args.page_size
        cfg = resolving_view(server_args)
        if not cfg.enable_lora:
            return
        size = cfg.chunked_prefill_size
        if size is not None and size % self.page != 0:
            raise ValueError(f"a chunk of {size} tokens is no number of whole pages of {self.page}")
        assert config.heads > 0, "no heads"
        if _is_hip and envs.SGLANG_USE_AITER.get() and Mode(cfg.disaggregation_mode) == Mode.DECODE:
            raise NotImplementedError("decode servers of this kind are not written yet")
"""


def read(code: str = CODE) -> list[Site]:
    fields = ("page_size", "enable_lora", "chunked_prefill_size", "disaggregation_mode")
    return list(Reader(fields, [("srt/worker.py", code)]).sites())


def test_what_a_condition_reads_is_found_through_names_and_attributes() -> None:
    chunk, heads, decode = read()
    assert (chunk.kind, chunk.function, chunk.message.split("{}")[0]) == ("ValueError", "__init__", "a chunk of ")
    assert chunk.guards == [
        ["a", "enable_lora"],
        ["!=", ["a", "chunked_prefill_size"], ["c", None]],
        ["!=", ["%", ["a", "chunked_prefill_size"], ["a", "page_size"]], ["c", 0]],
    ]
    assert heads.kind == "AssertionError"
    assert ["a", "enable_lora"] in heads.guards
    assert decode.guards[-3:] == [
        ["@", "is_hip"],
        ["$", "SGLANG_USE_AITER"],
        ["==", ["a", "disaggregation_mode"], ["c", "decode"]],
    ]


def test_the_recorded_releases_have_every_kind_of_place() -> None:
    assert {"0.5.18", "0.5.23"} <= set(recorded_versions())
    for version in recorded_versions():
        sites = recorded(version)
        assert {"ValueError", "AssertionError", "log"} <= {site.kind for site in sites}
        assert sum(bool(site.guards) for site in sites) > 1000
        assert max(len(site.message) for site in sites) <= 110, "a message is shortened to what identifies it"


def log(release: str, message: str, place: str, line: int, args: str = "") -> list[str]:
    """A scheduler of ``release`` that ends by ``message``, raised at ``place``."""
    file, function = place.split(":")
    return [
        f"sglang version: {release}",
        f"[2026-06-11 08:14:02] server_args=ServerArgs(model_path='/models/m', {args}tp_size=1)",
        "[2026-06-11 08:15:11 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        f'  File "{SITE}/srt/managers/scheduler.py", line 3750, in run_scheduler_process',
        f'  File "{SITE}/{file}", line {line}, in {function}',
        message,
        "",
        "[2026-06-11 08:15:12] Received sigquit from a child process. It usually means the child failed.",
    ]


def of(site: Site, args: str, release: str = "0.5.23") -> Diagnosis:
    message = f"{site.kind}: {site.message.replace('{}', 'x')} and so on"
    return diagnose(log(release, message, f"{site.file}:{site.function}", site.line, args))


def found(function: str, kind: str, reads: str) -> Site:
    return next(
        site
        for site in recorded("0.5.23")
        if site.function == function and site.kind == kind and any(reads in str(guard) for guard in site.guards)
    )


def test_a_refusal_outside_of_the_argument_code_names_its_arguments_and_a_change() -> None:
    site = found("_init_pools", "ValueError", "enable_unified_memory")
    diagnosis = of(site, "enable_unified_memory=True, ")
    assert diagnosis.kind == "invalid_arguments"
    assert diagnosis.cause is not None
    assert (diagnosis.cause.place, diagnosis.cause.found[0].agrees) == (
        "srt/mem_cache/kv_cache_configurator.py:_init_pools",
        ("message", "place"),
    )
    assert diagnosis.cause.arguments["enable_unified_memory"] is True
    assert {"enable_unified_memory": False} in diagnosis.cause.changes
    assert "enable_unified_memory" in diagnosis.finding.fields


def test_a_change_is_one_that_the_condition_accepts() -> None:
    site = found("check_server_args", "AssertionError", "'%', ['a', 'chunked_prefill_size'], ['a', 'page_size']")
    diagnosis = of(site, "chunked_prefill_size=1000, page_size=64, ")
    assert diagnosis.cause is not None
    changes = [change["chunked_prefill_size"] for change in diagnosis.cause.changes if "chunked_prefill_size" in change]
    assert changes
    assert all(value is None or value <= 0 or value % 64 == 0 for value in changes)


@pytest.mark.parametrize("kind", ["ValueError", "AssertionError", "RuntimeError", "NotImplementedError", "FluxError"])
def test_an_exception_that_the_release_cannot_have_raised_is_of_no_class(kind: str) -> None:
    lines = log(
        "0.5.23", f"{kind}: the gyroscope of the moon has lost its keys", "srt/managers/scheduler.py:run_batch", 3
    )
    assert diagnose(lines).kind == UNKNOWN
    other = log("0.5.23", "TypeError: 'NoneType' object is not subscriptable", "srt/managers/scheduler.py:run_batch", 3)
    assert diagnose(other).kind == "release_fault"


@pytest.mark.parametrize("version", ["0.5.23", "0.5.18"])
def test_most_places_name_the_arguments_of_their_conditions_and_a_change_that_they_accept(version: str) -> None:
    """Every eighth place whose conditions compare an argument, with arguments for which they hold."""
    table = release(version).arguments
    defaults = _values({}, table)
    asking = [site for site in recorded(version) if site.kind != "log" and any(map(_compares, site.guards))]
    named = changed = 0
    for site in asking[::8]:
        given: dict[str, Any] = {"model_path": "m"}
        for guard in site.guards:
            given |= holding(guard, {**defaults, **given}, table)
        kind = site.kind if site.kind.isidentifier() and site.kind != "any" else "RuntimeError"
        text = f"{kind}: {site.message.replace('{}', '7')}"
        cause = cause_of(Raised(Line(1, text), text, (site.file, site.function), site.line, True), version, given)
        fields = {name for guard in site.guards for name in names_in(guard) if name in table}
        named += cause is not None and fields <= set(cause.reads)
        changed += cause is not None and bool(cause.changes)
    count = len(asking[::8])
    assert count > 100
    assert named >= 0.9 * count
    assert changed >= 0.6 * count


def holding(guard: Term, values: dict[str, Any], table: Mapping[str, Argument]) -> dict[str, Any]:
    """A value of one argument for which a condition may hold; none where it does, or no such value is found."""
    if evaluated(guard, values) is not False:
        return {}
    for name in (name for name in names_in(guard) if name in table):
        for value in (*_candidates(guard, name, values, table[name]), True, False, 1, 2, 4, 8, "x"):
            if evaluated(guard, {**values, name: value}) is not False:
                return {name: value}
    return {}


def test_that_no_argument_mends_it_is_said_only_of_a_condition_that_reads_none() -> None:
    bare = next(
        site
        for site in recorded("0.5.23")
        if not site.guards and len(site.message) > 24 and "managers/sch" in site.file
    )
    assert "reads no argument" in of(bare, "").finding.message
    asks = found("_init_pools", "ValueError", "enable_unified_memory")
    assert "reads no argument" not in of(asks, "enable_unified_memory=True, ").finding.message


def test_a_place_of_another_release_is_said_to_be_of_it() -> None:
    site = found("_init_pools", "ValueError", "enable_unified_memory")
    (one, *_) = look_up("0.5.22", site.kind, site.message, (site.file, site.function))
    assert one.release == "0.5.23"


def test_what_the_log_advises_comes_first_where_the_release_has_it() -> None:
    place = "srt/managers/scheduler.py:run_batch"
    hint = diagnose(
        log("0.5.23", "torch.OutOfMemoryError: CUDA out of memory. Try --mem-fraction-static 0.7.", place, 3)
    )
    assert (hint.finding.hint or "").startswith("the log advises: Try --mem-fraction-static 0.7.")
    assert hint.advised[0].changes == {"mem_fraction_static": 0.7}
    other = diagnose(log("0.5.23", "torch.OutOfMemoryError: CUDA out of memory. Try --no-such-flag 0.7.", place, 3))
    assert other.advised == ()
    done = log("0.5.23", "torch.OutOfMemoryError: CUDA out of memory. Try --mem-fraction-static 0.7.", place, 3,
               "mem_fraction_static=0.7, ")  # fmt: skip
    assert diagnose(done).advised == ()


FUSION = [
    "[2026-06-28 23:41:27 DP1 PP1 TP1] Scheduler hit an exception: Traceback (most recent call last):",
    f'  File "{SITE}/srt/managers/scheduler.py", line 4266, in run_scheduler_process',
    f'  File "{SITE}/srt/layers/flashinfer_comm_fusion.py", line 50, in _resolve_backend',
    "ValueError: FlashInfer allreduce fusion requires SM90 or SM10X NVIDIA GPUs.",
]


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        # a switch that a refusal names in words, where its condition reads none
        (FUSION, "enable_flashinfer_allreduce_fusion=false"),
        # a bound, in a log that names no release
        (["ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.3. Raise "
          "--mem-fraction-static above 0.320 (minimum viable = 1 - available/pre = 0.3198)."],
         "the log advises: Raise --mem-fraction-static above 0.320"),
        # a library's line above the deciding one, and one of SGLang's own work
        (["rdma_context.cpp:1132  GID is NULL, please check your GID index by specifying MC_GID_INDEX",
          "rdma_context.cpp:200   Failed to open device ionic_4 on port with GID 1",
          "rdma_transport.cpp:932 Disable device ionic_4",
          "RuntimeError: Mooncake Transfer Engine initialization failed."], "the log advises: rdma_context.cpp:1132"),
        (["[2026-06-28 23:41:27] Please set proper `--max-total-tokens`.", "a", "b",
          "RuntimeError: Mooncake Transfer Engine initialization failed."], "disaggregation_bootstrap_port="),
        # the usage text of a command advises nothing
        (["usage: launch_server.py [--enable-flashinfer-mxfp4-moe] [--set-x]",
          "launch_server.py: error: argument --dtype: invalid choice: 'float99' (choose from 'auto', 'half')"],
         "sglang-hydra check"),
    ],
)  # fmt: skip
def test_the_first_thing_to_type_is_what_the_log_says(
    lines: list[str], first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["sglang-hydra"])
    assert (diagnose(lines).finding.hint or "").startswith(first)


def test_a_bound_of_the_log_is_kept_with_a_margin() -> None:
    place = "srt/managers/scheduler.py:run_batch"
    low = (
        "ValueError: Loaded weights leave no GPU memory for the KV cache. Raise --mem-fraction-static above 0.320 (x)."
    )
    assert diagnose(log("0.5.23", low, place, 3)).advised[0].changes == {"mem_fraction_static": 0.37}


START = Path(__file__).parents[2] / "data" / "diagnosis" / "start_0_5_23_strict_thinking.log"


def test_a_real_start_that_fails_in_the_scheduler_names_argument_condition_place_and_change() -> None:
    diagnosis = diagnose(START.read_text(encoding="utf-8").split("\n"), 137)
    assert diagnosis.kind == "invalid_arguments"
    assert diagnosis.cause is not None
    assert diagnosis.cause.place == "srt/constrained/base_grammar_backend.py:create_grammar_backend"
    assert diagnosis.cause.arguments == {"enable_strict_thinking": True, "grammar_backend": "none"}
    assert {"enable_strict_thinking": False} in diagnosis.cause.changes
    assert {"grammar_backend": "xgrammar"} in [dict(one.changes) for one in diagnosis.advised]


def test_a_change_is_planned_beside_the_arguments_that_the_condition_reads() -> None:
    """0.5.2 has no enable_strict_thinking: a plan by its rules alone is of a server that never had the fault."""
    composer = Composer()
    typed = [Request("model=qwen3_8b", "here"), Request("gpu=h100", "here")]
    diagnosis = with_remedies(diagnose(START.read_text(encoding="utf-8").split("\n"), 137), composer, typed)
    (command,) = (note for note in diagnosis.notes if note.startswith("the whole command"))
    assert "--grammar-backend xgrammar" in command
    assert "--enable-strict-thinking" in command


def wrapped(lines: list[str]) -> list[str]:
    return [line[at : at + 80] for line in lines for at in range(0, max(len(line), 1), 80)]


def table(lines: list[str], *, newest_first: bool = False) -> list[str]:
    """An export of a log collector: a row a line of the log, its time and host before it, all in quotes."""
    rows = [[f"2026-09-24T10:{at // 60:02}:{at % 60:02}Z", "gpu-7", line] for at, line in enumerate(lines)]
    out = io.StringIO()
    csv.writer(out).writerows([["Date", "Host", "Message"], *(rows[::-1] if newest_first else rows)])
    return out.getvalue().splitlines()


FORMS: dict[str, Callable[[list[str]], list[str]]] = {
    "cut at the top": lambda lines: lines[20:],
    "cut at the bottom": lambda lines: lines[:55],
    "newest first": lambda lines: lines[::-1],
    "one string of JSON": lambda lines: [json.dumps("\n".join(lines))],
    "one object of JSON": lambda lines: [json.dumps({"pod": "a", "content": "\n".join(lines)})],
    "one array of JSON": lambda lines: [json.dumps(lines)],
    "wrapped at 80 columns": wrapped,
    "a table": table,
    "a table, newest first": lambda lines: table(lines, newest_first=True),
    "escaped": lambda lines: [repr("\n".join(lines))],
}


@pytest.mark.parametrize("form", FORMS)
def test_the_start_is_known_in_every_form(form: str) -> None:
    diagnosis = diagnose(FORMS[form](START.read_text(encoding="utf-8").split("\n")))
    assert diagnosis.kind == "invalid_arguments"
    assert diagnosis.cause is not None
    assert diagnosis.cause.place == "srt/constrained/base_grammar_backend.py:create_grammar_backend"


def test_a_whole_log_in_one_text_of_any_length_is_opened(tmp_path: Path) -> None:
    lines = START.read_text(encoding="utf-8").split("\n")
    file = tmp_path / "log.json"
    work = ["[2026-06-11 08:14:02 TP0] Load weight begin. avail mem=78.58 GB"] * 3000
    file.write_text(json.dumps("\n".join([*lines[:6], *work, *lines[6:]])), encoding="utf-8")
    with file.open("rb") as opened:
        assert diagnose(read_lines(opened)).kind == "invalid_arguments"


def test_lines_of_one_second_and_a_clock_that_goes_on_are_not_turned() -> None:
    lines = [f"[2026-06-11 08:14:{second:02} TP0] a" for second in (5, 5, 5, 6, 7)]
    assert list(as_written(lines)) == lines
    assert list(as_written(lines[::-1])) == lines
