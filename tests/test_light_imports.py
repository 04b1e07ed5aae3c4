"""The plan path imports nothing heavy, and ``resolve`` not even Hydra: each checked in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
HEAVY = {"torch", "transformers", "pandas", "numpy", "huggingface_hub", "sglang", "httpx", "plotly", "psutil"}
COMPOSING = {"hydra", "omegaconf", "yaml", "rich", "pynvml"}
SLOW_STDLIB = {"asyncio", "urllib.request", "http.client", "unittest", "multiprocessing"}

RESOLVE = """
from sglang_hydra import GpuFacts, ModelFacts, resolve
gpu = GpuFacts("h100", vendor="nvidia", device="cuda", memory_mib=81559, compute_capability=(9, 0), count=8)
model = ModelFacts({"architectures": ["DeepseekV3ForCausalLM"]})
assert resolve({"model_path": "m", "tp_size": 8}, gpu=gpu, model=model).ok
"""
PLAN = """
import sglang_hydra
assert sglang_hydra.plan(["gpu=h200", "model=deepseek_v3", "tp_size=8"]).launchable
"""
IN_A_BROWSER = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {missing!r}:
            raise ModuleNotFoundError(f"no module named {{name}} in a browser", name=name)
sys.meta_path.insert(0, Missing())
from sglang_hydra.cli.answers import answer
import json
made = json.loads(answer(json.dumps({{"ask": "verb", "verb": {words!r}, "stdin": "# nothing"}})))
assert "no module named" not in made["err"], made["err"]
"""
NOT_IN_A_BROWSER = ("fcntl", "termios", "resource", "ssl", "lzma", "sqlite3", "curses", "tty", "pty", "multiprocessing")
OF_EXTRAS = (
    "httpx",
    "jinja2",
    "pandas",
    "torch",
    "transformers",
    "submitit",
    "mcp",
    "sglang_hydra_ui",
    "sglang_router",
)
EVERY_VERB = """
import importlib, pkgutil, sys
finders = sys.meta_path[:]
class Without:
    def find_spec(self, name, path=None, target=None):
        found = () if name in {missing!r} else (each.find_spec(name, path, target) for each in finders)
        return next(filter(None, found), None)
sys.meta_path[:] = [Without()]
import sglang_hydra.cli
for module in pkgutil.iter_modules(sglang_hydra.cli.__path__):
    importlib.import_module(f"sglang_hydra.cli.{{module.name}}")
from sglang_hydra.cli.main import entry
sweep = ["bench", "-m", "gpu=h100", "model=qwen3_8b", "tp_size=1,2"]
assert entry([*sweep, "sweep.dry_run=true"]) == 0
assert entry(sweep) != 0
"""
COMMAND = """
from sglang_hydra.cli.main import entry
assert entry({words!r}) == 0
"""


def imported_by(program: str, folder: Path) -> set[str]:
    """The names of the modules that a program has imported at its end, and of their top-level packages."""
    ending = "\nimport sys\nprint('MODULES', *sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program + ending],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=250,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    names = set(run.stdout.rpartition("MODULES ")[2].split())
    return names | {name.partition(".")[0] for name in names}


@pytest.mark.parametrize(
    ("program", "unwanted"),
    [
        ("import sglang_hydra", HEAVY | COMPOSING | SLOW_STDLIB | {"dataclasses", "sglang_hydra.arguments.fields"}),
        ("from sglang_hydra import parse_argv; parse_argv(['--model-path', 'm'])", HEAVY | COMPOSING | SLOW_STDLIB),
        (RESOLVE, HEAVY | COMPOSING | SLOW_STDLIB),
        (PLAN, HEAVY | {"pynvml", "rich"}),
        (COMMAND.format(words=["plan", "gpu=h200", "model=deepseek_v3", "tp_size=8"]), HEAVY | {"pynvml", "rich"}),
        (COMMAND.format(words=["explain", "MEM003"]), HEAVY | {"pynvml", "rich"}),
        (COMMAND.format(words=["--help"]), HEAVY | {"pynvml", "rich"}),
    ],
    ids=["import", "parse_argv", "resolve", "plan", "plan verb", "explain verb", "help"],
)
def test_only_what_is_needed_is_imported(program: str, unwanted: set[str], tmp_path: Path) -> None:
    assert imported_by(program, tmp_path) & unwanted == set()


@pytest.mark.corpus
@pytest.mark.parametrize(
    "words",
    [
        ["plan", "gpu=h200", "model=qwen3_8b"],
        ["explain", "mem_fraction_static", "gpu=h200", "model=qwen3_8b"],
        ["explain", "MEM001"],
        ["check", "-"],
        ["fit", "gpu=h200", "model=qwen3_8b"],
        ["suggest", "model=qwen3_8b", "gpu=h200", "context=8k", "concurrency=4"],
        ["export", "shell", "gpu=h200", "model=qwen3_8b"],
        ["diff", "gpu=h200", "model=qwen3_8b", "--", "tp_size=2"],
        ["upgrade", "--to", "0.5.23", "gpu=h200", "model=qwen3_8b"],
        ["import", "-"],
        ["recipes"],
        ["diagnose", "-"],
    ],
    ids=" ".join,
)
def test_no_verb_of_the_page_imports_what_a_browser_has_not(words: list[str], tmp_path: Path) -> None:
    imported_by(IN_A_BROWSER.format(missing=NOT_IN_A_BROWSER, words=words), tmp_path)


def test_every_verb_begins_without_the_packages_of_extras(tmp_path: Path) -> None:
    """``pip install sglang-hydra`` alone: no verb ends in an ImportError, and a sweep is planned."""
    assert "sglang_hydra.cli.bench" in imported_by(EVERY_VERB.format(missing=OF_EXTRAS), tmp_path)
