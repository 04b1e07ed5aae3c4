"""The notebook in examples/notebook, run from its first cell to its last; what it shows of plans and results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sglang_hydra

ROOT = Path(__file__).parents[2]
SWEEP = ROOT / "tests" / "data" / "made_by_first_build" / "finished_sweep"
H200 = ["gpu=h200", "model=qwen3_8b"]


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning", "ignore::ResourceWarning")
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("pandas")
    monkeypatch.setenv("SWEEP", str(SWEEP))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook: Any = nbformat.read(ROOT / "examples" / "notebook" / "plans.ipynb", as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3", resources=resources).execute()
    shown, compared, measured = (cell.outputs[-1].data for cell in notebook.cells[2:])
    assert "can be launched" in shown["text/html"]
    assert "<td>tp_size</td><td>2</td><td>app: the config that plan was given</td>" in shown["text/html"]
    assert "'tp_size': (2, 4)" in compared["text/plain"]
    assert "output_throughput" in measured["text/html"]


def test_a_plan_that_cannot_be_launched_shows_its_findings_and_no_command() -> None:
    html = sglang_hydra.plan([*H200, "tp_size=3", "served_model_name='<b>'"])._repr_html_()
    assert "cannot be launched" in html
    assert "CFG004" in html
    assert "&lt;b&gt;" in html
    assert "<pre>" not in html


def test_results_are_a_frame_with_a_row_for_each_point() -> None:
    pytest.importorskip("pandas")
    frame = sglang_hydra.results(SWEEP)
    assert len(frame) == len(list((SWEEP / "points").iterdir()))
    assert set(frame["state"]) <= {"valid", "invalid", "failed", "open"}
    assert frame["output_throughput"].notna().any()
    assert set(frame["model"]) == {str(frame["model"][0])}
    assert set(frame["hw"]) == {"cpu"}
    assert set(frame["framework"] + " " + frame["release"]) == {"sglang 0.5.2"}
    assert {"gpus", "tp", "conc", "isl", "osl", "mean_ttft_ms", "p95_itl_ms", "std_e2e_latency_ms"} < set(frame)
    assert frame["median_ttft_ms"].notna().any()
    assert list(frame.columns[frame.columns.str.contains("_x$|_y$")]) == []
