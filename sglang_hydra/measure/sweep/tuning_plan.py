"""``sweep.search=tpe`` before anything is measured: its first proposals, as the sweep that is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sglang_hydra.compose.composer import Composer
from sglang_hydra.measure.sweep.grid import Grid
from sglang_hydra.measure.sweep.planning import Outcome
from sglang_hydra.measure.sweep.points import ServerGroup
from sglang_hydra.measure.sweep.store import OPEN
from sglang_hydra.measure.sweep.tpe import AT_RANDOM
from sglang_hydra.measure.sweep.tuning import Brought, Tuning
from sglang_hydra.text.words import plural


def plan_search(composer: Composer, grid: Grid, seed: int, env: Mapping[str, str] | None = None) -> Outcome:
    """The first proposals of a search, which depend on no result: those drawn at random, and more until one of them can
    be launched. Nothing is started. Raises ConfigError and MachineError as ``Tuning`` does."""
    tuning = Tuning(composer, grid, seed, env=env)
    outcome = Outcome(grid, space=tuning.space)
    trials = grid.settings["trials"]
    groups: dict[str, ServerGroup] = {}
    seen: set[str] = set()
    running = ""
    while len(tuning.proposals) < AT_RANDOM or not seen:
        proposal = tuning.advance()
        if proposal is None:
            break
        if proposal.key not in seen:
            seen.add(proposal.key)
            before = groups.get(proposal.server.server_id)
            points = (*(before.points if before else ()), *proposal.points)
            groups[proposal.server.server_id] = replace(proposal.group, points=points)
            outcome.total += len(proposal.points)
            outcome.kept += len(proposal.points)
            starts = proposal.server.server_id != running
            running = proposal.server.server_id
            outcome.starts += starts
            seconds = starts * grid.settings["start_seconds"] + len(proposal.points) * grid.settings["point_seconds"]
            outcome.gpu_seconds += proposal.server.gpus * seconds
        tuning.tell(Brought(OPEN))
    refused = {proposal.words: proposal.judged for proposal, _ in tuning.proposals if not proposal.points}
    for words, judged in refused.items():
        outcome.total += judged.repeats
        outcome.count_refused(words, judged)
        outcome.left_out.append((words, tuple(dict.fromkeys(finding.id for finding in judged.refused))))
    outcome.groups = tuple(groups.values())
    most = trials if tuning.size is None else min(trials, tuning.size)
    outcome.share = min(1.0, len(seen) / most) if seen else 1.0
    outcome.search = (
        ("draws from", "; ".join(dimension.shown for dimension in tuning.dimensions)),
        ("maximises", str(tuning.objective)),
        ("ends after", f"{plural(most, 'measured point')} at the latest (sweep.trials); below are the first proposals"),
    )
    return outcome
