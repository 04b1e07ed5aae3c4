"""No file costs more than its budget of time and 300 MiB, then a finding with the file and the limit."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from sglang_hydra.cli.invocation import read_invocation
from sglang_hydra.cli.main import is_limited
from sglang_hydra.text.budget import (
    DEPTH,
    EXPANDED,
    EXPANSIONS,
    FILE_S,
    FINDINGS,
    READERS,
    SERVER_S,
    Clock,
    allow_more,
    cpu_limit,
    read_yaml,
)
from sglang_hydra.text.budget import START_S as START_AT_S
from tests.commands import Run, runner
from tests.security.hostile_files import HOSTILE, SERVER, Hostile

CPU_S = 2.0
START_S = 1.0
"""What imports and a busy machine cost besides."""
MOST_LETTERS = 200_000
MOST_KIB = 300 << 10
SAYS_ITS_MEMORY = """
import pathlib, sys
from sglang_hydra.cli.main import entry
code = entry(sys.argv[1:])
print(*(line.split()[1] for line in pathlib.Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line),
      file=sys.stderr)
sys.exit(code)
"""
"""A command line in a process of its own that says its largest memory in KiB. getrusage would count the memory of the
process that started it as well."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


@pytest.mark.corpus
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the limit, within Hypothesis' own code
@pytest.mark.parametrize("hostile", HOSTILE, ids=[hostile.name for hostile in HOSTILE])
def test_a_hostile_file_ends_in_a_finding_within_its_budget(hostile: Hostile, tmp_path: Path, run: Run) -> None:
    file = tmp_path / hostile.name
    content = hostile.content
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    began = time.process_time()
    printed = run(*(word.format(file) for word in hostile.words.split()))
    took = time.process_time() - began
    said = " ".join((printed.out + printed.err).split())
    assert hostile.told in said
    assert "Traceback" not in said
    assert hostile.name in said or hostile.words.startswith(("diagnose", "plan"))
    assert took < CPU_S + START_S
    assert len(said) < MOST_LETTERS


@pytest.mark.thorough
def test_a_folder_of_many_files_is_one_finding(tmp_path: Path, run: Run) -> None:
    for number in range(10_001):
        (tmp_path / f"{number}.sh").write_text("x\n" if number else "")
        if number < 1_001:
            (tmp_path / f"{number}.yaml").write_text("a: 1\n")
    for ending, told in ((".sh", "it has 11002 files; at most 10000 are read"), (".yaml", "more than 1000 servers")):
        began = time.process_time()
        assert told in " ".join((printed := run("check", str(tmp_path))).out.split() + printed.err.split())
        assert printed.code == 2
        assert time.process_time() - began < CPU_S + START_S
        for file in tmp_path.glob(f"*{ending}"):
            file.unlink()


