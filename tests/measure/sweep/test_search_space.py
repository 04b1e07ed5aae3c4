"""InferenceX's master configurations as sweeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import PRIMARY_NAME
from sglang_hydra.measure.sweep.grid import read_grid
from sglang_hydra.measure.sweep.planning import Outcome, plan_sweep
from sglang_hydra.text.errors import ConfigError

FILE = Path(__file__).parents[2] / "data" / "sweep" / "master.yaml"


def planned(*words: str) -> Outcome:
    composer = Composer([], PRIMARY_NAME)
    requests = [Request(word, f"argument {number}") for number, word in enumerate(words, 1)]
    return plan_sweep(composer, read_grid(composer, requests), seed=1)


def loads(outcome: Outcome) -> list[tuple[int, int, int]]:
    points = [point for group in outcome.groups for point in group.points]
    return [tuple(point.workload[key] for key in ("input_len", "output_len", "concurrency")) for point in points]  # type: ignore[misc]


def test_an_entry_is_a_sweep_with_two_servers() -> None:
    outcome = planned(f"sweep.search_space={FILE}#dsr1-fp8-h200-sglang", "engine=sglang")
    assert (outcome.total, outcome.kept, outcome.starts) == (8, 8, 2), outcome.refused
    plain = [(1024, 1024, concurrency) for concurrency in (4, 8, 16, 32, 48)] + [(8192, 1024, 4), (8192, 1024, 6)]
    assert loads(outcome) == [*plain, (1024, 1024, 64)]
    assert [len(group.points) for group in outcome.groups] == [7, 1]
    shared = {request.text: request.place for request in outcome.grid.common}
    for word in ("gpu=h200", "model=deepseek-ai/DeepSeek-R1-0528", "bench.range_ratio=0.8"):
        assert shared[word] == f"{FILE}#dsr1-fp8-h200-sglang"
    (remark,) = outcome.grid.remarks
    assert remark.message == "left out of the search space: isl 1024, osl 1024: spec-decoding"


def test_attention_of_data_parallel_ranks_is_as_wide_as_the_server() -> None:
    outcome = planned(f"sweep.search_space={FILE}#dsr1-fp8-h200-sglang", "engine=sglang")
    words = {request.text for request in outcome.groups[1].requests}
    assert {"tp_size=8", "ep_size=8", "dp_size=8", "enable_dp_attention=true"} <= words


def test_later_files_have_scenarios_and_runners_have_names() -> None:
    outcome = planned(f"sweep.search_space={FILE}#gptoss-fp4-b200-sglang", "engine=sglang", "sweep.dry_run=true")
    assert {"gpu=b200", "model=openai/gpt-oss-120b"} <= {request.text for request in outcome.grid.common}
    assert outcome.total == 2


def test_what_is_typed_beats_the_file() -> None:
    entry = f"sweep.search_space={FILE}#dsr1-fp8-h200-sglang"
    outcome = planned(entry, "engine=sglang", "gpu=b200", "bench.concurrency=2")
    assert "gpu=h200" not in {request.text for request in outcome.grid.common}
    assert sorted(set(loads(outcome))) == [(1024, 1024, 2), (8192, 1024, 2)]


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("{file}", "has 2 entries for sglang: dsr1-fp8-h200-sglang, gptoss-fp4-b200-sglang"),
        ("{file}#dsr1-fp8-h100-sglang", "has no entry"),
        (
            "{file}#dsr1-fp8-b200-vllm",
            "has no point for one SGLang server: left out of the search space: it is of vllm",
        ),
        ("{folder}/none.yaml", "cannot be read"),
        ("{folder}/broken.yaml", "is no YAML"),
        ("{folder}/other.yaml", "has no entry with seq-len-configs"),
    ],
)
def test_what_is_no_search_space_is_said(tmp_path: Path, named: str, said: str) -> None:
    (tmp_path / "broken.yaml").write_text("a: [1")
    (tmp_path / "other.yaml").write_text("a: 1")
    with pytest.raises(ConfigError, match="SWP020") as caught:
        planned(f"sweep.search_space='{named.format(file=FILE, folder=tmp_path)}'")
    assert said in caught.value.findings[0].message
