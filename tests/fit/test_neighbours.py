"""A server with DP attention is sized alike by each two neighbouring releases, unless allocation.json says why not."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from sglang_hydra import resolve
from sglang_hydra.arguments.layout import layout_of, names_of
from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.fit import sizing
from sglang_hydra.fit.overheads import Allocation, allocation_of
from sglang_hydra.fit.result import Fit
from sglang_hydra.fit.sizing import fit
from tests.fit.machines import catalog, gpu, model

RELEASES = ("0.5.20", "0.5.21", "0.5.22", "0.5.23")
_SPELLED = ("attention_groups", "copies")


@cache
def servers() -> dict[str, tuple[dict[str, Any], str, str]]:
    """The resolved values of each published deployment that has DP attention or whose preset could have it, with its
    GPU and its model."""
    found = {}
    for entry in catalog().values():
        for deployment in entry["deployments"]:
            later = deployment.get("flags_absent_in_0_5_2") or ()
            flags = {name: value for name, value in deployment["flags"].items() if name not in later}
            flags.pop("scheduler_recv_interval", None)
            path, on = str(flags.pop("model_path", entry["hf_id"])), deployment["gpu"]
            tp = flags.get("tp_size", 1)
            if not flags.get("enable_dp_attention") and tp > 1:
                flags |= {"dp_size": tp, "enable_dp_attention": True}
            intent = {"model_path": path, **flags, "nnodes": deployment["nodes"]}
            values = dict(resolve(intent, gpu=gpu(on), model=model(path), seed=1).values)
            if layout_of(values, "0.5.2").attention_groups > 1:
                found[deployment["id"]] = (values, on, path)
    return found


def sized_by(release: str, values: dict[str, Any], on: str, path: str) -> Fit:
    """The fit of the same layout in the arguments of ``release``."""
    layout = layout_of(values, "0.5.2")
    kept = {name: value for name, value in values.items() if not any(name in names_of(each) for each in _SPELLED)}
    groups = layout.attention_groups
    said: dict[str, Any] = {"dp_size": groups, "enable_dp_attention": True}
    if at_least(release, "0.5.22"):  # as these resolve the same words (0.5.23 arg_groups/parallel_hook.py:39-61)
        said |= {"dp_size": 1, "attn_dp_size": groups}
    return fit({**kept, **said}, gpu(on), model(path), release=release)


def sizes(found: Fit) -> tuple[Any, ...]:
    return found.weights.total, found.kv_tokens, found.replicas, found.gpus, found.kv and found.kv.slots, found.fits


def test_there_are_servers_of_many_kinds() -> None:
    assert len(servers()) >= 60
    assert len({path for _, _, path in servers().values()}) >= 20


@pytest.mark.parametrize(("older", "newer"), list(pairwise(RELEASES)))
def test_neighbours_size_alike_but_for_what_the_table_says(
    older: str, newer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: sizes(sized_by(older, *server)) for name, server in servers().items()}
    old, new = allocation_of(older), allocation_of(newer)
    changed = {name: False for name in Allocation._fields if getattr(old, name) != getattr(new, name)}
    monkeypatch.setattr(sizing, "allocation_of", lambda release: allocation_of(release)._replace(**changed))
    after = {name: sizes(sized_by(newer, *server)) for name, server in servers().items()}
    assert {name: (before[name], after[name]) for name in before if before[name] != after[name]} == {}
