"""Fits the coefficients of the forecast to published measurements, and says how wrong they are on rows held out.

    python tools/fit_forecast.py [--check]

Reads sglang_hydra/fit/forecast_measured.jsonl.gz and writes forecast.json beside it and the tables of docs/forecast.md.
Coefficients are positive: their logarithms are fitted to the logarithms of measured TPOT, with a ridge towards what
is expected of each and less weight for outliers; then those of TTFT. Families of models are held out one by one, then
GPU classes; intervals come from these residuals. ``--check`` fits and prints, and writes nothing. Needs numpy and
scipy (extra ``dev``); takes a minute.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that a bare checkout will do

from forecast_page import PAGE, page
from forecast_table import Row, demand_of, rows_of

from sglang_hydra.fit.forecast import ALL, DRAFTING, Demand, first_token, is_old, mixed
from sglang_hydra.fit.forecast_server import ForecastServer
from sglang_hydra.fit.forecast_terms import (
    MEMORY_TERMS,
    OVERHEAD,
    PROMPT,
    PROMPT_TERMS,
    STEP_TERMS,
    TERMS,
    prompt_terms,
    step_terms,
)

FOLDER = Path(__file__).resolve().parents[1] / "sglang_hydra" / "fit"
TABLE, COEFFICIENTS = FOLDER / "forecast_measured.jsonl.gz", FOLDER / "forecast.json"
Numbers = NDArray[np.float64]

# What each coefficient is expected to be: data sheets are nearly reached by large reads, half by arithmetic; a kernel
# takes 2 to 4 microseconds, of which a layer has about 10, latent attention 6 more, an indexer 15, experts 5.
EXPECTED = {
    "weights": 1.2, "experts": 1.4, "cache": 1.4, "states": 1.5, "arithmetic": 1.0, "exchange": 0.7,
    "activations": 20, "expert activations": 6, "layer": 40, "layer, several GPUs": 3, "layer, log2 of GPUs": 4,
    "expert layer": 15, "expert layer, log2 of batch": 3, "expert layer, EP": 5, "layer, DP attention": 10,
    "linear layer": 15, "latent layer": 20, "sparse layer": 50, "expert layer, 8 bits": 6, "layer, 8 bits": 6,
    "step": 0.5, "request": 10, "prompt, 16 bits": 1.5, "prompt, 8 bits": 1.7, "prompt, 4 bits": 3,
    "prompt, experts of 8 bits": 2.5, "prompt, attention": 2, "prompt, exchange": 1, "prompt, activations": 30,
    "prompt, expert activations": 5, "prompt, latent": 60, "prompt, sparse": 60, "prompt, EP": 30, "prompt, layer": 40,
}  # fmt: skip
_OF_TTFT = {"fixed_ms": 80.0, "steps": 0.85, "prompts": 0.9, "started": 2.5, "wave": 0.8, "burst": 2.3, "open_ms": 1.0}
_RIDGE_TTFT = {
    "fixed_ms": 0.5,
    "steps": 5.0,
    "prompts": 10.0,
    "started": 5.0,
    "wave": 10.0,
    "burst": 10.0,
    "open_ms": 0.5,
}
MIXING = 1.5  # how fast clients that began together come apart; 1 to 2.5 fit alike
DRAFTED = 3
ENGINES = ("sglang", "vllm", "trtllm")
_OTHERS, _OUTLIER, _OUTLIER_TTFT = 0.4, 0.12, 0.3
# No measurement of these is in the table. A first forecast with such terms, tried on measurements that were kept back,
# took half as long as was measured on MI300X, and as long as on MI355X: a step between is assumed, as for its sibling.
ASSUMED = {"gpu mi300x": {ALL: 1.7}, "gpu mi325x": {ALL: 1.7}}
_INSIDE = 0.83
_RIDGE, _RIDGE_ENGINE, _RIDGE_GPU = 0.12, 0.9, 0.9


class Group(NamedTuple):
    """A factor of the fit: the rows and the terms that it multiplies, the logarithm expected, how firmly."""

    name: tuple[str, str]
    rows: Numbers
    terms: Numbers
    expected: float
    ridge: float


class Data:
    """All rows as numbers: terms (rows x terms, prompts times B / output_len), and what was measured."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.names = (*STEP_TERMS, *PROMPT_TERMS)
        self.is_prompt = np.array([name in PROMPT_TERMS for name in self.names])
        self.demands = [demand_of(row.record) for row in rows]
        self.running = np.array(
            [running_of(row.server, demand) for row, demand in zip(rows, self.demands, strict=True)]
        )
        self.terms = np.array([self._terms(*item) for item in zip(rows, self.demands, self.running, strict=True)])
        self.tpot = np.log([row.record["tpot_ms"] / 1e3 for row in rows])
        self.ttft = np.log([max(row.record["ttft_ms"], 1e-3) / 1e3 for row in rows])
        self.engine = np.array([row.server.engine for row in rows])
        self.gpu = np.array([row.server.roofline.gpu for row in rows])
        self.shape = np.array([row.server.shape for row in rows])
        self.drafts = np.array([row.server.roofline.tokens > 1 for row in rows])
        count = Counter(zip(self.engine, self.shape, strict=True))
        share = [min(1.0, math.sqrt(60 / count[key])) for key in zip(self.engine, self.shape, strict=True)]
        self.weight = np.where(self.engine == "sglang", 1.0, _OTHERS) * share
        self.groups = list(self._groups())
        self.by_row = np.array([group.rows for group in self.groups]).T
        self.by_term = np.array([group.terms for group in self.groups])
        self.expected = np.array([group.expected for group in self.groups])
        self.ridge = np.array([group.ridge for group in self.groups])

    def _terms(self, row: Row, demand: Demand, running: float) -> list[float]:
        step = step_terms(row.server, running, demand.input_len + demand.output_len / 2)
        prompt = prompt_terms(row.server, demand.input_len)
        arriving = running / row.server.roofline.copies / demand.output_len
        return [step[name] if name in step else arriving * prompt[name] for name in self.names]

    def _groups(self) -> Iterator[Group]:
        each, every = np.ones(len(self.rows)), np.ones(len(self.names))
        of_group = {
            name: np.array([TERMS[term].group == name for term in self.names], dtype=float)
            for name in (MEMORY_TERMS, OVERHEAD, PROMPT)
        }
        for number, name in enumerate(self.names):
            one = np.zeros(len(self.names))
            one[number] = 1.0
            yield Group(("", name), each, one, math.log(EXPECTED[name]), _RIDGE)
        for engine in ENGINES:
            for name, terms in of_group.items():
                yield Group((f"engine {engine}", name), (self.engine == engine) * 1.0, terms, 0.0, _RIDGE_ENGINE)
        for gpu in sorted(set(self.gpu)):
            there = (self.gpu == gpu) * 1.0
            yield Group((f"gpu {gpu}", ALL), there, every, 0.0, _RIDGE_GPU)
            for name in (OVERHEAD, PROMPT):
                yield Group((f"gpu {gpu}", name), there, of_group[name], 0.0, _RIDGE_GPU)
        old = np.array([row.server.engine == "sglang" and _of_old(row.record["release"]) for row in self.rows]) * 1.0
        yield Group(("release old", ALL), old, every, math.log(1.1), 0.3)
        yield Group(("drafts", "step"), self.drafts * 1.0, (~self.is_prompt) * 1.0, -0.7, 0.3)

    def parts(self, fitted: Numbers, index: NDArray[Any]) -> Numbers:
        """Seconds of each term of these rows, prompts as if all took their time from each answer."""
        return np.exp((self.by_row[index] * fitted) @ self.by_term) * self.terms[index]

    def mixed(self, fitted: Numbers, index: NDArray[Any]) -> Numbers:
        """The share of prompts that take time from an answer, for each term (1 for those of a step)."""
        parts, found = self.parts(fitted, index), np.ones((len(index), len(self.names)))
        for place, row in enumerate(index):
            prompts = parts[place][self.is_prompt].sum()
            if self.engine[row] == "sglang":  # the others work on prompts and answers in one step
                step = parts[place][~self.is_prompt].sum()
                found[place, self.is_prompt] = mixed(self.demands[row], step, prompts, MIXING)
        return found

    def predicted(self, fitted: Numbers, index: NDArray[Any]) -> Numbers:
        """The logarithm of TPOT in seconds."""
        return np.log((self.parts(fitted, index) * self.mixed(fitted, index)).sum(1))


