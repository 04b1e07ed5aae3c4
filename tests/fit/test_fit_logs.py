"""The comparison with real servers' logs: it holds on the public ones, and it notices what is off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fit.machines import DATA, REPOSITORY

PUBLIC = DATA / "memory" / "public.jsonl"
FURTHER = DATA / "memory" / "further.jsonl"
RECENT = DATA / "memory" / "recent.jsonl"
LATER = DATA / "memory" / "later.jsonl"
UNSEEN = DATA / "memory" / "unseen.jsonl"
FRESH = DATA / "memory" / "fresh.jsonl"


@pytest.fixture(scope="module")
def tool() -> Any:
    import importlib.util

    spec = importlib.util.spec_from_file_location("fit_logs", REPOSITORY / "tools" / "fit_logs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(identity: str) -> dict[str, Any]:
    rows = [json.loads(line) for line in PUBLIC.read_text(encoding="utf-8").splitlines()]
    return next(entry for entry in rows if entry["id"] == identity)


def written(path: Path, *rows: Any) -> str:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in rows), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("file", [PUBLIC, FURTHER, RECENT, LATER, UNSEEN, FRESH], ids=lambda file: file.stem)
def test_public_logs_are_predicted_within_the_bounds(tool: Any, capsys: pytest.CaptureFixture[str], file: Path) -> None:
    assert tool.main([str(file)]) == 0
    printed = capsys.readouterr().out
    assert "WRONG" not in printed
    assert printed.rstrip().endswith("within the bounds")


@pytest.mark.parametrize("file", [PUBLIC, FURTHER, RECENT, LATER, UNSEEN, FRESH], ids=lambda file: file.stem)
def test_every_row_is_compared_and_unscored_ones_are_said_to_be(tool: Any, file: Path) -> None:
    rows = tool.read_rows(file)
    comparisons = [item for entry in rows for item in tool.compare(entry)]
    for entry in rows:
        scored = {item.quantity for item in comparisons if item.row == entry["id"] and item.scored}
        assert scored == set(entry["scored"])


def test_a_checkpoint_without_a_public_config_is_unknown(tool: Any) -> None:
    rows = [entry for entry in tool.read_rows(UNSEEN) if "config_file" not in entry and entry["hf_config"] is None]
    predicted = {item.predicted for entry in rows for item in tool.compare(entry)}
    assert (len(rows), predicted) == (10, {None, "unknown"})


@pytest.mark.parametrize(
    ("change", "quantity"),
    [
        ({"weights_gb_per_gpu": 8.0}, "weights"),
        ({"derived_bytes_per_token": 41500.0}, "bytes_per_token"),
        ({"kv_tokens": 300500}, "kv_tokens"),
        ({"outcome": "oom_kv"}, "verdict"),
    ],
)
def test_a_log_that_says_otherwise_is_out_of_bounds(
    tool: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], quantity: str
) -> None:
    changed = {**row("ghfile-55529353766-qwen3-14b-4x4090"), **change}
    assert tool.main([written(tmp_path / "logs.jsonl", changed)]) == 1
    wrong = [line.split()[1] for line in capsys.readouterr().out.splitlines() if "WRONG" in line]
    assert wrong == [quantity]


def test_a_median_of_weights_above_one_percent_is_out_of_bounds(
    tool: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = row("ghfile-55529353766-qwen3-14b-4x4090")
    assert tool.main([written(tmp_path / "logs.jsonl", {**entry, "weights_gb_per_gpu": 7.2})]) == 1
    assert "the median is above 1%" in capsys.readouterr().out


def test_what_cannot_be_predicted_is_wrong_where_it_is_scored(tool: Any) -> None:
    unknown = {**row("ghfile-55529353766-qwen3-14b-4x4090"), "hf_config": None}
    assert {item.right for item in tool.compare(unknown) if item.quantity == "weights"} == {False}


def test_an_unknown_verdict_is_not_right(tool: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unknown = {**row("docs-llama2-7b-eagle"), "scored": ["verdict"]}
    arguments = {
        **unknown["args"],
        "speculative_algorithm": "STANDALONE",
        "speculative_draft_model_path": "org/small",
    }
    assert tool.main([written(tmp_path / "logs.jsonl", {**unknown, "args": arguments})]) == 1
    (verdict,) = [line for line in capsys.readouterr().out.splitlines() if line.split()[1:2] == ["verdict"]]
    assert verdict.split()[2:5] == ["unknown", "ok", "WRONG"]
    assert "config.json of the draft model" in verdict


@pytest.mark.parametrize("algorithm", ["EAGLE", "EAGLE3"])
def test_a_draft_that_is_assumed_stated_or_published_is_taken_and_said(tool: Any, algorithm: str) -> None:
    entry = row("docs-llama2-7b-eagle")
    named = {"speculative_draft_model_path": "org/draft", "speculative_algorithm": algorithm}
    unknown = {**entry, "args": {**entry["args"], **named}}
    stated = {**entry["hf_config"], "architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 1}
    stated = {**unknown, "draft_hf_config": stated}
    for changed, chosen in ((unknown, "one layer of the target"), (stated, ""), (entry, "")):
        (verdict,) = [item for item in tool.compare(changed) if item.quantity == "verdict"]
        assert (verdict.predicted, verdict.right) == ("fits", True)
        assert chosen in verdict.chosen
        assert bool(verdict.chosen) is bool(chosen)


def test_the_page_of_measured_memory_is_what_the_code_says() -> None:
    from tools import measured_page

    assert measured_page.PAGE.read_text(encoding="utf-8") == measured_page.page(), "stale: make generate"


def test_sixty_logs_of_2026_have_their_source_and_release(tool: Any) -> None:
    rows = [entry for file in (PUBLIC, FURTHER, RECENT, LATER) for entry in tool.read_rows(file)]
    of_2026 = [entry for entry in rows if str(entry.get("date") or "").startswith("2026")]
    assert len(of_2026) >= 60
    assert len({entry["id"] for entry in rows}) == len(rows)
    for entry in (*tool.read_rows(RECENT), *tool.read_rows(LATER)):
        assert entry["source_url"], entry["id"]
        assert entry["gpu"] is not None, entry["id"]
    assert len({entry["id"] for entry in rows}) == len(rows)


def test_a_row_has_the_pools_of_its_release(tool: Any) -> None:
    entry = next(item for item in tool.read_rows(RECENT) if item["id"] == "ghfile-70267455292-deepseek-v4-flash-0.5.12")
    found = {}
    for version in ("0.5.12", "0.5.23"):
        changed = {**entry, "sglang_version": version}
        found[version] = {item.quantity: item.predicted for item in tool.compare(changed)}["bytes_per_token"]
    assert found["0.5.12"] == pytest.approx(15955.85)
    assert found["0.5.23"] < 8000
    assert tool.release_of({"sglang_version": "commit abc"}) is None
    assert tool.release_of({"sglang_version": "0.4.6"}) is None
    assert tool.release_of({"sglang_version": None, "release_by_date": "0.5.20"}) == "0.5.20"


def test_states_that_a_later_version_counts_elsewhere_are_left_out_only_as_the_log_says(tool: Any) -> None:
    entry = row("ghfile-55529353766-qwen3-14b-4x4090")
    config = json.loads((DATA / "catalog" / "models.json").read_text("utf-8"))["models"]["qwen3_next_80b_a3b"]["config"]
    arguments = {**entry["args"], "max_mamba_cache_size": 64}
    hybrid = {**entry, "hf_config": config, "args": arguments}
    (with_states,) = tool._tokens({**hybrid, "kv_tokens": 1}, True)
    (without,) = tool._tokens({**hybrid, "kv_tokens": 10**9}, True)
    assert with_states.chosen == ""
    assert without.chosen == "states counted elsewhere, as the log"
    assert with_states.predicted < without.predicted


@pytest.mark.parametrize(("gpu", "usual", "other"), [("B300", 576, 656), ("H200", 656, 576)])
def test_the_rows_of_sparse_attention_in_fp8_are_those_of_the_log(tool: Any, gpu: str, usual: int, other: int) -> None:
    rows = [json.loads(line) for line in FURTHER.read_text(encoding="utf-8").splitlines()]
    entry = next(item for item in rows if item["id"] == "flashinfer-pr-3300-deepseek-v3.2")
    for latent, chosen in ((usual, ""), (other, f"rows of {other} bytes, as the log")):
        changed = {**entry, "gpu": gpu, "derived_bytes_per_token": 61 * (latent + 132)}
        (found,) = [item for item in tool.compare(changed) if item.quantity == "bytes_per_token"]
        assert (found.right, found.chosen) == (True, chosen)


def test_the_pipeline_stage_that_the_log_decides_is_said(tool: Any) -> None:
    entry = row("ghfile-55529353766-qwen3-14b-4x4090")
    changed = {**entry, "args": {**entry["args"], "pp_size": 2}, "weights_gb_per_gpu": 3.5}
    (weights,) = [item for item in tool.compare(changed) if item.quantity == "weights"]
    assert weights.chosen == "stage 1 of 2, as the log"
    lines, _ = tool.summary([weights])
    assert lines[-1] == f"of these 1 with a choice: {entry['id']} weights"


def test_a_pool_for_sliding_windows_is_chosen_by_the_log_only_where_the_row_is_silent(tool: Any) -> None:
    entry = row("ghfile-55529353766-qwen3-14b-4x4090")
    layers = ["sliding_attention"] * 39 + ["full_attention"]
    config = {**entry["hf_config"], "architectures": ["Gemma2ForCausalLM"], "layer_types": layers}
    found = {}
    for stated in (None, True, False):
        arguments = {**entry["args"], **({} if stated is None else {"disable_hybrid_swa_memory": stated})}
        (item,) = tool._tokens({**entry, "hf_config": config, "args": arguments, "kv_tokens": 10**9}, True)
        found[stated] = (item.predicted, bool(item.chosen))
    assert found[None] == (found[False][0], True)
    assert found[True][0] < found[False][0]
    assert not found[True][1]
    assert not found[False][1]


def test_a_config_that_cannot_be_read_is_wrong_with_the_field_named(tool: Any) -> None:
    entry = row("ghfile-55529353766-qwen3-14b-4x4090")
    broken = {**entry, "hf_config": {**entry["hf_config"], "hidden_size": "many"}}
    (first, *_) = tool.compare(broken)
    assert first.right is False
    assert "hidden_size is 'many'" in first.note


def test_json_holds_every_comparison(tool: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main([str(PUBLIC), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["good"] is True
    assert len(printed["rows"]) > 24


@pytest.mark.parametrize("content", ["{", "[]\n", None])
def test_a_file_that_is_no_log_ends_with_2(
    tool: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    file = tmp_path / "logs.jsonl"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    assert tool.main([str(file)]) == 2
    assert "logs.jsonl" in capsys.readouterr().err
