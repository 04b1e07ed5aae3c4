"""``sglang_hydra.server_args`` against both releases' own argument class: they take it, as its flags."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import sglang_hydra
from sglang_hydra.facts.tiny import ensure_tiny

ENVIRONMENT = {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
CASES = (
    (),
    ("tp_size=2", "mem_fraction_static=0.5", "enable_metrics=true", "page_size=16"),
    ("lora_paths=['one=/a']", "max_loras_per_batch=2"),
    ("json_model_override_args='{\"max_position_embeddings\": 64}'", "context_length=32"),
    ("cuda_graph_max_bs=8", "served_model_name=x y", "disable_radix_cache=true"),
)
"""Overrides. The last ones are 0.5.2's names: 0.5.23 has another for one of them, and refuses it."""


@pytest.mark.parametrize("fixture", ["sglang_python", "sglang_0_5_23_python"])
def test_the_installed_release_takes_them_and_they_mean_what_its_flags_mean(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    python = str(request.getfixturevalue(fixture))
    ensure_tiny()
    asked = []
    for case in CASES:
        words = ["gpu=cpu", "model=tiny", "random_seed=7", f"engine.python={python}", *case]
        made = sglang_hydra.plan(words)
        if not made.ok:
            with pytest.raises(sglang_hydra.ConfigError, match="cuda_graph_max_bs"):
                sglang_hydra.server_args(words)
            continue
        asked.append({"argv": made.as_argv(), "kwargs": sglang_hydra.server_args(words), "config": None})
    assert len(asked) >= len(CASES) - 1
    run = subprocess.run(
        [python, str(Path(__file__).with_name("ask_bridges.py"))],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **ENVIRONMENT},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    for answer in map(json.loads, run.stdout.splitlines()):
        answer["argv"].pop("_launch_command", None)  # the command line itself, which keyword arguments have not
        assert answer["argv"] == answer["kwargs"]
        assert len(answer["kwargs"]) > 200, "every field of the release was compared"