def _of_old(release: str) -> bool:
    """Whether a row is of an old release. Those without one are the source's first, and as slow as these."""
    return not release or is_old(release)


def running_of(server: ForecastServer, demand: Demand) -> float:
    most = server.most(demand.input_len + demand.output_len / 2)
    return max(1.0, demand.concurrency if most is None else min(demand.concurrency, most))


def fit_tpot(data: Data, index: NDArray[Any], rounds: int = 5) -> Numbers:
    """The logarithms of all factors."""
    fitted = data.expected.copy()
    for number in range(rounds):
        terms = data.terms[index] * data.mixed(fitted, index)
        weight = data.weight[index]
        if number:
            off = data.predicted(fitted, index) - data.tpot[index]
            weight = weight / (1 + (off / _OUTLIER) ** 2) ** 0.25

        def parts(point: Numbers, terms: Numbers = terms) -> Numbers:
            found: Numbers = np.exp((data.by_row[index] * point) @ data.by_term) * terms
            return found

        def residual(point: Numbers, weight: Numbers = weight) -> Numbers:
            off = np.log(parts(point).sum(1)) - data.tpot[index]
            return np.concatenate([weight * off, data.ridge * (point - data.expected)])

        def jacobian(point: Numbers, weight: Numbers = weight) -> Numbers:
            found = parts(point)
            share = found / found.sum(1)[:, None]
            return np.vstack([weight[:, None] * data.by_row[index] * (share @ data.by_term.T), np.diag(data.ridge)])

        fitted = least_squares(residual, fitted, jacobian, max_nfev=30).x
    return fitted


