"""``hydra/sweeper=sglang_tpe``: an app's multirun whose points are proposed from what the task returned."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.plans import written
from tests.run.test_app_habits import SMALL, ran

APP = """\
import hydra
import sglang_hydra


@hydra.main(version_base="1.3", config_path="configs", config_name="train")
@sglang_hydra.main
def run(plan):
    print("RAN", plan.values["tp_size"], plan.values["mem_fraction_static"])
    return RESULT


if __name__ == "__main__":
    run()
"""
SEARCH = ["-m", "hydra/sweeper=sglang_tpe", "hydra.sweeper.seed=1", "hydra.sweep.dir=swept"]


def app(folder: Path, result: str) -> Path:
    return written(folder, {**SMALL, "app.py": APP.replace("RESULT", result)})


@pytest.mark.parametrize(("direction", "best"), [("maximize", 8), ("minimize", 1)])
def test_the_best_point_is_found_and_refused_ones_are_infeasible(direction: str, best: int, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    words = ["tp_size=choice(1,3,8)", "hydra.sweeper.n_trials=4", f"hydra.sweeper.direction={direction}"]
    out, err = ran(app(tmp_path, 'plan.values["tp_size"]'), *SEARCH, *words)
    assert "RAN 3" not in out
    assert "tp_size=3: refused: 32 attention heads do not divide by 3 ranks" in err
    result = yaml.safe_load((tmp_path / "swept" / "optimization_results.yaml").read_text())
    assert result == {"name": "sglang_tpe", "best_overrides": [f"tp_size={best}"], "best_value": float(best)}


def test_numbers_are_drawn_as_hydras_own_optuna_sweeper_reads_them(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    params = "+hydra.sweeper.params.mem_fraction_static='tag(log, interval(0.5, 0.8))'"
    words = [params, "tp_size=range(1,3)", "hydra.sweeper.n_trials=5", "hydra.sweeper.n_jobs=2"]
    out, _ = ran(app(tmp_path, 'plan.values["mem_fraction_static"]'), *SEARCH, *words)
    drawn = [line.split()[1:] for line in out.splitlines() if line.startswith("RAN")]
    assert len(drawn) == 5
    assert {tp for tp, _ in drawn} <= {"1", "2"}
    assert all(0.5 <= float(fraction) <= 0.8 for _, fraction in drawn)
    assert len({fraction for _, fraction in drawn}) > 2
    again, _ = ran(tmp_path, *SEARCH, *words)
    assert [line.split()[1:] for line in again.splitlines() if line.startswith("RAN")] == drawn, "the seed is obeyed"


@pytest.mark.parametrize(
    ("result", "words", "shown"),
    [
        ("1", ["tp_size=2"], "no override varies"),
        ("None", ["tp_size=1,2"], "the task returned None, which is no number"),
        ("1", ["tp_size=3,5"], "32 attention heads do not divide"),
        ("1", ["tp_size=1,2", "hydra.sweeper.n_trials=0"], "hydra.sweeper.n_trials=0 is no whole number above 0"),
        ("1", ["tp_size=1,2", "hydra.sweeper.direction=up"], "is none of maximize, minimize"),
    ],
)
def test_what_cannot_be_searched_is_refused(result: str, words: list[str], shown: str, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    _, err = ran(app(tmp_path, result), *SEARCH, "hydra.sweeper.n_trials=2", *words, code=2)
    assert shown in err


def test_without_optuna_it_says_what_to_install(tmp_path: Path) -> None:
    hidden = 'import sys; sys.modules["optuna"] = None\nimport importlib.util as u; find = u.find_spec\n'
    hidden += 'u.find_spec = lambda name, *rest: None if name == "optuna" else find(name, *rest)\n'
    files = {**SMALL, "app.py": hidden + APP.replace("RESULT", "1")}
    _, err = ran(written(tmp_path, files), *SEARCH, "tp_size=1,2", code=3)
    assert "hydra/sweeper=sglang_tpe needs optuna" in err
    assert "pip install 'sglang-hydra[search]'" in err


def test_a_failure_of_the_task_is_raised(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    _, err = ran(app(tmp_path, "1 / 0"), *SEARCH, "tp_size=1,2", code=1)
    assert "ZeroDivisionError" in err
