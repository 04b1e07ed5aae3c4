"""``check --against`` and ``plan --against``: the same verdicts beside those of an installed SGLang."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sglang_hydra.cli.corrected import corrected_lines
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.judged import code_of, is_good
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.compose.overrides import Request
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.upstream.ask import Authority, find_authority
from sglang_hydra.planning.upstream.verdict import asked
from sglang_hydra.releases.order import same_release
from sglang_hydra.releases.table import nearest_known
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import print_json, write

if TYPE_CHECKING:
    from sglang_hydra.show.verdicts import Verdict


def plan(invocation: Invocation) -> int:
    """Shows the plan with the verdict of the release. Returns 2 when the release refuses it."""
    from sglang_hydra.planning.make import make_plan
    from sglang_hydra.show.plan import plan_screen

    if len(invocation.asked) > 1:
        raise ConfigError(Finding("error", "CLI012", "plan takes one --against", hint="check takes several"))
    authority = _authority(invocation, invocation.asked[0])
    composer = composer_of(invocation)
    (made,) = asked(authority, [make_plan(composer, [*_for(authority, invocation.requests), *invocation.requests])])
    if invocation.json:
        print_json(made.to_json())
    else:
        corrected = [] if made.launchable else corrected_lines(invocation, made.findings, composer)
        write(plan_screen(made, everything=invocation.all, corrected=corrected))
    return code_of(invocation, made)


def check(invocation: Invocation) -> int:
    """Judges each thing named, and asks the release about each; of several releases each one, shown beside each other.
    Returns 2 if one refuses it, or if it could not be asked and we would refuse it."""
    from sglang_hydra.show import verdicts

    releases = [_authority(invocation, where) for where in dict.fromkeys(invocation.asked)]
    judged = {authority.version: _judged(invocation, authority) for authority in releases}
    every = [item for items in judged.values() for item in items]
    good = all(is_good(invocation, verdict.made, verdict.findings) for _, verdict in every)
    if invocation.json:
        results = [verdicts.verdict_record(*item) for item in every]
        print_json({"schema": "sglang_hydra.check/1", "ok": good, "results": results})
    elif len(releases) > 1:
        from sglang_hydra.show.upstream import releases_lines

        for at, (name, _) in enumerate(next(iter(judged.values()))):
            write(releases_lines(name, {version: items[at][1] for version, items in judged.items()}))
    else:
        write(line for item in every for line in verdicts.verdict_lines(*item))
    return 0 if good else 2


def _judged(invocation: Invocation, authority: Authority) -> list[tuple[str, Verdict]]:
    """The verdict of a release on each thing named."""
    from sglang_hydra.convert.importing.native import native_reader
    from sglang_hydra.show import verdicts

    overrides = [*_for(authority, invocation.requests), *invocation.requests]
    composer = composer_of(invocation)
    by_our_rules = verdicts.verdicts_on(composer, overrides, others=native_reader(composer, overrides))
    plans = iter(asked(authority, [ours.made for _, ours in by_our_rules if isinstance(ours.made, Plan)]))
    return [
        (name, verdicts.Verdict(again := next(plans), again.findings) if isinstance(ours.made, Plan) else ours)
        for name, ours in by_our_rules
    ]


def _authority(invocation: Invocation, where: str) -> Authority:
    """Finds the release that ``--against where`` names; ``installed`` is that of ``engine.python`` where it was
    typed."""
    typed = [request.text.partition("=")[2] for request in invocation.requests if _key(request) == "engine.python"]
    return find_authority(where, typed[-1].strip("'\"") if typed else None)


def _for(authority: Authority, requests: Sequence[Request]) -> list[Request]:
    """Adds the asked release as ``engine.version``, where the table knows it and no other release was typed."""
    known = nearest_known(authority.version)
    named = any(_key(request) in ("engine.version", "lock") for request in requests)
    if named or known is None or not same_release(known, authority.version):
        return []
    return [Request(f"engine.version={authority.version}", f"--against {authority.name}", "engine")]


def _key(request: Request) -> str:
    return request.key or request.text.lstrip("+").partition("=")[0]
