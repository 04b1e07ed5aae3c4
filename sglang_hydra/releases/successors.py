"""What took the place of an argument that a release no longer has: from the releases' own words, and from notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sglang_hydra.releases.order import at_least
from sglang_hydra.releases.table import OldFlag, Release, known_versions, release, rows

SAME = object()
"""The successor takes the value as it is."""

_DEEPEST = 8


class Successor(NamedTuple):
    """``name`` is the argument to use instead, None where there is none; ``value`` what it has to be, ``SAME`` for the
    old one's. ``advice`` is what to do where no value follows from the old one."""

    name: str | None
    value: Any = SAME
    advice: str | None = None


class _Note(NamedTuple):
    to: str | None = None
    value: Any = SAME
    of: str | None = None
    advice: str | None = None


_GONE_SPARSITY = _Note(advice="double sparsity was taken out of SGLang")
_MEETING = _Note(advice="prefill and decode servers tell each other their sizes")

NOTES: Mapping[str, _Note] = {
    # 0.5.3's flag says to set --ep-size to the value of --tp-size; 0.5.2 does that itself (server_args.py:453-457).
    "enable_ep_moe": _Note("ep_size", of="tp_size"),
    # 0.5.3.post1: managers/scheduler.py reads the one where 0.5.3's reads the other.
    "max_micro_batch_size": _Note("pp_max_micro_batch_size"),
    "debug_tensor_dump_prefill_only": _Note(advice="there is nothing like it any more"),
    "debug_tensor_dump_inject": _Note(advice="there is nothing like it any more"),
    # 0.5.4: the same choices under the new names.
    "nsa_prefill": _Note("nsa_prefill_backend"),
    "nsa_decode": _Note("nsa_decode_backend"),
    # 0.5.4.post2: a transposition of letters was put right.
    "oltp_traces_endpoint": _Note("otlp_traces_endpoint"),
    # 0.5.5.post1
    "kt_amx_weight_path": _Note("kt_weight_path"),
    "kt_amx_method": _Note("kt_method"),
    "enable_flashinfer_autotune": _Note(advice="it is on from 0.5.7 on; disable_flashinfer_autotune turns it off"),
    # 0.5.8: another quantity, so that no value follows.
    "hybrid_kvcache_ratio": _Note(advice="swa_full_tokens_ratio sizes the two caches, by another quantity"),
    "prefill_round_robin_balance": _Note(advice="load_balance_method says how requests are spread"),
    # 0.5.10: disaggregation/common/conn.py, PrefillServerInfo
    "disaggregation_decode_tp": _MEETING,
    "disaggregation_decode_dp": _MEETING,
    "disaggregation_prefill_pp": _MEETING,
    # 0.5.11
    "collect_tokens_histogram": _Note(advice="enable_metrics=true brings them"),
    "enable_double_sparsity": _GONE_SPARSITY,
    "ds_channel_config_path": _GONE_SPARSITY,
    "ds_heavy_channel_num": _GONE_SPARSITY,
    "ds_heavy_token_num": _GONE_SPARSITY,
    "ds_heavy_channel_type": _GONE_SPARSITY,
    "ds_sparse_decode_threshold": _GONE_SPARSITY,
    "multi_item_scoring_delimiter": _Note(advice="enable_mis turns such requests on"),
    # 0.5.12.post1 says so in server_args.py:1120-1125 before it goes.
    "enable_nan_detection": _Note(
        advice="the variable SGLANG_SPEC_NAN_DETECTION=1: engine.env.SGLANG_SPEC_NAN_DETECTION=1"
    ),
    # 0.5.16
    "grpc_http_sidecar_port": _Note("smg_http_sidecar_port"),
    "enable_deepep_waterfill": _Note("enable_waterfill"),
    "optimistic_prefill_retries": _Note(advice="optimistic_prefill_attempts counts the first attempt too"),
    # 0.5.18
    "torchao_config": _Note(advice="quantization=... has the methods that remain"),
    "enable_expert_distribution_metrics": _Note(
        advice="expert_balancedness_report_mode: server_log, prometheus or both"
    ),
}
"""What no release says by itself: arguments that vanish from one release to the next. The release, and the file that
shows what took their place, stand above each."""


def successor(name: str, version: str) -> Successor:
    """What to use for ``name`` in ``version``, which has no such argument. Raises KeyError for an unknown version."""
    at = release(version)
    value: Any = SAME
    for _ in range(_DEEPEST):
        found = _step(name, at)
        value = found.value if value is SAME else value
        if found.name is None or found.name in at.arguments:
            return found._replace(value=value)
        name = found.name
    return Successor(None, advice="its successors name each other")


def _step(name: str, at: Release) -> Successor:
    note = NOTES.get(name)
    if note is not None:
        return Successor(note.to, ("of", note.of) if note.of else note.value, note.advice)
    flag = "--" + name.replace("_", "-")
    old = at.old_flags.get(flag) or _last_seen(flag, at.version)
    if old is None:
        return Successor(None)
    target = old.field or _field_of(old.instead, at)
    if target is None or target == name:
        return Successor(None, advice=_plain_advice(old))
    if old.action in ("DeprecatedAliasStoreAction", "DeprecatedStoreTrueAction") or old.value is not None:
        value = SAME if old.action in ("DeprecatedAliasStoreAction", "DeprecatedStoreTrueAction") else old.value
        return Successor(target, value)
    return Successor(None, advice=f"{target} is what to use instead")


def _last_seen(flag: str, version: str) -> OldFlag | None:
    """How the last release before ``version`` that knew an old flag described it."""
    seen: dict[str, Any] | None = None
    for row in rows():
        changes = row.get("old_flags", {})
        if flag in changes.get("added", {}):
            seen = dict(changes["added"][flag])
        if seen is not None and flag in changes.get("changed", {}):
            seen.update(changes["changed"][flag])
        if row["version"] == version:
            break
    return OldFlag(flag, **seen) if seen else None


def _field_of(flag: str | None, at: Release) -> str | None:
    """The argument that a flag feeds, in this release or an earlier one."""
    if flag is None:
        return None
    plain = flag.partition("=")[0].partition(" ")[0]
    for version in reversed([known for known in known_versions() if at_least(at.version, known)]):
        for argument in release(version).arguments.values():
            if plain in argument.flags:
                return argument.name
    return None


def _plain_advice(old: OldFlag) -> str | None:
    return f"use {old.instead} instead" if old.instead else None
