"""The command line: verbs, flags, exit codes, and what goes to which stream."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.cli.invocation import read_invocation
from sglang_hydra.cli.reading import requests_from_argv
from sglang_hydra.compose.overrides import Request
from sglang_hydra.schemas import schema_of
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.exit_codes import COMPARES, INVALID, JUDGES
from sglang_hydra.text.flags import VERBS
from tests.commands import H200, Printed, Run, runner, valid
from tests.for_0_5_2 import plans_are_for_0_5_2 as plans_are_for_0_5_2
from tests.plans import written

SERVE = Path(__file__).parents[2] / "serve.py"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


# Taking words apart


@pytest.mark.parametrize(
    ("words", "verb", "texts"),
    [
        ([], "serve", []),
        (["gpu=h100"], "serve", ["gpu=h100"]),
        (["plan"], "plan", []),
        (["plan", "gpu=h100", "tp_size=8"], "plan", ["gpu=h100", "tp_size=8"]),
        (["--json", "plan", "gpu=h100"], "plan", ["gpu=h100"]),
        (["gpu=h100", "plan"], "serve", ["gpu=h100", "plan"]),
        (["explain", "tp_size", "gpu=h100"], "explain", ["tp_size", "gpu=h100"]),
        (["check", "a.yaml", "b.yaml"], "check", ["a.yaml", "b.yaml"]),
        (["plan", ""], "plan", []),
        (["plan", "--tp-size", "8"], "plan", ["--tp-size", "8"]),
    ],
)
def test_the_first_bare_word_is_the_verb(words: list[str], verb: str, texts: list[str]) -> None:
    invocation = read_invocation(words)
    assert invocation.verb == verb
    assert [request.text for request in invocation.requests] == texts


def test_places_count_every_word() -> None:
    invocation = read_invocation(["--json", "plan", "gpu=h100", "--strict", "tp_size=8"])
    assert [request.place for request in invocation.requests] == ["argument 3", "argument 5"]


@pytest.mark.parametrize(
    ("words", "set_to"),
    [
        (["plan", "--json"], {"json": True}),
        (["check", "--strict"], {"strict": True}),
        (["--version"], {"version": True}),
        (["-h"], {"help": True}),
        (["help"], {"help": True}),
        (["-m"], {"multirun": True}),
        (["plan", "--config-dir", "/"], {"config_dirs": ["/"]}),
        (["plan", "--config-dir=/", "-cd", "/tmp"], {"config_dirs": ["/", "/tmp"]}),
        (["plan", "-cn", "mine.yaml"], {"config_name": "mine"}),
        (["--cfg", "job"], {"hydra": True, "requests": []}),
        (["--info", "gpu=h100"], {"hydra": True}),
        (["plan", "--", "--model-path", "x", "--", "y"], {"argv": ["--model-path", "x", "--", "y"], "requests": []}),
    ],
    ids=str,
)
def test_flags(words: list[str], set_to: dict[str, Any]) -> None:
    invocation = read_invocation(words)
    typed = {name: getattr(invocation, name, invocation.given.get(name)) for name in set_to}
    assert typed == set_to


@pytest.mark.parametrize(
    ("words", "id", "said"),
    [
        (["plna", "gpu=h100"], "CLI014", "sglang-hydra plan gpu=h100"),
        (["deepseek_v3"], "CLI014", "Values are typed as key=value"),
        (["plan", "--config-dir"], "CLI012", "--config-dir DIR"),
        (["plan", "--config-dir", "/nowhere"], "CLI012", ""),
        (["benhc", "-m", "tp_size=1,2"], "CLI014", "sglang-hydra bench -m tp_size=1,2"),
        (["explain", "-m", "tp_size=1,2"], "CLI013", "bench -m"),
        (["bench", "model=tiny", "tp_size=1,2"], "CLI007", "bench -m ... tp_size=1,2"),
        (["plan", "--cfg", "job"], "CLI019", "plan --json"),
        (["explain"], "CLI015", "explain mem_fraction_static"),
        (["explain", "tpsize"], "CLI015", "explain tp_size"),
        (["explain", "MEM999"], "CLI015", ""),
        (["explain", "gpu.counts"], "CLI015", "explain gpu.count"),
        (["explain", "max_model_len"], "CLI015", "explain context_length"),
        (["explain", "recipe"], "CLI015", "--help recipe"),
        (["version"], "CLI014", "sglang-hydra --version"),
        (["--help", "zzzz"], "CLI016", "--help"),
        (["plan", *H200, "plan"], "CLI004", "plan key=value"),
        (["plan", "good.yaml"], "CLI004", "there is no such file"),
        (["good.yaml"], "CLI004", "there is no such file"),
        (["plan", "plan.json"], "CLI004", "lock=plan.json"),
        (["recipes", "deepseek"], "CLI021", "recipes model=deepseek"),
        (["recipes", "l40s"], "CLI021", "recipes gpu=l40s"),
    ],
    ids=str,
)
def test_a_line_that_cannot_be_taken_apart_exits_2(words: list[str], id: str, said: str, run: Run) -> None:
    printed = run(*words)
    assert printed.code == 2
    assert printed.out == ""
    assert id in printed.err
    assert said in printed.err
    assert valid("findings", run(*words, "--json").out)["findings"][0]["id"] == id


# Verbs


def test_who_types_nothing_is_told_where_to_begin(run: Run) -> None:
    printed = run()
    assert printed.code != 0
    assert "ARG002  no model was named" in printed.out
    assert "--help shows everything" in printed.out
    assert "--help shows everything" not in run("gpu=h200").out


def test_plan_shows_the_plan(run: Run) -> None:
    printed = run("plan", *H200, "tp_size=2")
    assert printed.code == 0
    assert printed.err == ""
    assert printed.out.startswith(
        "Launch    yes, by SGLang 0.5.2\nGPUs      2 of 8 x h200, 143771 MiB each\nCapacity  1,707,534 KV"
    )
    assert "argument 4" in printed.out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["plan", *H200], 0),
        (["plan", *H200, "tp_size=3"], 2),
        (["plan", *H200, "mem_fraction_static=85"], 2),
        (["plan", "--upstream-only", *H200, "tp_size=3"], 0),
        (["plan", "--upstream-only", *H200, "page_size=0"], 2),
        (["plan", *H200, "mem_fraction_static=0.12"], 0),
        (["plan", "--fail-on=warning", *H200, "mem_fraction_static=0.12"], 2),
        (["plan", "--fail-on", "warning,unknown", *H200], 0),
        (["plan", "--fail-on=warnings", *H200], 2),
        (["plan", "gpu=h200", "model_path=/nowhere"], 0),
        (["plan", "--fail-on=unknown", "gpu=h200", "model_path=/nowhere"], 2),
        (["plan", "-m", *H200, "tp_size=2,3"], 0),
        (["plan", *H200, "page_size=0"], 2),
        (["plan", "gpu=h200"], 2),
        (["plan", *H200, "tpsize=3"], 2),
        (["check", *H200], 0),
        (["check", *H200, "tp_size=3"], 2),
        (["check", "--upstream-only", *H200, "tp_size=3"], 0),
        (["check", "-m", *H200, "tp_size=2,3"], 2),
        (["check", "-m", *H200, "tp_size=2,4"], 0),
        (["check", "--strict", *H200, "tp_size=3"], 2),
        (["check", "--strict", *H200, "tp_size=3", "ignore=[CFG004]"], 0),
        (["check", *H200, "page_size=0"], 2),
        (["check", *H200, "tpsize=3"], 2),
        (["fit", *H200], 0),
        (["fit", *H200, "tp_size=3"], 2),
        (["fit", "--upstream-only", *H200, "tp_size=3"], 0),
        (["fit", "-m", *H200, "tp_size=2,3"], 0),
        (["export", "argv", *H200], 0),
        (["export", "argv", *H200, "tp_size=3"], 2),
        (["export", "argv", "--upstream-only", *H200, "tp_size=3"], 0),
        (["export", "argv", "--upstream-only", *H200, "page_size=0"], 2),
        (["diff", " ".join(H200), " ".join([*H200, "tp_size=2"])], 0),
        (["diff", "--exit-code", " ".join(H200), " ".join([*H200, "tp_size=2"])], 2),
        (["diff", "--exit-code", " ".join(H200), " ".join(H200)], 0),
        (["recipes", "gpu=h200", "model=gpt_oss"], 0),
        (["explain", "page_size", "gpu=h100"], 0),
        (["explain", "tp_size"], 0),
        (["explain", "tp_size", *H200], 0),
        (["explain", "tp_size", *H200, "page_size=0"], 0),
        (["explain", "tp_size", *H200, "tpsize=3"], 2),
        (["explain", "MEM001"], 0),
        (["explain", "cli006"], 0),
        (["--version"], 0),
        (["--help"], 0),
        (["--help", "page"], 0),
        (["serve", "gpu=h200"], 2),
        (["serve", *H200, "page_size=0"], 2),
    ],
    ids=str,
)
def test_exit_codes(words: list[str], code: int, run: Run) -> None:
    assert run(*words).code == code


@pytest.mark.parametrize("verb", JUDGES)
def test_what_judges_ends_with_2_where_it_shows_an_error(verb: str, run: Run) -> None:
    printed = run(verb, *(["argv"] if verb == "export" else []), *H200, "tp_size=3")
    assert printed.code == INVALID
    assert "error CFG004" in printed.out + printed.err


@pytest.mark.parametrize("words", COMPARES)
def test_what_compares_ends_with_0_once_it_is_printed(words: str, run: Run) -> None:
    verb, *flags = words.split()
    refused = [*H200, "tp_size=3"]
    typed = {
        "diff": [" ".join(H200), " ".join(refused)],
        "explain": ["tp_size", *refused],
        "recipes": ["gpu=h100", "model=deepseek_v3"],
        "audit": ["gpu=t4", "model=deepseek_v3"],
    }
    assert run(verb, *flags, *typed.get(verb, [*H200, "tp_size=2,3"])).code == 0


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("plan", ["plan", *H200]),
        ("plan", ["plan", *H200, "tp_size=16", "api_key=x", "lora_paths={a: b}", "mem_fraction_static=nan"]),
        ("plan", ["plan", "gpu=none", "model=unset"]),
        ("plan", ["plan", "gpu=cpu", "model=tiny", "engine.env.A=1"]),
        ("plan", ["plan", "gpu=mi300x", "model=gpt_oss", "ignore=[CFG006,XXX999]"]),
        ("check", ["check", *H200, "tp_size=3"]),
        ("check", ["check", *H200, "tpsize=3"]),
        ("explain", ["explain", "mem_fraction_static"]),
        ("explain", ["explain", "mem_fraction_static", *H200]),
        ("explain", ["explain", "model_path", *H200]),
        ("explain", ["explain", "lora_paths", *H200, "lora_paths={a: b}"]),
        ("roofline", ["explain", "roofline", "gpu=h200", "model=gpt_oss", "bench.concurrency=64"]),
        ("roofline", ["explain", "roofline", "gpu=none", "model=unset"]),
        ("forecast", ["explain", "forecast", "gpu=h200", "model=gpt_oss", "bench.concurrency=64"]),
        ("forecast", ["explain", "forecast", "gpu=none", "model=unset"]),
        ("fit", ["fit", "-m", "gpu=h100,h200", "model=qwen3_8b", "bench.concurrency=8"]),
        ("suggest", ["suggest", "gpu=h100", "model=llama_3_1_70b", "context=32k", "concurrency=8"]),
        ("suggest", ["suggest", "gpu=t4", "model=llama_3_1_70b"]),
        ("explain", ["explain", "MEM001"]),
        ("explain", ["explain", "GPU001"]),
        ("explain", ["explain", "CLI006"]),
        ("findings", ["plan", "gpu=nope", "tpsize=8"]),
        ("findings", ["plan", "--", "--model-path"]),
    ],
    ids=str,
)
def test_what_is_written_for_machines_has_a_schema(kind: str, words: list[str], run: Run) -> None:
    printed = run(*words, "--json") if "--" not in words else run("plan", "--json", *words[1:])
    assert printed.err == ""
    assert valid(kind, printed.out)["schema"] == f"sglang_hydra.{kind}/{3 if kind == 'plan' else 1}"
    assert printed.out.isascii()


def test_every_schema_is_itself_valid() -> None:
    for kind in ("plan", "check", "explain", "findings", "fit", "roofline", "forecast", "suggest"):
        jsonschema.Draft202012Validator.check_schema(schema_of(kind))


def test_help_fits_one_screen_and_names_everything(run: Run) -> None:
    lines = run("--help").out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 120
    for word in (*VERBS, "h200", "deepseek_v3", "--json", "--help WORD", f"The {len(FIELDS)} arguments"):
        assert any(word in line for line in lines), word


def test_a_capability_that_is_a_list_in_a_preset_is_refused_with_what_to_write(run: Run, tmp_path: Path) -> None:
    written(tmp_path, {"gpu/mine.yaml": "defaults: [h100]\nname: mine\ncompute_capability: [8, 6]\n"})
    refused = run("plan", "--config-dir", str(tmp_path), "gpu=mine", "model=qwen3_8b")
    assert "MAJOR.MINOR, such as gpu.compute_capability=9.0" in refused.err


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_is_its_own(verb: str, run: Run) -> None:
    said = run(verb, "--help").out
    assert VERBS[verb] in said
    assert said == run(verb, "gpu=h200", "-h").out
    for flag, verbs in (
        ("--follow", ("logs",)),
        ("--fail-on", ("plan", "check", "export", "fit")),
    ):
        assert (flag in said) == (verb in verbs), flag
    assert ("bench.concurrency" in said) == (verb == "bench")
    assert ("docker run" in said) == (verb == "export")


def test_help_speaks_of_the_default_release(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglang_hydra.cli.help.default_release", lambda: "0.5.23")
    assert "minimax-m3" in run("--help", "tool_call_parser").out  # 0.5.2 has no such value
    assert "SGLang 0.5.23 does not have it." in run("--help", "cuda_graph_bs").out.replace("\n    ", " ")


def test_help_finds_arguments(run: Run) -> None:
    found = run("--help", "tp_size").out
    assert found.startswith("tp_size = 1  (int, GPUs)\n")
    assert run("help", "tp_size").out == run("plan", "--help", "tp_size").out == found
    assert "max_prefill_tokens" in run("--help", "prefill", "tokens").out
    assert run("--help", "plan").out.startswith("sglang-hydra plan\n  show the server that would start")
    assert "--enable-hisparse." in run("--help", "hisparse").out  # 0.5.2 has no such argument
    group = run("--help", "gpu").out
    assert "h200" in group
    assert "gpu.memory_mib" in group


def test_explain_shows_the_chain(run: Run) -> None:
    out = run("explain", "mem_fraction_static", "gpu=h200", "model=deepseek_v3", "tp_size=8").out
    assert out.startswith("mem_fraction_static = 0.886\n")
    assert "MEM001  null -> 0.886  server_args.py:" in out


def test_explain_takes_the_override_itself(run: Run) -> None:
    assert run("explain", "tp_size=2", *H200).out == run("explain", "tp_size", *H200, "tp_size=2").out.replace(
        "argument 5", "argument 2"
    )


def test_a_serve_that_is_refused_starts_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for overrides in ([*H200, "page_size=0"], [*H200, "tp_size=3"], ["gpu=h200"], [*H200, "tpsize=3"]):
        assert run("serve", *overrides).code == 2
    assert not list(tmp_path.iterdir())


# SGLang's own flags


def test_sglangs_own_flags_plan_the_same(run: Run) -> None:
    printed = run("plan", "gpu=h200", "--", "--model", "Qwen/Qwen3-8B", "--tp", "2", "--disable-cuda-graph")
    assert printed.code == 0
    assert "tp_size             2              argument 3 after --" in printed.out
    assert "disable_cuda_graph  true           argument 5 after --" in printed.out


@pytest.mark.parametrize("text", ["a${b}", "${oc.env:HOME}", "a'b\"c", "a\\", "a,b", "[1,2]", "null", "a=b", "é\n"])
def test_a_value_of_a_flag_is_taken_as_it_is(text: str, run: Run) -> None:
    words = ["--model-path", text, "--served-model-name", text, "--tokenizer-path", text]
    values = {request.key: request.value for request in requests_from_argv(words)}
    assert values == {"model_path": text, "served_model_name": text, "tokenizer_path": text}
    record = valid("plan", run("plan", "gpu=h200", "--json", "--", *words).out)
    assert record["intent"] == values
    assert [record["values"][name] for name in ("model_path", "served_model_name")] == [text, text]


def test_a_lora_adapter_of_a_flag_arrives(run: Run) -> None:
    adapter = '{"lora_name": "a b", "lora_path": "/x"}'
    record = valid(
        "plan", run("plan", *H200, "--json", "--", "--model", "Qwen/Qwen3-8B", "--lora-paths", adapter, "c=/d").out
    )
    assert record["intent"]["lora_paths"] == [{"lora_name": "a b", "lora_path": "/x"}, "c=/d"]


def test_mistakes_in_flags_are_told_as_sglang_would(run: Run) -> None:
    printed = run("plan", "--", "--model-path", "x", "--tp-size", "many", "--nope")
    assert printed.code == 2
    assert "ARG013" in printed.err
    assert "ARG010" in printed.err


def test_a_key_among_flags_is_not_shown(run: Run) -> None:
    printed = run("plan", "gpu=h200", "--", "--model", "Qwen/Qwen3-8B", "--api-key", "sekret")
    assert printed.code == 0
    assert "sekret" not in printed.out
    assert "CLI010" in printed.out
    assert "sekret" not in repr(requests_from_argv(["--model", "x", "--tp", "2"]))


# Whole processes


def serve(*words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "HF_HUB_OFFLINE": "1", **more.pop("env", {})}
    return subprocess.run([sys.executable, str(SERVE), *words], capture_output=True, env=env, timeout=250, **more)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("words", "redirected", "code"),
    [
        ("plan gpu=h200 model=gpt_oss", ">/dev/full", 3),
        ("plan --json gpu=h200 model=gpt_oss", ">/dev/full", 3),
        ("plan --json gpu=x", ">/dev/full", 2),
        ("plan gpu=x", "2>/dev/full", 2),
        ("explain MEM001", ">&-", 0),
        ("plan gpu=x", ">&- 2>&-", 2),
    ],
)
def test_an_output_that_takes_nothing_ends_in_an_exit_code(words: str, redirected: str, code: int) -> None:
    line = f"exec {shlex.quote(sys.executable)} {shlex.quote(str(SERVE))} {words} {redirected}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=250, check=False)
    assert done.returncode == code
    assert b"Traceback" not in done.stderr
    assert (b"CLI027" in done.stderr) is (code == 3)


def test_a_reader_that_has_gone_is_no_error() -> None:
    for words in (["plan", *H200], ["plan", *H200, "--json"], ["--help"], ["--help", "a"], ["--version"]):
        reader, writer = os.pipe()
        os.close(reader)
        process = subprocess.run(
            [sys.executable, str(SERVE), *words], stdout=writer, stderr=subprocess.PIPE, timeout=250, check=False
        )
        os.close(writer)
        assert process.stderr == b"", words
        assert process.returncode == 0, words


def test_a_stream_that_is_not_utf_8_is_written_to() -> None:
    env = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = serve("plan", *H200, "served_model_name=日本語", "--json", env=env)
    assert json.loads(done.stdout)["intent"]["served_model_name"] == "日本語"
    done = serve("plan", *H200, "served_model_name=日本語", env=env)
    assert b"\\u65e5\\u672c\\u8a9e" in done.stdout
    assert done.stderr == b""


def test_bytes_that_are_no_text_can_be_typed() -> None:
    done = subprocess.run(
        [
            sys.executable.encode(),
            str(SERVE).encode(),
            b"plan",
            *(word.encode() for word in H200),
            b"chat_template=\xff",
        ],
        capture_output=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0
    assert b"\\udcff" in done.stdout
    assert b"Traceback" not in done.stderr


def test_nothing_is_written_and_no_plan_needs_the_folder_that_it_runs_in(tmp_path: Path) -> None:
    done = serve("plan", *H200, cwd=tmp_path)
    assert done.returncode == 0
    assert not list(tmp_path.iterdir())
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"cd '{gone}' && rmdir '{gone}' && exec '{sys.executable}' '{SERVE}' plan gpu=h200 model=qwen3_8b"
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=250, check=False)
    assert b"Traceback" not in done.stderr


def test_an_interrupt_is_not_a_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("sglang_hydra.cli.plan.run", interrupted)
    assert run("plan") == Printed(130, "", "")


def test_a_config_folder_of_ones_own_is_searched(run: Run, tmp_path: Path) -> None:
    written(tmp_path, {"model/mine.yaml": "defaults: [qwen3_8b]\nname: mine\nmodel_path: org/mine\n"})
    printed = run("plan", "--config-dir", str(tmp_path), "gpu=h200", "model=mine")
    assert printed.code == 0
    assert "org/mine" in printed.out
    assert "mine" in run("--help", "model", "--config-dir", str(tmp_path)).out


def test_flags_behind_two_dashes_are_those_of_the_release_that_was_typed() -> None:
    others = [Request(word, "test") for word in ("engine.version=0.5.23", "model=qwen3_8b")]
    read = requests_from_argv(["--tp", "2", "--dcp-size", "2"], others)
    assert {request.key: request.value for request in read} == {"tp_size": 2, "dcp_size": 2}
    assert [request.place for request in read] == ["argument 1 after --", "argument 3 after --"]
    old = requests_from_argv(["--nsa-prefill-backend", "trtllm"], [Request("engine.version=0.5.19", "t"), others[1]])
    assert {request.key: request.value for request in old} == {"dsa_prefill_backend": "trtllm"}


def test_a_flag_that_the_release_dropped_is_refused_with_its_new_name() -> None:
    others = [Request(word, "test") for word in ("engine.version=0.5.23", "model=qwen3_8b")]
    with pytest.raises(ConfigError) as refused:
        requests_from_argv(["--disable-piecewise-cuda-graph"], others)
    (finding,) = refused.value.findings
    assert finding.hint is not None
    assert finding.hint.startswith("--cuda-graph-backend-prefill disabled")
