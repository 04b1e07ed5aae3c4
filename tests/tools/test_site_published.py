"""What the site's build refuses to publish: each rule over a pair that breaks it, and over none that does not."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).resolve().parents[2] / "site" / "published.py"
_spec = importlib.util.spec_from_file_location("site_published", FILE)
assert _spec is not None
assert _spec.loader is not None
published = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(published)

LOAD = "32 requests of 8,192 tokens"
BEST: dict[str, Any] = {
    "gpus": 4,
    "holds": ["many"],
    "exact": True,
    "nodes": 1,
    "weights": None,
    "format": "none",
    "findings": [["warning", "FIT003"]],
    "commands": [["", "python -m sglang.launch_server --tp-size 4"]],
    "load": LOAD,
    "title": f"a/b on h100: 4 GPUs hold {LOAD}",
}
OTHER = {"weights": "x/B-AWQ", "changed": ["model_path=x/B-AWQ"]}
HEAD = "python -m sglang.launch_server --nnodes 2 --node-rank 0 --dist-init-addr HEAD:PORT"
ROWS: list[tuple[dict[str, Any], str, str]] = [
    ({}, "nvidia", ""),
    ({"findings": [["error", "RUN021"]]}, "nvidia", "RUN021 stops it"),
    ({"findings": [["warning", "RUN007"]]}, "nvidia", "RUN007 stops it"),
    (
        {"format": "modelopt", "weights": "n/B-NVFP4", "title": f"a/b: 4 GPUs hold {LOAD}, n/B-NVFP4"},
        "amd",
        "NVFP4 on amd",
    ),
    ({"format": "fp8"}, "huawei", "FP8 on huawei"),
    ({"changed": ["kv_cache_dtype=fp8_e4m3"]}, "habana", "FP8 on habana"),
    ({"format": "fp8"}, "amd", ""),
    (OTHER, "nvidia", "the title hides x/B-AWQ"),
    ({**OTHER, "title": f"a/b on h100: 4 GPUs hold {LOAD}, with model_path=x/B-AWQ"}, "nvidia", ""),
    ({"commands": []}, "nvidia", "no command"),
    ({"nodes": 2, "commands": [["node 0", "python --nnodes 2 --tp-size 4"]]}, "nvidia", "without --node-rank"),
    ({"nodes": 2, "commands": [["node 0", HEAD], ["HEAD:PORT is an address", ""]]}, "nvidia", ""),
    ({"title": "a/b on h100: 4 GPUs serve it"}, "nvidia", "the title does not say 4 GPUs"),
    ({"gpus": 8, "title": f"a/b on h100: 8 GPUs hold {LOAD}"}, "nvidia", "its table says [4], the title 8"),
    ({"holds": []}, "nvidia", "does not hold the load"),
]


@pytest.mark.parametrize(("changes", "vendor", "says"), ROWS)
def test_each_rule_finds_what_breaks_it_and_nothing_else(changes: dict[str, Any], vendor: str, says: str) -> None:
    best = {**BEST, **changes}
    counts = [{"gpus": 2, "holds": []}, {"gpus": 4, "holds": ["many"]}]
    pair = {"model": "b", "gpu": "h100", "path": "a/b", "counts": counts, "fewest": {"many": best, "one": None}}
    found = published.broken(pair, vendor)
    assert (says in " ".join(found)) if says else found == []


def test_an_estimate_counts_for_nothing_where_the_release_refused_the_same_weights() -> None:
    refused = {"gpus": 2, "holds": [], "findings": [["error", "REL010"]]}
    pair = {"model": "b", "gpu": "h100", "path": "a/b", "counts": [refused, {"gpus": 4, "holds": ["many"]}]}
    estimate = {**BEST, "exact": False, "title": f"a/b on h100: 4 GPUs may hold {LOAD}"}
    assert "was not asked" in published.broken({**pair, "fewest": {"many": estimate}}, "nvidia")[0]
    assert published.broken({**pair, "fewest": {"many": BEST}}, "nvidia") == []