def to_ttft(data: Data, fitted: Numbers, index: Sequence[int], given: Mapping[str, float]) -> Numbers:
    """The logarithm of TTFT in seconds."""
    parts = data.parts(fitted, np.array(index))
    share = data.mixed(fitted, np.array(index))
    found = []
    for place, row in enumerate(index):
        demand, running, server = data.demands[row], data.running[row], data.rows[row].server
        arriving = running / server.roofline.copies / demand.output_len
        prompt = {name: parts[place][k] / arriving for k, name in enumerate(data.names) if data.is_prompt[k]}
        step = float(parts[place][~data.is_prompt].sum())
        tpot = float((parts[place] * share[place]).sum())
        found.append(first_token(server, demand, running, step, prompt, tpot, given))
    return np.log(found)


def fit_ttft(data: Data, fits: Mapping[int, Numbers], index: Sequence[int]) -> dict[str, float]:
    """The coefficients of TTFT. ``fits`` has the factors of TPOT that each row was held out of."""
    names = list(_OF_TTFT)
    start, ridge = np.log([_OF_TTFT[name] for name in names]), np.array([_RIDGE_TTFT[name] for name in names])
    groups: dict[int, list[int]] = defaultdict(list)
    for row in index:
        groups[id(fits[row])].append(row)
    columns = []
    for rows in groups.values():  # TTFT is linear in its coefficients, but for the queue
        zero = np.exp(to_ttft(data, fits[rows[0]], rows, {**dict.fromkeys(names, 0.0), "mixing": MIXING}))
        each = [
            np.exp(to_ttft(data, fits[rows[0]], rows, {**dict.fromkeys(names, 0.0), name: 1.0, "mixing": MIXING}))
            for name in names
        ]
        columns.append((rows, zero, np.array(each).T - zero[:, None]))
    order = [row for rows, _, _ in columns for row in rows]
    zero, slope = np.concatenate([part[1] for part in columns]), np.vstack([part[2] for part in columns])
    measured, weight = data.ttft[order], data.weight[order]

    def residual(point: Numbers) -> Numbers:
        off = (np.log(zero + slope @ np.exp(point)) - measured) / _OUTLIER_TTFT
        return np.concatenate([weight * np.sqrt(np.log1p(off**2)), ridge * (point - start)])

    point = least_squares(residual, start, max_nfev=100).x
    return {**{name: float(value) for name, value in zip(names, np.exp(point), strict=True)}, "mixing": MIXING}


class Held(NamedTuple):
    """Residuals of rows of SGLang that a fit had not seen: logarithms of predicted by measured, and the rows."""

    rows: NDArray[Any]
    tpot: Numbers
    ttft: Numbers


def hold_out(data: Data, groups: NDArray[Any]) -> Held:
    """Fits without each group that has rows of SGLang, and predicts its rows."""
    mine = data.engine == "sglang"
    fits: dict[int, Numbers] = {}
    for name in sorted(set(groups[mine])):
        fitted = fit_tpot(data, np.where(groups != name)[0])
        for row in np.where((groups == name) & mine)[0]:
            fits[int(row)] = fitted
    rows = np.array(sorted(fits))
    tpot = np.zeros(len(rows))
    ttft = np.zeros(len(rows))
    for name in sorted(set(groups[mine])):
        places = np.where(groups[rows] == name)[0]
        own = rows[places]
        tpot[places] = data.predicted(fits[int(own[0])], own) - data.tpot[own]
        given = fit_ttft(data, fits, [int(row) for row in rows if groups[row] != name])
        ttft[places] = to_ttft(data, fits[int(own[0])], own, given) - data.ttft[own]
    return Held(rows, tpot, ttft)


