"""Sweeps of others: an entry of InferenceX's master configuration as one axis of ours.

    dsr1-fp8-h200-sglang:
      model: deepseek-ai/DeepSeek-R1-0528
      runner: h200
      framework: sglang
      seq-len-configs:
      - {isl: 1024, osl: 1024, search-space: [{tp: 8, ep: 8, dp-attn: true, conc-start: 4, conc-end: 64}]}

Concurrencies double from conc-start, and conc-end is the last. Later files have the list under
``scenarios.fixed-seq-len``. What has no like here (other engines, prefill and decode servers, speculative decoding
without its settings) is left out, with a message.
Source: configs/*-master.yaml of SemiAnalysisAI/InferenceX, read 2026-11-20.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import KEPT, Request
from sglang_hydra.measure.sweep.axes import Axis, Options, axis_of_params, zipped
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import CONFIG_BYTES, read_text
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import nearest, short

RANGE_RATIO = 0.8
"""Its load draws lengths from 80 % to 100 % of isl and osl."""

_ENTRY = ("seq-len-configs", "scenarios")
_ROW = ("tp", "ep", "dp-attn", "conc-start", "conc-end", "conc-list")
KEYS = (
    "tp_size",
    "ep_size",
    "dp_size",
    "enable_dp_attention",
    "bench.input_len",
    "bench.output_len",
    "bench.concurrency",
)


@dataclass(frozen=True)
class SearchSpace:
    """``rows`` are the values of ``KEYS``, ``common`` what all of them share by key; ``remarks`` what is left out."""

    place: str
    common: Mapping[str, Any]
    rows: tuple[tuple[Any, ...], ...]
    remarks: tuple[Finding, ...]


def read_search_space(named: str, composer: Composer) -> SearchSpace:
    """Reads ``FILE`` or, where it has several entries for SGLang, ``FILE#ENTRY``.

    Raises ConfigError for a file that cannot be read, an entry that is not there, and one without a row for us.
    """
    file, _, entry = named.partition("#")
    entries = _entries(file)
    name = _chosen(file, entry, entries)
    remarks: list[Finding] = []
    rows = tuple(dict.fromkeys(_rows(entries[name], remarks)))
    if not rows:
        reason = f": {remarks[0].message}" if remarks else ""
        raise _error(f"{file}#{name} has no point for one SGLang server{reason}")
    return SearchSpace(f"{file}#{name}", _common(entries[name], composer), rows, tuple(remarks))


def axes_of(space: SearchSpace, fixed: Collection[str], options: Options) -> tuple[list[Request], list[Axis]]:
    """Returns what all points share, and one axis with the rows. Keys that are ``fixed`` (typed) are left out."""
    shared = [Request(f"{key}={value}", space.place, KEPT) for key, value in space.common.items() if key not in fixed]
    kept = [place for place, key in enumerate(KEYS) if key not in fixed]
    rows = list(dict.fromkeys(tuple(row[place] for place in kept) for row in space.rows))
    columns = [
        axis_of_params(KEYS[place], [row[n] for row in rows], space.place, options) for n, place in enumerate(kept)
    ]
    return shared, zipped(columns, [[KEYS[place] for place in kept]]) if columns else []


def _entries(file: str) -> dict[str, Mapping[str, Any]]:
    import yaml

    try:
        content = yaml.safe_load(read_text(Path(file).expanduser(), CONFIG_BYTES))
    except (OSError, UnicodeDecodeError) as failure:
        raise _error(f"{file} cannot be read: {failure}") from None
    except yaml.YAMLError as failure:
        raise _error(f"{file} is no YAML: {' '.join(str(failure).split())}") from None
    found = content if isinstance(content, Mapping) else {}
    entries = {
        str(name): value
        for name, value in found.items()
        if isinstance(value, Mapping) and any(key in value for key in _ENTRY)
    }
    if not entries:
        raise _error(f"{file} has no entry with seq-len-configs, as InferenceX's master configurations have")
    return entries


def _chosen(file: str, entry: str, entries: Mapping[str, Mapping[str, Any]]) -> str:
    if entry in entries:
        return entry
    ours = [name for name, value in entries.items() if value.get("framework", "sglang") == "sglang"]
    if entry:
        near = nearest(entry, ours)
        raise _error(f"{file} has no entry {short(entry)!r}", f"did you mean {near}?" if near else ", ".join(ours[:8]))
    if len(ours) != 1:
        what = f"{len(ours)} entries for sglang: {', '.join(ours[:8])}" if ours else "no entry for sglang"
        raise _error(f"{file} has {what}", f"sweep.search_space={file}#{ours[0]}" if ours else None)
    return ours[0]


def _rows(entry: Mapping[str, Any], remarks: list[Finding]) -> Iterator[tuple[Any, ...]]:
    framework = entry.get("framework", "sglang")
    if framework != "sglang" or entry.get("disagg") or entry.get("multinode"):
        what = "on several nodes" if framework == "sglang" else f"of {framework}"
        remarks.append(_left_out(f"it is {what}"))
        return
    for lengths in _lengths(entry):
        for row in lengths.get("search-space") or ():
            unsupported = [str(key) for key in row if key not in _ROW and row[key] not in (None, "none", False)]
            if unsupported or "tp" not in row:
                remarks.append(
                    _left_out(f"isl {lengths['isl']}, osl {lengths['osl']}: {', '.join(unsupported) or 'no tp'}")
                )
                continue
            attention = bool(row.get("dp-attn"))
            dp_size = row["tp"] if attention else 1
            for concurrency in _concurrencies(row):
                yield (
                    *(row["tp"], row.get("ep") or 1, dp_size, attention),
                    *(lengths["isl"], lengths["osl"], concurrency),
                )


def _lengths(entry: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    if "seq-len-configs" in entry:
        return list(entry["seq-len-configs"])
    return list((entry["scenarios"] or {}).get("fixed-seq-len") or ())


def _concurrencies(row: Mapping[str, Any]) -> Iterator[int]:
    if "conc-list" in row:
        yield from row["conc-list"]
        return
    concurrency, end = int(row["conc-start"]), int(row["conc-end"])
    while concurrency < end:
        yield concurrency
        concurrency *= 2
    yield end


def _common(entry: Mapping[str, Any], composer: Composer) -> dict[str, Any]:
    """The model, and the GPU class that the runner is named after."""
    common: dict[str, Any] = {"bench.range_ratio": RANGE_RATIO}
    if entry.get("model"):
        common["model"] = str(entry["model"])
    runner = str(entry.get("runner", "")).partition("-")[0].lower()
    if runner in composer.options("gpu"):
        common["gpu"] = runner
    return common


def _left_out(why: str) -> Finding:
    return Finding("warning", "SWP020", f"left out of the search space: {why}", ("sweep.search_space",))


def _error(message: str, hint: str | None = None) -> ConfigError:
    return ConfigError(Finding("error", "SWP020", message, ("sweep.search_space",), hint))
