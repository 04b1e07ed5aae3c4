"""Settings that change nothing, because another setting switches off what would read them.

ineffective.json has them, recorded from SGLang 0.5.2 (``sglang/srt``) for each of its arguments. Left out on purpose:
what a running server can switch on later (``log_requests_level``), what is read beside its switch too
(``enable_torch_compile`` by single layers, ``speculative_eagle_topk`` in the choice of a backend,
``chunked_prefill_size`` in the memory of a decode server), and what depends on the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sglang_hydra.arguments.fields import FIELDS, ServerArgs
from sglang_hydra.rules.rule import Facts, Notice, Outcome, rule
from sglang_hydra.text.json_types import json_beside
from sglang_hydra.text.words import typed


class Ineffective(NamedTuple):
    """Arguments (``fields``, between spaces) that change nothing where none of the ways in ``read`` holds; ``why``
    names what switches them off, ``source`` the lines of SGLang 0.5.2 that show it.

    A way holds where all of its arguments fit: true and false stand for any value that counts as such, a list for one
    of its items, ``{"not": list}`` for none of them, ``{"above": number}`` for more than that."""

    fields: str
    read: Sequence[Mapping[str, Any]]
    why: str
    source: str

    def is_read(self, args: ServerArgs) -> bool:
        return any(all(_fits(getattr(args, name), wanted) for name, wanted in way.items()) for way in self.read)


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, bool):
        return bool(value) == wanted
    if isinstance(wanted, list):
        return value in wanted
    return value not in wanted["not"] if "not" in wanted else value is not None and value > wanted["above"]


TABLE = tuple(Ineffective(**row) for row in json_beside(__file__))


@rule("NOP001", stage="plan")
def check_ineffective(args: ServerArgs, facts: Facts) -> Outcome:
    """
    What: warns of settings that change nothing, because another one switches off what reads them.
    Why: SGLang reads each of them in one place only, which it does not reach then, mostly without a word.
    Upstream: none; sglang_hydra/rules/checks/ineffective.json names the lines of 0.5.2 for each of them.
    Example: gpu=h100 cuda_graph_max_bs=64 disable_cuda_graph=true -> warned
    """
    given = [name for name in facts.given if _is_set(name, facts)]
    found = {name: row.why for row in TABLE for name in row.fields.split() if name in given and not row.is_read(args)}
    if not found:
        return None

    settings = "; ".join(f"{name}={typed(facts.given[name])}: {why}" for name, why in found.items())
    offers = " ".join(f"{name}={typed(FIELDS[name].default)}" for name in found)
    return Notice(f"without effect: {settings}", *found, offers=offers, hint="leave it out")


def _is_set(name: str, facts: Facts) -> bool:
    """Whether somebody set it to something else than SGLang's default."""
    return name in FIELDS and facts.given[name] != FIELDS[name].default
