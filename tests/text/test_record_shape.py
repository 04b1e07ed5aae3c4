"""Records that are read back are held against their own JSON Schemas."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_hydra.text.record_shape import misfit

POINT = {"server_id": "a", "workload_id": "b", "repeat": 1, "words": ["tp_size=2"]}
SEEN = {"owner": "ours", "why_unseen": None, "version": "0.5.2", "same": 2, "of": 2, "absent": 0, "differences": []}


def result(**more: Any) -> dict[str, Any]:
    return {**POINT, "state": "valid", "reasons": [], "measures": {"goodput": None, "other": 1}, **more}


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (result(), None),
        (result(actual={**SEEN, "servers": {"prefill 0": SEEN}}), None),
        (result(actual={"owner": "outside"}, of_a_later_release=[1]), None),
        (
            result(actual={**SEEN, "servers": {"prefill 0": {**SEEN, "same": "2"}}}),
            "actual.servers.prefill 0.same is '2'",
        ),
        (result(measures={"ttft_ms": {"p50": True}}), "measures.ttft_ms.p50 is True"),
        (result(measures={"output_throughput": 1e301}), "measures.output_throughput is 1e+301"),
        (result(state=None), "state is None"),
        ([], "it is []"),
        ({"state": "valid"}, "reasons is missing"),
    ],
    ids=str,
)
def test_the_first_thing_that_does_not_fit_is_named(record: Any, said: str | None) -> None:
    assert misfit("result", record, {"": ("state", "reasons", "measures")}) == said


def test_what_a_reader_needs_may_stand_in_each_object_of_a_table() -> None:
    needed = {"steps.*": ("words",)}
    assert misfit("search", {"steps": {"a": POINT, "b": {"repeat": 1}}}, needed) == "steps.b.words is missing"
    assert misfit("search", {"steps": {"a": POINT}}, needed) is None
