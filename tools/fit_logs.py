"""Predicts what real servers logged of their memory, and compares row by row.

    python tools/fit_logs.py FILE.jsonl [--json]

Each line is one server: its arguments, its model's config fields and what it logged (tests/data/memory/public.jsonl
shows the form). ``scored`` in a row says what of it can fairly be predicted; the rest is printed as unscored. What the
row leaves open and the log decides (its pipeline stage, a pool of its own for sliding windows, ...) or what is assumed
of it is written beside the number and listed in the summary. A row without fields names a file of conf/configs
(``config_file``); one whose log is silent about its release has the one of its time (``release_by_date``).
The bounds: weights per GPU within 1 % in the median and 4 % or 0.2 GiB in each row; bytes per token and KV tokens
within 0.5 % (KV tokens from the logged free memory before and after loading and the fraction); every verdict right,
which an unknown one is not. Exits 1 outside them, 2 where the file cannot be read.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that a bare checkout will do

from sglang_hydra import ConfigError, GpuFacts, ModelFacts, resolve
from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.tables.order import at_least, release_key
from sglang_hydra.compose.composer import Composer
from sglang_hydra.facts.declared import known_draft
from sglang_hydra.fit.result import Fit, KvCache
from sglang_hydra.fit.sizing import fit, logged_pool

GIB = 1 << 30
CONFIGS = Path(__file__).resolve().parents[1] / "conf" / "configs"
PRESETS = Composer().model_presets()
WEIGHTS, BYTES, TOKENS, VERDICT = "weights", "bytes_per_token", "kv_tokens", "verdict"
WEIGHTS_MEDIAN, WEIGHTS_WORST, WEIGHTS_WORST_GIB = 0.01, 0.04, 0.2
BYTES_WORST, TOKENS_WORST = 0.005, 0.005
FAILED = ("oom_load", "oom_kv", "oom_graph", "oom_other")

# Compute capabilities by part of a GPU's name, the first that is found: they decide formats and graphs.
CAPABILITIES: Sequence[tuple[tuple[int, int], tuple[str, ...]]] = (
    ((12, 1), ("GB10", "DGX SPARK")),
    ((10, 3), ("GB300", "B300")),
    ((10, 0), ("GB200", "B200")),
    ((9, 0), ("H200", "H100", "H800", "H20")),
    ((12, 0), ("RTX PRO", "RTX 50", "5090", "5080", "5070", "5060")),
    ((8, 9), ("RTX 40", "RTX 6000 ADA", "4090", "4080", "4070", "4060", "L40", "L20", "L4")),
    ((8, 0), ("A100", "A800", "A30")),
    ((8, 6), ("A10", "A40", "A5000", "A6000", "RTX 30", "3090", "3080", "3060")),
    ((7, 5), ("T4", "RTX 20", "2080")),
    ((7, 0), ("V100",)),
)


class Comparison(NamedTuple):
    """One number of one row. ``right`` is None where it is not judged; ``chosen`` says what of the prediction the row's
    own arguments did not decide."""

    row: str
    quantity: str
    predicted: float | str | None
    logged: float | str | None
    scored: bool
    right: bool | None
    note: str = ""
    chosen: str = ""

    @property
    def error(self) -> float | None:
        """(predicted - logged) / logged."""
        if isinstance(self.predicted, (int, float)) and isinstance(self.logged, (int, float)) and self.logged:
            return self.predicted / self.logged - 1
        return None


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file; raises ValueError with the line that is no JSON object."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"line {number} is no JSON object")
            rows.append({"id": f"line {number}", **row})
    return rows


def compare(row: Mapping[str, Any]) -> list[Comparison]:
    """Everything that can be set against each other in a row."""
    scored = row.get("scored") or ()
    try:
        found, chosen = _predict(row)
    except (ConfigError, TypeError, ValueError, LookupError, ArithmeticError) as refused:
        return [Comparison(row["id"], name, None, None, True, False, str(refused)) for name in scored]
    return [*_weights(row, found, WEIGHTS in scored), *_bytes(row, found, BYTES in scored),
            *_tokens(row, TOKENS in scored), *_verdict(row, found, VERDICT in scored, chosen)]  # fmt: skip


def summary(comparisons: Sequence[Comparison]) -> tuple[list[str], bool]:
    """The medians, the worst and the verdict on the whole file."""
    lines, good = [], True
    for quantity in (WEIGHTS, BYTES, TOKENS):
        judged = [item for item in comparisons if item.quantity == quantity and item.scored]
        errors = [abs(item.error) for item in judged if item.error is not None]
        wrong = [item.row for item in judged if not item.right]
        if judged:
            median = statistics.median(errors) if errors else float("nan")
            worst = max(errors, default=float("nan"))
            far = quantity == WEIGHTS and not median <= WEIGHTS_MEDIAN
            good = good and not wrong and not far
            lines.append(f"{quantity}: {len(judged)} scored, median {median:.2%}, worst {worst:.2%}"
                         + (f", out of bounds: {', '.join(wrong)}" if wrong else "")
                         + (f", the median is above {WEIGHTS_MEDIAN:.0%}" if far else ""))  # fmt: skip
    verdicts = [item for item in comparisons if item.quantity == VERDICT and item.scored]
    wrong = [item.row for item in verdicts if not item.right]
    lines.append(f"verdict: {len(verdicts)} scored, {len(wrong)} wrong" + (f": {', '.join(wrong)}" if wrong else ""))
    chosen = [item for item in comparisons if item.scored and item.chosen]
    if chosen:
        lines.append(
            f"of these {len(chosen)} with a choice: " + ", ".join(f"{item.row} {item.quantity}" for item in chosen)
        )
    return lines, good and not wrong


def _predict(row: Mapping[str, Any]) -> tuple[Fit, str]:
    """The fit of a row's server, with what it logged as free before loading where it did, and what was assumed for it.

    Where the fraction is not stated, the default of 0.5.2 need not be that of the row's version: then it fits where
    some fraction works.
    """
    model, gpu = _model(row), _gpu(row)
    values, release, free = _values(row, gpu, model), release_of(row), row.get("avail_before_load_gb")
    stated = row.get("mem_fraction_static")  # as the server itself printed it
    draft, assumed = _draft(row, values)
    found = fit(values, gpu, model, draft=draft, free_gib=free, release=release)
    chosen = stated is not None or (row.get("args") or {}).get("mem_fraction_static") is not None
    if found.fits is False and not chosen and found.interval is not None and not found.interval.empty:
        values["mem_fraction_static"] = (found.interval.low + found.interval.high) / 2
        assumed = "; ".join(filter(None, (assumed, f"mem_fraction_static={values['mem_fraction_static']:.3f} chosen")))
        found = fit(values, gpu, model, draft=draft, free_gib=free, release=release)
    return found, assumed


def release_of(row: Mapping[str, Any]) -> str | None:
    """The release whose pools a row's server made, where it is known and has other pools than 0.5.2."""
    version = str(row.get("sglang_version") or row.get("release_by_date") or "")
    return version if release_key(version) is not None and at_least(version, "0.5.3") else None


