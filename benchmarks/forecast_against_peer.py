"""Our forecast beside aiconfigurator's, on the same published measurements of SGLang.

    pip install aiconfigurator-core==0.12.0 numpy scipy      # Python 3.11 to 3.13, 115 MB
    python benchmarks/forecast_against_peer.py

Ours is fitted without the family of models that a row is of (tools/fit_forecast.py); the peer brings tables of kernels
of the very models. Rows are those of sglang_hydra/fit/forecast_measured.jsonl.gz that the peer has data for; how many
it has none for is printed. The peer schedules as its own search does: the batch is the concurrency, and a step takes as
many tokens of prompts as fit into 8,192. Prints errors of TPOT and TTFT in percent, pairs of layouts whose order is
right, and what the layout that is thought best costs beside the best.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from fit_forecast import Data, Held, hold_out, ranking, read_table, summary

MODELS = {
    "deepseek_r1": "deepseek-ai/DeepSeek-R1",
    "qwen3_5_397b": "Qwen/Qwen3.5-397B-A17B",
    "qwen3_5_397b_nvfp4": "Qwen/Qwen3.5-397B-A17B",
    "qwen3_235b_a22b": "Qwen/Qwen3-235B-A22B-FP8",
    "qwen3_32b": "Qwen/Qwen3-32B",
    "llama_3_1_8b": "meta-llama/Llama-3.1-8B-Instruct",
    "glm_5_fp8": "zai-org/GLM-5-FP8",
    "glm_5_nvfp4": "nvidia/GLM-5-NVFP4",
}
"""The peer's names of the presets."""
PROMPT_TOKENS = 8192
MIN_PAIR = 2


class Answer(NamedTuple):
    tpot_ms: float
    ttft_ms: float


class Peer:
    """aiconfigurator_core, with its tables of each GPU class loaded once."""

    def __init__(self) -> None:
        from aiconfigurator_core.sdk import perf_database

        self._tables = perf_database
        self._loaded: dict[str, Any] = {}
        self._models: dict[Any, Any] = {}

    def answer(self, words: Sequence[str], demand: Any) -> Answer:
        """Raises whatever the peer raises for what it has no data for."""
        from aiconfigurator_core.sdk.config import RuntimeConfig

        given = dict(word.split("=", 1) for word in words)
        system = f"{given['gpu']}_sxm"
        if system not in self._loaded:
            version = self._tables.get_latest_database_version(system, "sglang")
            self._loaded[system] = self._tables.get_database(system, "sglang", version, database_mode="HYBRID")
        key = (system, *(word for word in words if not word.startswith(("gpu=", "max_", "disable_"))))
        if key not in self._models:
            self._models[key] = self._model(given)
        batch = round(demand.concurrency)
        tokens, length = PROMPT_TOKENS, round(demand.input_len)
        while batch > 1 and batch - -(-tokens // length) < 1 and tokens > length:
            tokens //= 2
        runtime = RuntimeConfig(batch_size=batch, isl=length, osl=round(demand.output_len))
        tokens = min(tokens, length * max(1, batch - 1))
        backend, model = self._models[key]
        found = backend.run_agg(model, self._loaded[system], runtime, ctx_tokens=tokens)
        row = found.get_summary_df().iloc[0]
        return Answer(float(row["tpot"]), float(row["ttft"]))

    def _model(self, given: dict[str, str]) -> tuple[Any, Any]:
        from aiconfigurator_core.sdk.backends.factory import get_backend
        from aiconfigurator_core.sdk.config_builders import build_model_config
        from aiconfigurator_core.sdk.models import get_model

        name, tp = given["model"], int(given["tp_size"])
        experts = int(given.get("ep_size", 1))
        four = "fp4" in (name + given.get("model_path", "")).lower()
        eight = given.get("quantization") == "fp8" or name == "deepseek_r1" or name.endswith("_fp8")
        dense = name in ("qwen3_32b", "llama_3_1_8b")
        matrices = "nvfp4" if four else ("fp8" if dense else "fp8_block") if eight else None
        modes = {} if matrices is None else {"gemm_quant_mode": matrices, "moe_quant_mode": matrices}
        if name == "deepseek_r1":  # its tables have latent attention in 16 bits alone
            modes["fmha_quant_mode"] = "bfloat16"
        config = build_model_config(tp, 1, 1, tp // experts, experts, **modes)
        config.nextn = int(given.get("speculative_num_draft_tokens", 1)) - 1
        # A backend remembers answers by load alone, so that each model has its own.
        return get_backend("sglang"), get_model(MODELS[name], config, "sglang")


def main() -> int:
    logging.disable(logging.ERROR)
    data = Data(read_table())
    held = hold_out(data, data.shape)
    peer, answers, refused = Peer(), {}, Counter[str]()
    for place, row in enumerate(held.rows):
        words = data.rows[row].record["words"]
        try:
            answers[place] = peer.answer(words, data.demands[row])
        except Exception as failure:  # noqa: BLE001 - what the peer lacks is counted, whatever it raises
            refused[f"{' '.join(words[:2])}: {type(failure).__name__}: {str(failure)[:80]}"] += 1
    places = np.array(sorted(answers))
    rows = held.rows[places]
    theirs = Held(
        rows,
        np.log([answers[place].tpot_ms / 1e3 for place in places]) - data.tpot[rows],
        np.log([answers[place].ttft_ms / 1e3 for place in places]) - data.ttft[rows],
    )
    ours = Held(rows, held.tpot[places], held.ttft[places])
    print(f"{len(rows)} of {len(held.rows)} rows have an answer of both")
    for reason, count in refused.most_common():
        print(f"  {count} without the peer's: {reason}")
    for title, one in (("ours, families held out", ours), ("aiconfigurator 0.12.0", theirs)):
        alone = ~data.drafts[rows]
        print(f"{title}:")
        print(f"  TPOT {summary(one.tpot)}, without speculation {summary(one.tpot[alone])}")
        print(f"  TTFT {summary(one.ttft)}")
        print(f"  ranking {ranking(data, one)}")
    by_family: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        by_family[str(data.shape[row])].append(place)
    for family, found in sorted(by_family.items()):
        if len(found) >= MIN_PAIR:
            medians = [summary(one.tpot[found])["median_percent"] for one in (ours, theirs)]
            print(f"  {family}: {len(found)} rows, TPOT median {medians[0]} % ours, {medians[1]} % theirs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