def summary(off: Numbers) -> dict[str, float]:
    """Median and mean of the error in percent, and the median of predicted by measured."""
    error = 100 * np.abs(np.exp(off) - 1)
    return {
        "rows": len(off),
        "median_percent": round(float(np.median(error)), 1),
        "mape_percent": round(float(error.mean()), 1),
        "bias": round(float(np.exp(np.median(off))), 2),
    }


def by_group(held: Held, groups: NDArray[Any]) -> dict[str, dict[str, float]]:
    names = groups[held.rows]
    return {str(name): summary(held.tpot[names == name]) for name in sorted(set(names))}


def by_run(data: Data, off: Numbers, held: Held) -> list[tuple[Any, ...]]:
    """Of each model, GPU class, engine and release: rows, the least and largest TPOT in ms, and the median error in
    percent of the shipped coefficients and of those of a fit without the family (None: another engine's)."""
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for row, item in enumerate(data.rows):
        given = dict(word.split("=", 1) for word in item.record["words"])
        format = given.get("quantization") or ("nvfp4" if "FP4" in given.get("model_path", "") else "")
        name = f"{given['model']} {format}".strip()
        groups[name, given["gpu"], str(data.engine[row]), item.record["release"] or "unknown"].append(row)
    unseen = dict(zip(held.rows, held.tpot, strict=True))
    table = []
    for key, rows in sorted(groups.items()):
        tpot = np.exp(data.tpot[rows]) * 1e3
        without = [unseen[row] for row in rows if row in unseen]
        both = ([float(off[row]) for row in rows], without)
        errors = [summary(np.array(values))["median_percent"] if values else None for values in both]
        table.append((*key, len(rows), float(tpot.min()), float(tpot.max()), *errors))
    return table


def interval(off: Numbers) -> list[float]:
    """The middle of measured by predicted, as logarithms: ``_INSIDE`` of these rows, 80 % of what is like none of them
    (the rows of one family are wrong together)."""
    return [
        round(float(number), 3)
        for number in (-np.quantile(off, (1 + _INSIDE) / 2), -np.quantile(off, (1 - _INSIDE) / 2))
    ]


def covered(off: Numbers, groups: NDArray[Any]) -> float:
    """The share of rows, in percent, inside an interval that comes from the other groups alone."""
    inside = 0
    for name in set(groups):
        low, high = interval(off[groups != name])
        inside += int(((-off[groups == name] >= low) & (-off[groups == name] <= high)).sum())
    return round(100 * inside / len(off), 1)


def ranking(data: Data, held: Held) -> dict[str, float]:
    """Pairs of layouts of one model, GPU and load whose order of TPOT is right, in percent, and what the layout that is
    forecast to be best costs beside the best. Pairs within 3 % are left out. ``pair_error`` holds 90 % of the errors of
    a pair's ratio, as a logarithm."""
    groups: dict[Any, list[tuple[float, float]]] = defaultdict(list)
    errors = []
    for row, off in zip(held.rows, held.tpot, strict=True):
        record = data.rows[row].record
        words = [word for word in record["words"] if not word.startswith(("tp_", "ep_", "dp_", "enable_dp"))]
        load = (record["input_len"], record["output_len"], record["concurrency"])
        groups[(*words, *load)].append((data.tpot[row], data.tpot[row] + off))
    pairs = right = 0
    regret = []
    for layouts in groups.values():
        if len(layouts) < 2:
            continue
        for place, mine in enumerate(layouts):
            for other in layouts[:place]:
                errors.append(abs(mine[1] - mine[0] - other[1] + other[0]))
                if abs(mine[0] - other[0]) >= 0.03:
                    pairs += 1
                    right += (mine[0] - other[0]) * (mine[1] - other[1]) > 0
        chosen = min(layouts, key=lambda pair: pair[1])[0]
        regret.append(math.exp(chosen - min(pair[0] for pair in layouts)) - 1)
    return {
        "groups": len(regret),
        "pairs": pairs,
        "right_percent": round(100 * right / pairs, 1),
        "regret_percent": round(100 * float(np.mean(regret)), 1),
        "pair_error": round(float(np.quantile(errors, 0.9)), 3),
    }


