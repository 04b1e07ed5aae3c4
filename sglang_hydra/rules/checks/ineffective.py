"""Warns of settings without effect, because another setting turns their reader off.

ineffective.json lists them by the names of the releases concerned, recorded from SGLang's code (``sglang/srt``) for
each argument of 0.5.2. It omits settings that a running server can turn on later (``log_requests_level``), settings
with a second reader (``enable_torch_compile`` in single layers, ``speculative_eagle_topk`` in the choice of a backend,
``chunked_prefill_size`` in the memory of a decode server), and settings that depend on the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.arguments.tables.order import holds_between
from sglang_hydra.rules.checks.releases import Arguments, Unknown, arguments_of, value_at
from sglang_hydra.rules.rule import Facts, Notice, Outcome, rule
from sglang_hydra.text.json_types import Json, JsonObject, json_beside
from sglang_hydra.text.words import typed


class Ineffective(NamedTuple):
    """Arguments (``fields``, separated by spaces) without effect where none of the ways in ``read`` holds; ``why``
    names the switch, ``source`` the lines of SGLang (of 0.5.2 unless another release precedes them). The row applies
    from the release ``since`` up to, not including, ``until``.

    A way holds where all of its arguments fit, also places in one (``a.b.c``): true and false match any value of that
    truth value, a list matches its items, ``{"not": list}`` any other value, ``{"above": number}`` larger numbers. It
    does not hold in a release that lacks one of them. An unknown place decides nothing."""

    fields: str
    read: Sequence[JsonObject]
    why: str
    source: str
    since: str | None = None
    until: str | None = None

    def holds_for(self, release: str) -> bool:
        return holds_between(release, self.since, self.until)

    def is_unread(self, values: JsonObject) -> bool:
        """Returns whether certainly none of the ways holds."""
        try:
            return not any(all(_fits(values, name, wanted) for name, wanted in way.items()) for way in self.read)
        except Unknown:
            return False


def _fits(values: Mapping[str, object], name: str, wanted: Json) -> bool:
    if name.partition(".")[0] not in values:
        return False
    value = value_at(values, name)
    if isinstance(wanted, bool):
        return bool(value) == wanted
    if isinstance(wanted, list):
        return value in wanted
    return value not in wanted["not"] if "not" in wanted else value is not None and value > wanted["above"]


TABLE = tuple(Ineffective(**row) for row in json_beside(__file__))
_ROWS = tuple((row, row.fields.split()) for row in TABLE)


@rule("NOP001", stage="plan")
def check_ineffective(args: Arguments, facts: Facts) -> Outcome:
    """What: warns of settings that change nothing, because another one switches off what reads them.
    Why: SGLang reads each of them in one place only, which it then does not reach, mostly without a message.
    Upstream: none; sglang_hydra/rules/checks/ineffective.json names the lines for each of them.
    Example: gpu=h100 cuda_graph_max_bs=64 disable_cuda_graph=true -> warned"""
    known = arguments_of(facts.release)
    given = {name for name, value in facts.given.items() if name in known and value != known[name].default}
    rows = [(row, names) for row, names in _ROWS if not given.isdisjoint(names) and row.holds_for(facts.release)]
    found = {name: row.why for row, names in rows for name in names if name in given and row.is_unread(args.everything)}
    if not found:
        return None

    settings = "; ".join(f"{name}={typed(facts.given[name])}: {why}" for name, why in found.items())
    offers = " ".join(f"{name}={typed(known[name].default)}" for name in found)
    return Notice(f"without effect: {settings}", *found, offers=offers, hint="leave it out")


_INSTEAD = {
    "enable_ep_moe": "ep_size={tp_size}",
    "enable_deepep_moe": "moe_a2a_backend=deepep",
    "enable_triton_kernel_moe": "moe_runner_backend=triton_kernel",
    "enable_flashinfer_cutlass_moe": "moe_runner_backend=flashinfer_cutlass",
    "enable_flashinfer_trtllm_moe": "moe_runner_backend=flashinfer_trtllm",
    "enable_flashinfer_mxfp4_moe": "moe_runner_backend=flashinfer_mxfp4",
}


@rule("DEP004", stage="plan")
def check_deprecated_flags(args: ServerArgs, facts: Facts) -> Outcome:
    """What: warns of the six enable_*_moe flags that became values of other arguments.
    Why: SGLang translates them and says so in its log only; enable_ep_moe overrides ep_size.
    Upstream: server_args.py 0.5.2 lines 408-437.
    Example: tp_size=8 enable_ep_moe=true -> warned"""
    used = [flag for flag in _INSTEAD if getattr(args, flag)]
    if not used:
        return None
    return Notice(
        f"{', '.join(used)} {'is' if len(used) == 1 else 'are'} deprecated",
        *used,
        offers=" ".join(f"{flag}=false {_INSTEAD[flag].format(tp_size=args.tp_size)}" for flag in used),
    )
