"""The layout, held against the groups that the code of every release forms for random sizes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.arguments.layout import Layout, layout_of
from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.releases import wheels
from sglang_hydra.releases.records import record_of, records

pytestmark = pytest.mark.registry

CASES = 200
CHILD = Path(__file__).with_name("release_groups.py")
READ = [
    f"sglang/srt/{file}"
    for file in (
        "distributed/parallel_state.py",
        "layers/dp_attention.py",
        "runtime_context.py",
        "arg_groups/parallel_hook.py",
    )
]
UNSET = {
    "tp_size": 1,
    "pp_size": 1,
    "dp_size": 1,
    "attn_dp_size": 1,
    "attn_cp_size": 1,
    "dcp_size": 1,
    "ep_size": 1,
    "moe_dp_size": 1,
    "enable_dp_attention": False,
    "shared_experts_tp_size": None,
}


NAMES = {
    "attention_contexts": "attn_cp_size",
    "decode_contexts": "dcp_size",
    "experts": "ep_size",
    "expert_groups": "moe_dp_size",
}


def random_values(version: str, draw: random.Random) -> dict[str, Any]:
    """Sizes that a server of this release can have, by its own names; those of DP attention also as they were typed
    before 0.5.22."""
    tp, wanted = draw.choice((1, 2, 4, 6, 8, 12, 16)), dict[str, int]()
    left = tp
    for meaning, since in (("attention_groups", "0.5.2"), ("attention_contexts", "0.5.9")):
        if at_least(version, since) and draw.random() < 0.6:
            wanted[meaning] = draw.choice([size for size in range(1, left + 1) if left % size == 0])
            left //= wanted[meaning]
    shared = tp
    for meaning, since in (("expert_groups", "0.5.9"), ("experts", "0.5.2")):
        if at_least(version, since) and draw.random() < 0.6:
            wanted[meaning] = draw.choice([size for size in range(1, shared + 1) if shared % size == 0])
            shared //= wanted[meaning]
    if at_least(version, "0.5.15") and draw.random() < 0.4:
        wanted["decode_contexts"] = draw.choice([size for size in range(1, tp + 1) if tp % size == 0])
    if wanted.get("attention_groups", 1) == 1:
        wanted.pop("attention_groups", None)
    values: dict[str, Any] = {"tp_size": tp, "pp_size": draw.choice((1, 1, 2, 3))}
    values |= {NAMES[meaning]: size for meaning, size in wanted.items() if meaning in NAMES}
    if "attention_groups" in wanted and at_least(version, "0.5.22") and draw.random() < 0.5:
        values["attn_dp_size"] = wanted["attention_groups"]
    elif "attention_groups" in wanted:
        values |= {"dp_size": wanted["attention_groups"], "enable_dp_attention": True}
    return {**UNSET, **values}


def sizes_of(groups: dict[str, list[list[int]]], stages: int) -> dict[str, int]:
    """What the groups of one copy are as a layout; each rank is in one group of each kind."""
    world = sorted(rank for group in groups["_TP"] for rank in group)
    for name, found in groups.items():
        assert sorted(rank for group in found for rank in group) == world, name
        assert len({len(group) for group in found}) == 1, name
    size = {name: len(found[0]) for name, found in groups.items()}
    return {
        "tp": size["_TP"],
        "stages": size["_PP"],
        "attention": size["_ATTN_TP"],
        "attention_contexts": size.get("_ATTN_CP", 1),
        "attention_groups": len(groups["_ATTN_TP"]) // stages // size.get("_ATTN_CP", 1),
        "decode_contexts": size.get("_DCP", 1),
        "experts": size["_MOE_EP"],
        "expert_slices": size["_MOE_TP"],
        "expert_groups": len(groups["_MOE_EP"]) // stages // size["_MOE_TP"],
    }


def read_here(layout: Layout) -> dict[str, int]:
    names = ("tp", "stages", "attention", "attention_contexts", "attention_groups", "decode_contexts")
    return {name: getattr(layout, name) for name in (*names, "experts", "expert_slices", "expert_groups")}


def folder_of(version: str) -> Path:
    record = record_of(version)
    assert record is not None
    place = wheels.place_of(record.wheel) or wheels.fetch(record)[record.wheels.index(record.wheel)]
    wheels.complete(record, {place.resolve(): READ})  # a fetch brings what arguments are made with, and no more
    return place


def groups_in(folder: Path, cases: list[dict[str, Any]]) -> list[tuple[dict[str, list[list[int]]], dict[str, Any]]]:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(CHILD)],
        input=json.dumps({"folder": str(folder), "cases": cases}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[tuple[dict[str, list[list[int]]], dict[str, Any]]] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize("version", list(records()))
def test_the_layout_is_that_of_the_releases_own_groups(version: str) -> None:
    draw = random.Random(version)
    cases = [random_values(version, draw) for _ in range(CASES)]
    differing = [
        (values, theirs, ours)
        for typed, (groups, resolved) in zip(cases, groups_in(folder_of(version), cases), strict=True)
        for values in (typed, resolved)
        if (theirs := sizes_of(groups, values["pp_size"])) != (ours := read_here(layout_of(values, version)))
    ]
    assert differing[:3] == []