@pytest.mark.thorough
def test_a_wheel_of_many_files_is_refused_before_its_list_is_read(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "sglang-9.9.9-py3-none-any.whl"
    for number, told in ((12_001, "it has 12003 files; at most 12000 are read"), (40_000, "larger than 2 MiB")):
        with zipfile.ZipFile(file, "w") as archive:
            for name in ("METADATA", "RECORD", *map(str, range(number))):
                archive.writestr(f"sglang-9.9.9.dist-info/{name}", "")
        began = time.process_time()
        assert told in " ".join(run("release", "fetch", "--trust", str(file)).err.split())
        assert time.process_time() - began < CPU_S


@pytest.mark.thorough
def test_typed_json_is_bounded_as_that_of_a_file_is(run: Run) -> None:
    deep = "[" * 60_000
    for words in (
        ["plan", "gpu=h200", "model=qwen3_8b", f"json_model_override_args='{deep}'"],
        ["plan", "gpu=h200", "model=qwen3_8b", "--", "--json-model-override-args", deep],
        ["import", f"python -m sglang.launch_server --model-path m --json-model-override-args '{deep}'"],
    ):
        printed = run(*words)
        assert "Traceback" not in printed.err
        said = " ".join((printed.out + printed.err).split())
        assert "50 levels deep" in said or "of the processor" in said  # on a busy machine, the CPU limit comes first


def test_many_mistakes_are_counted_and_not_all_shown(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"trusted_folders: [{','.join(f'/none{number}' for number in range(9_000))}]\n")
    monkeypatch.setenv("SGLANG_HYDRA_SETTINGS", str(file))
    printed = run("plan", "gpu=h200", "model=qwen3_8b")
    assert (printed.code, "8950 more mistakes" in printed.err, len(printed.err) < MOST_LETTERS) == (2, True, True)


def test_typed_calls_are_bounded(run: Run) -> None:
    began = time.process_time()
    printed = run("plan", "gpu=h200", "model=qwen3_8b", f"tp_size={'int(' * 5_000}8{')' * 5_000}")
    assert (printed.code, "CLI003" in printed.err) == (2, True)
    assert time.process_time() - began < CPU_S


def test_many_unknown_options_end_within_the_budget(run: Run) -> None:
    began = time.process_time()
    printed = run("plan", "gpu=h200", "model=qwen3_8b", "--", *(f"--x{number}" for number in range(5_000)))
    assert time.process_time() - began < CPU_S + START_S
    assert printed.code == 2
    assert "more mistakes are not shown" in " ".join((printed.out + printed.err).split())


@pytest.mark.thorough
def test_the_memory_of_the_largest_files_is_bounded(tmp_path: Path) -> None:
    contents = {
        "records.json": f'{{"model_type": "llama", "a": [{",".join(["[]"] * 400_000)}]}}',
        "string.json": f'{{"model_type": "llama", "a": "{"[" * 9_900_000}"}}',
        "names.yaml": f"{SERVER}served_model_name: {'a' * 1_000_000}\n",
        "lines.log": "[2025-09-01 10:00:00 TP0] x\n" * 350_000,
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
        plan = ["plan", "gpu=h200", f"model.facts_from={tmp_path / name}", "model=a/b"]
        words = (
            plan if name.endswith(".json") else ["diagnose" if name == "lines.log" else "check", str(tmp_path / name)]
        )
        command = [sys.executable, "-c", SAYS_ITS_MEMORY, *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode in (0, 2, 5)
        assert "Traceback" not in done.stderr
        assert 0 < int(done.stderr.split()[-1]) < MOST_KIB


# What reads text of others without a budget: our own data, and what a process of ours answers.
_OWN = {
    "releases/reading_refusals.py": "a release's sources, whose hashes are pinned",
    "cli/completion.py": "our index",
    "cli/hydra_words.py": "our table",
    "compose/recipes.py": "our recipes",
    "convert/export/images.py": "our images",
    "convert/importing/report.py": "what it has just made",
    "convert/importing/expansion.py": "arithmetic of a line, which the script's budget bounds",
    "convert/importing/embedded_commands.py": "a list in a line, likewise",
    "compose/hydra_internals.py": "our presets; those of others are read by the budget's reader",
    "facts/declared.py": "our drafts",
    "facts/stated_config.py": "our copies of config.json",
    "measure/bench/wires.py": "what the server that we started answers, chunk by chunk",
    "measure/bench/child_prompts.py": "what its parent asks",
    "measure/bench/messages.py": "what our load processes answer",
    "measure/sweep/where.py": "an expression of a bounded length",
    "releases/child/source.py": "code of a pinned wheel",
    "releases/reasons.py": "likewise",
    "releases/parts.py": "what its parent asks",
    "releases/adopting.py": "an annotation in a wheel that the user trusted",
    "run/diagnose/server_args.py": "a value of a bounded length in a line of a log",
    "run/launch/child_srun.py": "the orders of its parent",
    "run/launch/slurm/record.py": "secrets that we left",
    "schemas/__init__.py": "our schemas",
    "text/budget.py": "the budget itself",
}


_PARSERS = {
    "json": {"load", "loads"},
    "yaml": {"load", "load_all", "safe_load", "safe_load_all", "full_load", "compose", "compose_all", "parse", "scan"},
    "OmegaConf": {"load"},
    "tomllib": {"load", "loads"},
    "ast": {"parse", "literal_eval"},
    "pickle": {"load", "loads"},
}


def _bare_parsers(tree: ast.AST) -> set[str]:
    """The parsers that a module calls itself: ``json.loads``."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {
        f"{call.value.id}.{call.attr}"
        for call in calls
        if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name)
        if call.attr in _PARSERS.get(call.value.id, ())
    }


def _is_own_data(source: str) -> bool:
    """Whether what a module parses lies beside it (``Path(__file__)``), so that nobody else wrote it."""
    return "__file__" in source or "json_beside" in source


def test_every_reader_of_others_has_a_row_of_limits() -> None:
    """A module that parses text itself reads our own data, or what a process of ours answers."""
    package = Path(sys.modules["sglang_hydra"].__file__ or "").parent
    found = {}
    for file in sorted(package.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        parsers = _bare_parsers(ast.parse(source))
        name = file.relative_to(package).as_posix()
        if parsers and not _is_own_data(source):
            found[name] = parsers
    assert {name: parsers for name, parsers in found.items() if name not in _OWN} == {}


def test_every_row_of_limits_has_a_reader() -> None:
    package = Path(sys.modules["sglang_hydra"].__file__ or "").parent
    sources = [file.read_text(encoding="utf-8") for file in package.rglob("*.py") if file.name != "budget.py"]
    unread = [reader for reader in READERS if not any(f'"{reader}"' in source for source in sources)]
    assert unread == []


def test_the_page_names_the_limits() -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    numbers = {f"{limit:,}" for limits in READERS.values() for limit in (limits.nodes, limits.items) if limit}
    assert [number for number in numbers if not any(f" {number} " in row for row in rows)] == []
    assert f"{DEPTH} levels of nesting" in page
    assert f"{FINDINGS} mistakes, {EXPANSIONS:,} interpolations, {EXPANDED:,} letters" in page


def test_where_there_is_no_timer_a_text_is_read_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pyodide's signal has ``getitimer`` and no ``setitimer``."""
    monkeypatch.delattr("signal.setitimer")
    with cpu_limit("config"):
        assert read_yaml("a: 1", "config") == {"a": 1}


def test_the_time_grows_with_the_size_the_files_and_the_pace_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for size, pace, allowed in ((0, 1.0, 1.7), (10_000_000, 1.0, 1.7), (30_000_000, 1.0, 7.7), (0, 2.0, 3.4)):
        monkeypatch.setattr(Clock, "pace", pace)
        with cpu_limit("command", size):
            assert Clock.allowed == pytest.approx(allowed)
            allow_more(FILE_S * 100)
            assert Clock.allowed == pytest.approx(allowed + 0.5 * pace)
    assert (START_AT_S, FILE_S, SERVER_S, 5 * SERVER_S) == (0.25, 0.005, 0.1, 0.5)


def test_the_timer_of_an_app_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    own = signal.signal(signal.SIGVTALRM, lambda number, frame: None)
    try:
        with cpu_limit("command"):
            assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    finally:
        signal.signal(signal.SIGVTALRM, own)
    with cpu_limit("command"):
        assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 1


def test_a_sweep_of_many_plans_has_a_limit_for_each() -> None:
    assert is_limited(read_invocation(["plan", "gpu=h200"]))
    assert not is_limited(read_invocation(["plan", "-m", "gpu=h200"]))
    assert not is_limited(read_invocation(["serve", "gpu=h200"]))