def _values(row: Mapping[str, Any], gpu: GpuFacts, model: ModelFacts) -> dict[str, Any]:
    """A row's arguments as 0.5.2 resolves them, with those that only later releases have. These have pools for sliding
    windows in more classes than 0.5.2, whose rule against them is left out."""
    intent = _intent(row)
    values = dict(resolve(intent, gpu=gpu, model=model, seed=0).values)
    values |= {name: value for name, value in intent.items() if name not in values}
    if release_of(row) is not None:
        values["disable_hybrid_swa_memory"] = bool(intent.get("disable_hybrid_swa_memory"))
    if row.get("mem_fraction_static") is not None:
        values["mem_fraction_static"] = row["mem_fraction_static"]
    return values


def _draft(row: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[ModelFacts | None, str]:
    """The draft model of a row and what was assumed of it: its config as ``draft_hf_config``; else a published draft
    by its name; else, of an EAGLE draft, that it is one dense layer of its target with a projection of embedding and
    hidden states, as these are."""
    config = row.get("hf_config") or {}
    stated, target = row.get("draft_hf_config"), config.get("text_config") or config
    if stated is not None:
        return ModelFacts(stated, source=f"draft_hf_config of {row['id']}"), ""
    path, algorithm = values.get("speculative_draft_model_path"), str(values.get("speculative_algorithm"))
    if path is None or path == values.get("model_path"):
        return None, ""
    known = known_draft(str(path), PRESETS)
    sized = ("hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
    if known is not None or algorithm not in ("EAGLE", "EAGLE3") or not all(name in target for name in sized):
        return known, ""
    names = (*sized, "num_key_value_heads", "head_dim", "torch_dtype", "max_position_embeddings")
    layer = {name: target[name] for name in names if name in target}
    architecture = "LlamaForCausalLMEagle3" if algorithm == "EAGLE3" else "LlamaForCausalLMEagle"
    layer |= {"architectures": [architecture], "num_hidden_layers": 1}
    return ModelFacts(layer, source=f"hf_config of {row['id']}, one layer"), "draft taken to be one layer of the target"


def _intent(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row's command asks for, in the types that 0.5.2 has; values that it does not know are left as they are."""
    intent = {"model_path": row.get("model_id") or "unknown"}
    for name, value in (row.get("args") or {}).items():
        kind = FIELDS[name].kind if name in FIELDS and not FIELDS[name].is_list else None
        if kind == "str" and isinstance(value, dict):
            value = json.dumps(value)
        elif kind in ("int", "float") and isinstance(value, str):
            value = json.loads(value)
        intent[name] = value
    if not row.get("args") and (row.get("num_gpus") or 1) > 1:
        intent["tp_size"] = row["num_gpus"]  # nothing is known of the command: the usual way to use several GPUs
    return intent


def _model(row: Mapping[str, Any]) -> ModelFacts:
    config, name = row.get("hf_config"), row.get("config_file")
    if config is None and name is not None:
        config = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
        beside = CONFIGS / f"{name}.hf_quant_config.json"
        if beside.is_file() and "quantization_config" not in config:
            stated = json.loads(beside.read_text(encoding="utf-8"))["quantization"]
            config["quantization_config"] = {"quant_method": "modelopt", **stated}
    return ModelFacts(config, source=f"hf_config of {row['id']}")


def _gpu(row: Mapping[str, Any]) -> GpuFacts:
    name = str(row.get("gpu") or "unknown")
    amd = re.search(r"\bMI\d{2,3}", name.upper()) is not None
    capability = next((found for found, parts in CAPABILITIES if any(part in name.upper() for part in parts)), None)
    memory = row.get("gpu_memory_mib")
    if memory is None and row.get("avail_before_load_gb") is not None:
        memory = (row["avail_before_load_gb"] + 1) * 1024  # the class that SGLang sees is all that depends on it
    return GpuFacts(
        name, "amd" if amd else "nvidia", "cuda", memory, (9, 4) if amd else capability,
        row.get("num_gpus"), flashinfer=True, triton_kernels=True,
    )  # fmt: skip


def _weights(row: Mapping[str, Any], found: Fit, scored: bool) -> Iterator[Comparison]:
    logged, predicted = row.get("weights_gb_per_gpu"), found.weights.total
    if logged is None and not scored:
        return
    if predicted is None or logged is None:
        yield Comparison(row["id"], WEIGHTS, None, logged, scored, False if scored else None, ", ".join(found.unknown))
        return
    sizes = [stage / GIB for stage in found.weights.stages or (predicted,)]
    size = min(sizes, key=lambda size: abs(size - logged))
    chosen = f"stage {sizes.index(size) + 1} of {len(sizes)}, as the log" if len(sizes) > 1 else ""
    right = abs(size / logged - 1) <= WEIGHTS_WORST or abs(size - logged) <= WEIGHTS_WORST_GIB
    yield Comparison(row["id"], WEIGHTS, round(size, 2), logged, scored, right if scored else None, chosen=chosen)


def _bytes(row: Mapping[str, Any], found: Fit, scored: bool) -> Iterator[Comparison]:
    """One token in all layers or, where later versions have a pool of its own for some, in the one that was logged."""
    logged = row.get("derived_bytes_per_token")
    if logged is None and not scored:
        return
    if found.kv is None or logged is None:
        yield Comparison(row["id"], BYTES, None, logged, scored, False if scored else None, ", ".join(found.unknown))
        return
    sizes = {"": found.kv.bytes_per_token}
    windows = sum(kind.bytes_per_token for kind in found.kv.kinds if kind.kind == "sliding window")
    full = sum(kind.bytes_per_token for kind in found.kv.kinds if kind.kind != "sliding window")
    if windows and full:
        ratio = float((row.get("args") or {}).get("swa_full_tokens_ratio") or 0.8)
        sizes["both pools, by tokens of the full one, as the log"] = round(full + ratio * windows)
    if len(found.kv.kinds) > 1:
        sizes |= {f"{kind.kind} only, as the log": kind.bytes_per_token for kind in found.kv.kinds}
        sizes |= {f"rows of {rows} bytes, as the log": size for rows, size in _other_rows(found.kv).items()}
    chosen, predicted = min(sizes.items(), key=lambda size: abs(size[1] - logged))
    right = abs(predicted / logged - 1) <= BYTES_WORST
    yield Comparison(row["id"], BYTES, predicted, logged, scored, right if scored else None, chosen=chosen)


def _other_rows(kv: KvCache) -> dict[int, int]:
    """Bytes of a token of sparse attention in FP8 by the rows that its kernels read, which the release decides too."""
    latent, index = (next((kind for kind in kv.kinds if kind.kind == name), None) for name in ("latent", "index keys"))
    if latent is None or index is None or kv.element != 1:
        return {}
    return {rows: latent.layers * rows + index.bytes_per_token for rows in (576, 656)}


def _tokens(row: Mapping[str, Any], scored: bool) -> Iterator[Comparison]:
    before, after = row.get("avail_before_load_gb"), row.get("avail_after_load_gb")
    fraction, logged = row.get("mem_fraction_static"), row.get("kv_tokens")
    if not scored and None in (before, after, fraction, logged):
        return
    predicted, chosen = None, ""
    if before is not None and after is not None and fraction is not None:
        model, gpu = _model(row), _gpu(row)
        values = _values(row, gpu, model)
        if release_of(row) is not None:
            draft, _ = _draft(row, values)
            predicted = logged_pool(
                values, gpu, model, before_gib=before, after_gib=after, release=release_of(row), draft=draft
            )
        else:
            predicted, chosen = _nearest(row, values, model, gpu, before, after, logged)
    right = predicted is not None and logged is not None and abs(predicted / logged - 1) <= TOKENS_WORST
    yield Comparison(row["id"], TOKENS, predicted, logged, scored, right if scored else None, chosen=chosen)


def _nearest(
    row: Mapping[str, Any],
    values: Mapping[str, Any],
    model: ModelFacts,
    gpu: GpuFacts,
    before: float,
    after: float,
    logged: int | None,
) -> tuple[int | None, str]:
    """The tokens of 0.5.2 or, where the row is silent, of a later version that comes nearer to the log: one with a pool
    of its own for sliding windows where 0.5.2 has none, or with its states counted elsewhere."""
    stated = (row.get("args") or {}).get("disable_hybrid_swa_memory")
    plain = {**values, "disable_hybrid_swa_memory": stated is not False}

    def pool(change: Mapping[str, Any], *, states: bool = True) -> int | None:
        return logged_pool({**plain, **change}, gpu, model, before_gib=before, after_gib=after, with_states=states)

    predicted, chosen = pool({}), ""
    later = {"states counted elsewhere, as the log": pool({}, states=False)}
    if stated is None:
        later["a pool for sliding windows, as the log"] = pool({"disable_hybrid_swa_memory": False})
    for note, tokens in later.items():
        if None not in (tokens, predicted, logged) and abs((tokens or 0) - (logged or 0)) < abs(
            (predicted or 0) - (logged or 0)
        ):
            predicted, chosen = tokens, note
    return predicted, chosen


def _verdict(row: Mapping[str, Any], found: Fit, scored: bool, chosen: str) -> Iterator[Comparison]:
    """Fits or not; neither where a fact is missing, which is never right."""
    outcome = row.get("outcome")
    if outcome is None and not scored:
        return
    predicted = "unknown" if found.fits is None else "fits" if found.fits else "does not fit"
    right = found.fits is not None and outcome is not None and (outcome in FAILED) is not found.fits
    note = "; ".join(found.reasons) or (f"unknown: {', '.join(found.unknown)}" if found.unknown else "")
    yield Comparison(row["id"], VERDICT, predicted, outcome, scored, right if scored else None, note, chosen)


def _line(item: Comparison) -> str:
    error = "" if item.error is None else f"{item.error:+.2%}"
    mark = "unscored" if not item.scored else "ok" if item.right else "WRONG"
    notes = "; ".join(filter(None, (item.note, item.chosen)))
    return f"{item.row:44} {item.quantity:16} {item.predicted!s:>14} {item.logged!s:>14} {error:>9}  {mark:9}{notes}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true", help="one object with every comparison")
    options = parser.parse_args(argv)
    try:
        rows = read_rows(options.file)
    except (OSError, ValueError) as failure:
        print(f"{options.file}: {failure}", file=sys.stderr)
        return 2
    comparisons = [item for row in rows for item in compare(row)]
    lines, good = summary(comparisons)
    if options.json:
        print(json.dumps({"good": good, "summary": lines, "rows": [item._asdict() for item in comparisons]}, indent=1))
    else:
        print(f"{'row':44} {'quantity':16} {'predicted':>14} {'logged':>14} {'error':>9}")
        print("\n".join([*map(_line, comparisons), "", *lines, "within the bounds" if good else "OUT OF BOUNDS"]))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