def record_of(data: Data, fitted: Numbers, ttft: Mapping[str, float], errors: Mapping[str, Any]) -> dict[str, Any]:
    """forecast.json."""
    found: dict[str, Any] = {"coefficients": {}, "factors": {}}
    for group, value in zip(data.groups, np.exp(fitted), strict=True):
        owner, name = group.name
        if not owner:
            found["coefficients"][name] = _short(value)
        elif owner == "drafts":
            found["accepted"] = _short((DRAFTING / value - 1) / DRAFTED)
        else:
            found["factors"].setdefault(owner, {})[name] = _short(value)
    found["factors"] |= ASSUMED
    mine = data.engine == "sglang"
    load = {
        "input_len": [row.input_len for row in data.demands],
        "output_len": [row.output_len for row in data.demands],
        "running": list(data.running),
    }
    return {
        **found,
        "ttft": {name: _short(value) for name, value in ttft.items()},
        "errors": errors,
        "measured": {
            "rows": {engine: int((data.engine == engine).sum()) for engine in ENGINES},
            "shapes": sorted(set(data.shape[mine])),
            "gpus": sorted(set(data.gpu[mine])),
            "vendors": sorted({row.server.vendor for row in data.rows}),
            "load": {name: [min(values), max(values)] for name, values in load.items()},
        },
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def read_table() -> list[Row]:
    with gzip.open(TABLE, "rt", encoding="utf-8") as stream:
        rows, unanswered = rows_of([json.loads(line) for line in stream])
    if unanswered:
        raise SystemExit(f"no terms for {len(unanswered)} rows: {unanswered[0]}")
    return [row for row in rows if row.record["tpot_ms"] > 0]


def main() -> None:
    parser = argparse.ArgumentParser(description="Fits the coefficients of the forecast.")
    parser.add_argument("--check", action="store_true", help="fit and print, write nothing")
    options = parser.parse_args()
    data = Data(read_table())
    fitted = fit_tpot(data, np.arange(len(data.rows)))
    mine = np.where(data.engine == "sglang")[0]
    ttft = fit_ttft(data, {int(row): fitted for row in mine}, [int(row) for row in mine])
    seen = Held(
        mine,
        data.predicted(fitted, mine) - data.tpot[mine],
        to_ttft(data, fitted, mine, ttft) - data.ttft[mine],
    )
    layouts = np.array([" ".join(row.record["words"]) for row in data.rows])
    models, gpus, layout = hold_out(data, data.shape), hold_out(data, data.gpu), folds(data, layouts)
    errors: dict[str, Any] = {
        name: {"tpot": interval(held.tpot), "ttft": interval(held.ttft)}
        for name, held in (("measured", layout), ("model", models), ("gpu", gpus))
    }
    errors["pair"] = ranking(data, models)["pair_error"]
    report = {
        "families held out": summary(models.tpot),
        "families held out, without speculation": summary(models.tpot[~data.drafts[models.rows]]),
        "GPUs held out": summary(gpus.tpot),
        "layouts held out": summary(layout.tpot),
        "nothing held out": summary(seen.tpot),
        "by family": by_group(models, data.shape),
        "by GPU": by_group(gpus, data.gpu),
        "TTFT, families held out": summary(models.ttft),
        "inside 80 %, families": covered(models.tpot, data.shape[models.rows]),
        "inside 80 %, GPUs": covered(gpus.tpot, data.gpu[gpus.rows]),
        "ranking, families held out": ranking(data, models),
        "ranking, layouts held out": ranking(data, layout),
    }
    print(json.dumps(report, indent=1))
    every = np.arange(len(data.rows))
    report["runs"] = by_run(data, data.predicted(fitted, every) - data.tpot, models)
    if not options.check:
        record = record_of(data, fitted, ttft, errors)
        COEFFICIENTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(record, report), encoding="utf-8")


def folds(data: Data, layouts: NDArray[Any], number: int = 8) -> Held:
    """Layouts held out, an eighth of them at a time: what is not known of a layout whose model was measured."""
    names = sorted(set(layouts))
    fold = {name: place % number for place, name in enumerate(names)}
    return hold_out(data, np.array([str(fold[name]) for name in layouts]))


if __name__ == "__main__":
    main()
