"""Makes the table that the forecast is fitted on from published measurements.

    python tools/forecast_measurements.py measured.csv.gz

The input is `silicon_sample.csv` of aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0), aggregated servers only: model,
GPU, formats, parallel sizes, lengths, concurrency, TTFT and TPOT. Each row becomes the words of a plan and a load;
repeats are merged. What is known to be wrong with the source is mended here, and what cannot be mended is left out.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parents[1] / "sglang_hydra" / "fit" / "forecast_measured.jsonl.gz"

_NAMES = {
    "Qwen/Qwen3.5-397B-A17B": "qwen3_5",
    "deepseek-ai/DeepSeek-R1": "r1",
    "deepseek-ai/DeepSeek-V3": "r1",
    "nvidia/DeepSeek-R1-NVFP4": "r1",
    "nvidia/DeepSeek-V3.1-NVFP4": "r1",
    "Qwen/Qwen3-32B": "qwen3_32b",
    "nvidia/Qwen3-32B-NVFP4": "qwen3_32b",
    "zhipuai/GLM-5": "glm_5",
    "meta-llama/Llama-3.1-8B-Instruct": "llama_8b",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama_8b",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3_235b",
    "MiniMaxAI/MiniMax-M2.5": "minimax",
    "openai/gpt-oss-120b": "gpt_oss",
    "meta-llama/Llama-3.1-70B": "llama_70b",
    "moonshotai/Kimi-K2.5": "kimi",
}
_WORDS = {
    ("qwen3_5", "fp8"): ["model=qwen3_5_397b", "quantization=fp8"],
    ("qwen3_5", "bf16"): ["model=qwen3_5_397b"],
    ("qwen3_5", "nvfp4"): ["model=qwen3_5_397b_nvfp4"],
    ("r1", "fp8"): ["model=deepseek_r1"],
    ("r1", "nvfp4"): ["model=deepseek_r1", "model_path=nvidia/DeepSeek-R1-0528-FP4-v2"],
    ("qwen3_32b", "bf16"): ["model=qwen3_32b"],
    ("qwen3_32b", "fp8"): ["model=qwen3_32b", "quantization=fp8"],
    ("glm_5", "fp8"): ["model=glm_5_fp8"],
    ("glm_5", "nvfp4"): ["model=glm_5_nvfp4"],
    ("llama_8b", "bf16"): ["model=llama_3_1_8b"],
    ("llama_8b", "fp8"): ["model=llama_3_1_8b", "quantization=fp8"],
    ("qwen3_235b", "fp8"): ["model=qwen3_235b_a22b", "model_path=Qwen/Qwen3-235B-A22B-FP8"],
    ("minimax", "fp8"): ["model=minimax_m2_5"],
    ("minimax", "nvfp4"): ["model=minimax_m2_7_nvfp4"],  # the same shapes; M2.5 has no such preset
    ("gpt_oss", "fp8"): ["model=gpt_oss_120b"],  # the source's mode of its matrices, of a checkpoint in MXFP4
    ("gpt_oss", "nvfp4"): ["model=gpt_oss_120b"],
    ("llama_70b", "fp8"): ["model=llama_3_1_70b", "quantization=fp8"],
    ("kimi", "int4"): ["model=kimi_k2_5"],
    ("kimi", "nvfp4"): ["model=kimi_k2_5_nvfp4"],
}
_FORMATS = {"": "bf16", "fp8_block": "fp8", "int4_wo": "int4"}
_DRAFTS = ["speculative_algorithm=EAGLE", "speculative_num_steps=3", "speculative_eagle_topk=1"]
_DRAFTS += ["speculative_num_draft_tokens=4", "max_running_requests=512"]  # else SGLang runs 48 at a time
_SAME = 1.06  # values closer than this are repeats of one run


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes forecast_measured.jsonl.gz from published measurements.")
    parser.add_argument("file", type=Path)
    left: Counter[str] = Counter()
    with gzip.open(parser.parse_args().file, "rt", encoding="utf-8") as stream:
        rows = list(merged(list(read(csv.DictReader(stream), left))))
    mark_drafts(rows)
    lines = [json.dumps({name: value for name, value in row.items() if name != "family"}) for row in rows]
    with gzip.GzipFile(TABLE, "wb", mtime=0) as packed:
        packed.write("".join(line + "\n" for line in lines).encode())
    print(f"{len(rows)} rows, {TABLE.stat().st_size:,} bytes; left out: {dict(left)}", file=sys.stderr)


def read(rows: Any, left: Counter[str]) -> Iterator[dict[str, Any]]:
    """Each row as words, load and result; what is left out is counted by its reason."""
    for row in rows:
        family, mode = _NAMES[row["model_path"]], row["gemm_quant_mode"]
        words = _WORDS.get((family, _FORMATS.get(mode, mode)))
        layout = layout_of(row)
        engine, release = row["backend"], row["backend_version"]
        if words is None:
            left[f"{family} in {mode}: no preset"] += 1
        elif layout is None:
            left["GPUs are a placeholder"] += 1
        elif engine == "vllm" and release == "0.12.0" and family in ("llama_8b", "qwen3_235b"):
            left["vLLM 0.12.0: GPUs on which the weights do not fit"] += 1
        elif family == "gpt_oss" and "h100" in row["system"] and engine == "vllm" and float(row["concurrency"]) == 512:
            left["a broken run"] += 1
        else:
            yield {
                "words": [f"gpu={row['system'].removesuffix('_sxm')}", *words, *layout, *_typed(row)],
                "engine": engine,
                "release": release,
                "family": family,
                **load_of(row),
                "tpot_ms": float(row["silicon_tpot_ms"]),
                "ttft_ms": float(row["silicon_ttft_ms"] or 0),
            }


def _typed(row: dict[str, str]) -> list[str]:
    """Returns the words of the source's scripts beside sizes: InferenceX turns SGLang's prefix cache off (its
    benchmarks/*.sh). With the cache on, a model with linear attention holds a third of the requests."""
    return ["disable_radix_cache=true"] if row["backend"] == "sglang" and _is_inferencex(row) else []


def _is_inferencex(row: dict[str, str]) -> bool:
    return {int(row["isl"]), int(row["osl"])} <= {1024, 8192}


def layout_of(row: dict[str, str]) -> list[str] | None:
    """Words of the parallel sizes. The source counts GPUs as tp x ep where experts are divided, and of DP attention
    the same once more; more than a node is a placeholder (None)."""
    tp, dp, ep = (number(row[name]) for name in ("tp_size", "attention_dp_size", "moe_ep_size"))
    gpus = tp
    if dp > 1:
        gpus = tp if row["backend"] == "vllm" else dp // ep if dp > 8 else dp
    elif ep > 1 and tp > 8:
        gpus = tp // ep
    if gpus > 8:
        return None
    words = [f"tp_size={gpus}"] + ([f"ep_size={min(ep, gpus)}"] if ep > 1 else [])
    return words + ([f"dp_size={gpus}", "enable_dp_attention=true"] if dp > 1 else [])


def load_of(row: dict[str, str]) -> dict[str, float | None]:
    """Lengths in the mean. InferenceX (1024 and 8192 tokens) draws from 80 % to 100 % of the nominal ones, ten prompts
    of each client. The others are taken as they are stated: sets of 1024 to 4096 tokens come in waves (their TTFT is
    that of all prompts at once), sets of round numbers do not,
    and have no rounds."""
    shorter = 0.9 if _is_inferencex(row) else 1.0
    waves = int(row["isl"]) % 1000 > 0 and shorter == 1.0
    return {
        "input_len": round(shorter * int(row["isl"]), 1),
        "output_len": round(shorter * int(row["osl"]), 1),
        "concurrency": float(row["concurrency"]),
        "spread": 0.0 if waves else 0.222,
        **({} if waves or shorter < 1.0 else {"rounds": None}),
    }


def merged(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One row for the repeats of a run; runs that differ by more than ``_SAME`` stay apart."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        load = (row["input_len"], row["output_len"], row["concurrency"])
        groups[(row["engine"], *row["words"], *load)].append(row)
    for group in groups.values():
        group.sort(key=lambda row: row["tpot_ms"])
        runs = [group[:1]]
        for row in group[1:]:
            if row["tpot_ms"] / runs[-1][-1]["tpot_ms"] < _SAME:
                runs[-1].append(row)
            else:
                runs.append([row])
        for run in runs:
            middle = {name: round(statistics.median(row[name] for row in run), 3) for name in ("tpot_ms", "ttft_ms")}
            yield {**run[len(run) // 2], **middle, "repeats": len(run)}


def mark_drafts(rows: list[dict[str, Any]]) -> None:
    """Adds the words of multi-token prediction to series that speculate without a mark: SGLang 0.5.9's two series of
    the same words and loads are the one with and the one without, of which the faster (at small loads) drafts."""
    twins: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        if row["engine"] == "sglang":
            twins[key(row)].append(row["tpot_ms"])
    for row in rows:
        if row["engine"] != "sglang" or row["release"] != "0.5.9" or "ep_size" in " ".join(row["words"]):
            continue
        if row["family"] == "qwen3_5" and "quantization=fp8" in row["words"] and "tp_size=4" in row["words"]:
            row["words"] = [*row["words"], *_DRAFTS]
        elif row["words"][:3] == ["gpu=b200", "model=deepseek_r1", "tp_size=8"]:
            both = twins[key(row)]
            if row["concurrency"] >= 128 or (len(both) > 1 and row["tpot_ms"] == min(both)):
                row["words"] = [*row["words"], *_DRAFTS]


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return *row["words"], row["input_len"], row["output_len"], row["concurrency"]


def number(cell: str) -> int:
    """A size; 1 where the source has none or 0."""
    return max(1, int(float(cell or 1)))


if __name__ == "__main__":
    main()
