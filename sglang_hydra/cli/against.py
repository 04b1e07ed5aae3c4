"""``check --against`` and ``plan --against``: the same verdicts beside those of an installed SGLang."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.compose.overrides import Request
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.upstream.ask import Authority, find_authority
from sglang_hydra.planning.upstream.verdict import asked
from sglang_hydra.releases.order import same_release
from sglang_hydra.releases.table import nearest_known
from sglang_hydra.text.screen import print_json, write


def plan(invocation: Invocation) -> int:
    """Shows the plan with the verdict of the release. Returns 2 when the release refuses it."""
    from sglang_hydra.planning.make import make_plan
    from sglang_hydra.show.plan import plan_screen

    authority = _authority(invocation)
    composer = composer_of(invocation)
    (made,) = asked(authority, [make_plan(composer, [*_for(authority, invocation.requests), *invocation.requests])])
    if invocation.json:
        print_json(made.to_json())
    else:
        write(plan_screen(made))
    return 0 if _good(made, strict=False) else 2


def check(invocation: Invocation) -> int:
    """Judges each thing named, and asks the release about each. Returns 2 if it refuses one, or if it could not be
    asked and we would refuse it."""
    from sglang_hydra.show import verdicts

    authority = _authority(invocation)
    overrides = [*_for(authority, invocation.requests), *invocation.requests]
    by_our_rules = verdicts.verdicts_on(composer_of(invocation), overrides)
    plans = iter(asked(authority, [ours.made for _, ours in by_our_rules if isinstance(ours.made, Plan)]))
    judged = [
        (name, verdicts.Verdict(again := next(plans), again.findings) if isinstance(ours.made, Plan) else ours)
        for name, ours in by_our_rules
    ]
    good = all(
        _good(verdict.made, invocation.strict) if isinstance(verdict.made, Plan) else verdict.ok
        for _, verdict in judged
    )
    if invocation.json:
        results = [verdicts.verdict_record(*item) for item in judged]
        print_json({"schema": "sglang_hydra.check/1", "ok": good, "results": results})
    else:
        write(line for item in judged for line in verdicts.verdict_lines(*item))
    return 0 if good else 2


def _authority(invocation: Invocation) -> Authority:
    """Finds the release that ``--against`` names; ``installed`` is that of ``engine.python`` where it was typed."""
    typed = [request.text.partition("=")[2] for request in invocation.requests if _key(request) == "engine.python"]
    return find_authority(str(invocation.against), typed[-1].strip("'\"") if typed else None)


def _for(authority: Authority, requests: Sequence[Request]) -> list[Request]:
    """Adds the asked release as ``engine.version``, where the table knows it and no other release was typed."""
    known = nearest_known(authority.version)
    named = any(_key(request) in ("engine.version", "lock") for request in requests)
    if named or known is None or not same_release(known, authority.version):
        return []
    return [Request(f"engine.version={authority.version}", f"--against {authority.name}", "engine")]


def _key(request: Request) -> str:
    return request.key or request.text.lstrip("+").partition("=")[0]


def _good(plan: Plan, strict: bool) -> bool:
    """Returns the release's verdict, or ours where the release was not asked."""
    spoken = plan.authority.ok if plan.authority is not None else None
    good = plan.ok if spoken is None else spoken
    return good and (plan.launchable or not strict)
