"""What a server allocates beside weights and KV cache, against what servers logged and what the source computes."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from sglang_hydra import GpuFacts, ModelFacts, resolve
from sglang_hydra.architecture.ranks import ranks_of
from sglang_hydra.arguments.layout import layout_of
from sglang_hydra.fit.overheads import captured_sizes
from sglang_hydra.fit.result import Fit
from sglang_hydra.fit.sizing import fit
from tests.fit.machines import DATA, GIB, dense, gpu, sized

LOGS = [json.loads(line) for line in (DATA / "memory" / "public.jsonl").read_text("utf-8").splitlines()]
# Servers that logged what is free at their end, on GPUs of this capability.
ENDED = {
    "docs-qwen25-vl-7b": (9, 0),
    "ghfile-55529353766-qwen3-14b-4x4090": (8, 9),
    "ghfile-49361099215-llama31-8b-24g": (8, 9),
    "docs-llama2-7b-eagle": (9, 0),
    "ghfile-47444754202-qwen3-06b-5080": (12, 0),
    "ghfile-54815375998-qwen3-8b-276g": (10, 3),
    "ghfile-52853901169-qwen25-05b-4070tis": (8, 9),
}
EAGLE_DRAFT = ModelFacts({**dense().config, "architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 1})  # type: ignore[dict-item]
SEVERAL = {"speculative_num_steps": 3, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4}
AN_EAGLE = {"speculative_algorithm": "EAGLE", "speculative_draft_model_path": "org/draft", **SEVERAL}


def said(notes: str, name: str) -> int | None:
    found = re.search(rf"{name}=(-?\d+)", notes)
    return int(found[1]) if found else None


def logged_end(row: dict[str, Any]) -> float:
    """Free memory after the start, in GiB, before the graphs that 0.5.2 does not make."""
    end = re.search(r"available_gpu_mem=([\d.]+)", row["notes"])
    later = re.search(r"piecewise graphs \(([\d.]+) GB\)", row["notes"])
    assert end is not None
    return float(end[1]) + (float(later[1]) if later else 0.0)


@pytest.mark.parametrize("name", ENDED)
def test_what_is_free_at_the_end_of_a_start_is_within_the_error_bar(name: str) -> None:
    row = next(row for row in LOGS if row["id"] == name)
    notes, free = row["notes"], row["avail_before_load_gb"]
    arguments = {**(row["args"] or {}), "model_path": "org/model", "max_total_tokens": row["kv_tokens"]}
    arguments |= {"mem_fraction_static": 0.98}  # the pool is as large as the log says
    for argument, word in (("context_length", "context_len"), ("max_running_requests", "max_running_requests")):
        if said(notes, word):
            arguments[argument] = said(notes, word)
    if name.startswith("docs-"):
        arguments["cuda_graph_max_bs"] = 4  # the harness of the documentation
    machine = GpuFacts("the log's", "nvidia", "cuda", (free + 1) * 1024, ENDED[name], 8, flashinfer=True)
    facts = ModelFacts(row["hf_config"])
    values = resolve(arguments, gpu=machine, model=facts, seed=1).values
    draft = {**row["hf_config"], "architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 1}
    fitted = fit(values, machine, facts, draft=ModelFacts(draft), free_gib=free)
    assert fitted.left is not None
    assert fitted.error is not None
    assert fitted.activations is not None
    at_start = (fitted.left + fitted.activations.mid) / GIB  # nothing was served yet
    assert abs(at_start - logged_end(row)) <= fitted.error / GIB


def parts_of(fitted: Fit) -> float:
    assert fitted.kv is not None
    assert fitted.kv.size is not None
    ranges = (fitted.before_loading, fitted.draft, fitted.libraries, fitted.graphs, fitted.activations)
    sizes = (fitted.reserved, fitted.weights.total, fitted.lora, fitted.kv.size, fitted.kv.state)
    tables = (fitted.request_table, fitted.workspace, fitted.left)
    return sum(one.mid for one in ranges if one) + sum(size or 0.0 for size in (*sizes, *tables))


@pytest.mark.parametrize(
    ("facts", "arguments", "options"),
    [
        ("deepseek_v3", {"tp_size": 8}, {}),
        ("deepseek_v3", {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True, "moe_a2a_backend": "deepep"}, {}),
        ("qwen3_next_80b_a3b", {"tp_size": 4}, {}),
        ("llama_3_1_8b", {}, {"reserved_gib": 10.0}),
        ("qwen2_5_vl_7b", {"page_size": 16}, {}),
    ],
)
def test_the_parts_add_up_to_the_memory_of_the_gpu(
    facts: str, arguments: dict[str, Any], options: dict[str, Any]
) -> None:
    fitted = sized("h200", facts, arguments, **options)
    assert parts_of(fitted) == pytest.approx(fitted.memory, rel=1e-9)


def test_the_states_of_requests_are_those_of_convolution_and_of_delta_rule() -> None:
    arguments = {"tp_size": 4, "max_mamba_cache_size": 100}
    fitted = sized("h200", "qwen3_next_80b_a3b", arguments)
    assert fitted.kv is not None
    # 36 layers; per GPU 4 of 16 key heads and 8 of 32 value heads of 128: three columns of the convolution in bfloat16,
    # and 128 x 128 in float32 for each value head (mem_cache/memory_pool.py MambaPool).
    each = 36 * ((2 * 4 * 128 + 8 * 128) * 3 * 2 + 8 * 128 * 128 * 4)
    assert fitted.kv.state == each * 100
    assert sized("h200", "qwen3_next_80b_a3b", {**arguments, "max_mamba_cache_size": 200}).kv_tokens < fitted.kv_tokens  # type: ignore[operator]


def test_the_aiter_backend_keeps_partial_results_of_every_request() -> None:
    arguments = {"max_running_requests": 64, "context_length": 2560}
    fitted = sized("mi300x", dense(), arguments)
    assert fitted.workspace == 64 * 8 * 10 * (128 + 2) * 4.0


def test_expert_buffers_are_there_only_with_deepep() -> None:
    spread = {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}
    without, with_buffers = (
        sized("h200", "deepseek_v3", {**spread, "moe_a2a_backend": backend}) for backend in (None, "deepep")
    )
    assert without.libraries is not None
    assert with_buffers.libraries is not None
    # 256 experts, 128 tokens of each rank, two messages of 7168 in bfloat16 sent and received (DeepEP csrc/config.hpp).
    assert with_buffers.libraries.mid - without.libraries.mid == pytest.approx(
        10 * 8 * 256 * (7168 * 2 + 128 * 12 + 128 * 4) + 4 * 256 * 128 * (16 + 2 * 7168), rel=1e-6
    )


@pytest.mark.parametrize(
    ("values", "sizes"),
    [
        ({"disable_cuda_graph": True}, ()),
        ({"cuda_graph_bs": [1, 3, 9]}, (1, 3, 9)),
        ({"cuda_graph_max_bs": 8}, (1, 2, 4, 8)),
        ({"cuda_graph_max_bs": 8, "enable_two_batch_overlap": True}, (2, 4, 8)),
        ({"cuda_graph_max_bs": 24, "tp_size": 8, "moe_a2a_backend": "deepep"}, (8, 16, 24)),
    ],
)
def test_the_batch_sizes_of_graphs_are_those_that_the_ranks_share_evenly(
    values: dict[str, Any], sizes: tuple[int, ...]
) -> None:
    layout = layout_of(values, "0.5.2")
    assert captured_sizes(values, layout, gpu("h100"), ranks_of(layout, shares_attention=True), 4096) == sizes


def test_a_draft_is_captured_apart() -> None:
    arguments = {"max_total_tokens": 1000, "cuda_graph_bs": [1, 2, 4]}
    alone, drafted = (
        sized("h100", dense(), arguments),
        sized("h100", dense(), {**arguments, **AN_EAGLE}, draft=EAGLE_DRAFT),
    )
    assert alone.graphs is not None
    assert drafted.graphs is not None
    assert drafted.graphs.low - alone.graphs.low > 2 * 0.03 * GIB


def test_the_error_bar_is_that_of_independent_parts() -> None:
    fitted = sized("h100", "qwen3_32b")
    ranges = (fitted.free, fitted.draft, fitted.libraries, fitted.graphs, fitted.activations)
    spread = [(one.high - one.low) / 2 for one in ranges if one is not None]
    assert fitted.error == pytest.approx(math.hypot(fitted.weights.error or 0.0, *spread))


def test_a_measured_gpu_narrows_the_error_bar() -> None:
    estimated, measured = sized("h100", "qwen3_32b"), sized("h100", "qwen3_32b", free_gib=78.0)
    assert estimated.error is not None
    assert measured.error is not None
    assert measured.error < estimated.error


def test_every_part_names_its_source() -> None:
    fitted = sized("h200", "deepseek_v3", {"tp_size": 8})
    parts = set(fitted._fields) & set(fitted.sources)
    assert parts
    assert all(fitted.sources.values())
