"""Checks whether the answering server is the planned one: by the owner of its port and its own report."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_hydra.arguments.secrets import masked
from sglang_hydra.arguments.tables.order import same_release
from sglang_hydra.planning.comparing.actual import DRAWN, UNNAMED, Comparison, comparable, sentence
from sglang_hydra.planning.comparing.actual import record_of as record_of_difference
from sglang_hydra.planning.comparing.difference import Difference
from sglang_hydra.planning.comparing.installed import ask_about
from sglang_hydra.planning.plan import Plan
from sglang_hydra.run.launch.failure import Failure
from sglang_hydra.run.launch.listening import UNSEEN, Owner
from sglang_hydra.run.launch.local import LocalServer
from sglang_hydra.text.errors import ServerError, SglangHydraError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import plain
from sglang_hydra.text.words import plural

Compared = Comparison | Finding | None
"""A comparison; or the reason why there is none; or None for an engine that reports nothing."""

KIND = "not_as_planned"
_SHOWN = 5
_FOLLOWS = ("tokenizer_path",)
"""Derived from another argument, which is compared itself."""


def mismatch(plan: Plan, compared: Compared, owner: Owner | None) -> Finding | None:
    """Returns why the server is not the planned one. Returns None when it is, when that cannot be known, or with
    ``launch.force``."""
    if plan.nodes.launch.force:
        return None
    hint = "launch.force=true accepts it all the same"
    hidden = owner is not None and owner.whose == UNSEEN
    if isinstance(compared, Comparison):
        wrong = failing(plan, compared, hidden)
        if not wrong:
            return None
        more = f"; and {plural(len(wrong) - _SHOWN, 'more')}" if len(wrong) > _SHOWN else ""
        listed = "; ".join(sentence(item) for item in wrong[:_SHOWN])
        fields = tuple(item.key for item in wrong)
        return Finding("error", "ACT005", f"the server is not as planned: {listed}{more}", fields, hint)
    if isinstance(compared, Finding) and owner is not None and hidden:
        message = f"nothing shows that this is the started server: {owner.who}; and {compared.message}"
        return Finding("error", "ACT005", message, ("port",), hint)
    return None


def must_be_planned(plan: Plan, compared: Compared, owner: Owner | None, server: LocalServer | None = None) -> None:
    """Raises ServerError for a server that is not the planned one, and stores the reason in ``server.failure``."""
    found = mismatch(plan, compared, owner)
    if found is None:
        return
    if server is not None:
        server.failure = Failure(KIND, (found,))
    raise ServerError(found)


def failing(plan: Plan, compared: Comparison, hidden: bool = False) -> list[Difference]:
    """Returns the differences that make it another server. With the rules of the plan's own release, all resolved
    values count. For another release (resolved values are estimates), only passed arguments count, unless its own
    argument code gives the same value. ``hidden``: nothing else identifies it, so it must report what it was passed."""
    passed = {*plan.intent, "random_seed"}
    wrong = [item for item in compared.differences if item.key in passed]
    if plan.is_exact and (compared.version == UNNAMED or same_release(compared.version, plan.engine.version)):
        ours = [item for item in compared.differences if item.key not in (*passed, *_FOLLOWS)]
        wrong += [item for item in ours if item.key not in DRAWN or item.key == "port"]
        return [*wrong, *(_unnamed(plan, name) for name in compared.absent if hidden and name in plan.intent)]
    asked = {name: comparable(name, value) for name, value in plan.intent.items()}
    wrong = [item for item in wrong if item.after != asked.get(item.key)]
    made = {item.key: item.after for item in _made_by_release(plan)} if wrong else {}
    return [item for item in wrong if item.key not in made or made[item.key] != item.after]


def _unnamed(plan: Plan, name: str) -> Difference:
    return Difference("value", name, masked(name, plain(plan.values[name])), None, ("", "it reports no value"))


def owner_note(owner: Owner | None) -> Finding | None:
    """Returns a finding for a port whose owner cannot be seen, or None."""
    if owner is None or owner.whose != UNSEEN:
        return None
    message = f"the owner of the port cannot be seen ({owner.who}): only the server's own report identifies it"
    return Finding("info", "ACT006", message, ("port",))


def record_of(plan: Plan, compared: Compared, owner: Owner | None) -> dict[str, object]:
    """Returns the record of the comparison that is stored with each result of a server."""
    known = compared if isinstance(compared, Comparison) else None
    return {
        "owner": owner.whose if owner else UNSEEN,
        "why_unseen": owner.who if owner and owner.whose == UNSEEN else None,
        "version": known.version if known else None,
        "same": known.same if known else None,
        "of": known.of if known else None,
        "absent": len(known.absent) if known else None,
        "differences": [record_of_difference(item) for item in known.differences] if known else [],
        "problem": compared.message if isinstance(compared, Finding) else None,
    }


def _made_by_release(plan: Plan) -> Sequence[Difference]:
    """Returns how the installed release's own argument code resolves the plan's command line differently; nothing if it
    cannot be asked. Takes the seconds of its import."""
    try:
        compared = ask_about(plan, plan.engine.python)[1] if plan.engine.name == "sglang" else None
    except SglangHydraError:
        return ()
    return compared.differences if compared else ()
