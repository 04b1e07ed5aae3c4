"""Shows a plan and the steps to its values. Renders only, decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.tables.order import at_least, same_release
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.verdict import constant_fields
from sglang_hydra.show.findings import finding_lines, shown_origin, shown_setting
from sglang_hydra.show.first_lines import first_lines, no_command, not_known, server_name, titled, verdict_span
from sglang_hydra.text.screen import (
    VERBATIM,
    Line,
    Span,
    all_folded,
    columns,
    folded,
    room,
    shown,
    shown_changes,
    text,
    texts,
)
from sglang_hydra.text.words import plural, shell_word


def plan_screen(plan: Plan, *, everything: bool = False, corrected: Sequence[Line] = ()) -> list[Line]:
    """Returns the whole plan: the verdict, the findings, the target, the set arguments with origins, and the rules'
    changes: those that depend on GPU, model or settings, or ``everything``. ``corrected`` comes last."""
    lines: list[Line] = [*first_lines(plan), *_command(plan, bool(corrected)), []]
    lines += finding_lines(plan.findings, plan)
    lines += [*heading(plan), []]
    lines += section("Set", set_rows(plan))
    lines += section(rules_title(plan), *changes_shown(plan, everything))
    if plan.fit is not None:
        from sglang_hydra.show.memory import memory_lines

        lines += [*memory_lines(plan.fit, plan.gpu.name), *_start_lines(plan)]
    if plan.launchable is not False and plan.values["nnodes"] > 1:
        lines += [*_commands(plan), []]
    lines += folded([text(_counts(plan))])
    return [*lines, [], *corrected] if corrected else lines


_FAST = "; engine.env.SGLANG_JIT_DEEPGEMM_FAST_WARMUP=1: less than 3 minutes (sgl-project/sglang#18823)"


def _start_lines(plan: Plan) -> list[Line]:
    """Returns what a start does, and how long it reads at a typed speed; [] without one. Each node reads the whole
    checkpoint, because every rank iterates over all files (0.5.23 model_loader/weight_utils.py:1146-1177)."""
    speed, weights = plan.nodes.launch.disk_gib_s, plan.fit.weights if plan.fit else None
    if not speed or speed <= 0 or weights is None or not weights.stages:
        return []
    whole, limit = sum(weights.stages) * int(plan.values["tp_size"]) / 2**30, plan.nodes.launch.ready_timeout
    late = f", longer than launch.ready_timeout={limit:g}" if whole / speed > limit else ""
    reading = f"{whole:,.0f} GiB on each node: {whole / speed:,.0f} s at {speed:g} GiB/s{late}"
    rows = [[text("  read weights"), text(reading)]]
    if sizes := plan.resolution.layout.graphs.sizes:
        rows.append([text("  capture CUDA graphs"), text(f"{len(sizes)} batch sizes up to {max(sizes)}")])
    if weights.format == "fp8" and plan.gpu.is_cuda and (plan.gpu.compute_capability or (0,))[0] in (9, 10):
        words = (
            "10 to 20 minutes at the first start; a volume at ~/.cache keeps its kernels, whose size nobody published"
        )
        rows.append([text("  compile DeepGEMM"), text(words + _FAST * at_least(plan.engine.version, "0.5.9"))])
    return [[text("Start", "bold")], *all_folded(columns(rows)), []]


def _command(plan: Plan, is_corrected: bool) -> list[Line]:
    if plan.launchable is False:
        return titled("Command", no_command(is_corrected))
    if plan.values["nnodes"] > 1:
        return titled("Command", f"one on each of {plan.values['nnodes']} nodes, below")
    unseen = f"without {', '.join(plan.secrets)}, which is handed to the server unseen"
    hidden = titled("", unseen) if plan.secrets else []
    return [[*titled("Command", "")[0], text(command_line(plan), VERBATIM)], *hidden]


def changes_shown(plan: Plan, everything: bool = False) -> tuple[list[list[Span]], str]:
    """Returns the rows of resolved values, and a note on those left out: values common to every plan."""
    entries, rows = plan.resolution.ledger, changed_rows(plan)
    constant = set() if everything else constant_fields(plan)
    kept = [row for entry, row in zip(entries, rows, strict=True) if entry.field not in constant]
    left_out = len(rows) - len(kept)
    return kept, f"and {left_out} more that every plan has: --all" if left_out else ""


def _commands(plan: Plan) -> list[Line]:
    lines: list[Line] = [[text("Commands, one on each node", "bold")]]
    for label, command in command_cells(plan):
        lines += folded([text(f"  {label}", "dim")])
        lines += [[text("    "), text(command, VERBATIM)]] if command else []
    if plan.secrets:
        lines += folded([text(f"  without {', '.join(plan.secrets)}, which is handed to them unseen", "dim")])
    return lines


def command_cells(plan: Plan) -> list[list[str]]:
    """Returns a label and a command for each node: no label for a single node, nothing where the plan cannot be
    launched. A label without a command is a note."""
    if plan.launchable is False:
        return []
    if plan.values["nnodes"] <= 1:
        return [["", command_line(plan)]]
    from sglang_hydra.planning.passing.nodes import command_rows, unknown_head

    rows = [[node, command_line(plan, command) if command else ""] for node, command in command_rows(plan)]
    if plan.values["dist_init_addr"] is None:
        where = "an address of node 0 and a free port there; dist_init_addr=HOST:PORT sets it"
        if plan.nodes.launch.name == "slurm":
            where = "found inside the job: the address of its first node and a port that is free there"
        rows.append([f"{unknown_head(plan)} is {where}", ""])
    return rows


def command_line(plan: Plan, command: Sequence[str] | None = None) -> str:
    """Returns the launch command (or ``command``) for a shell, after the plan's environment variables, without
    secrets."""
    assignments = [f"{name}={shell_word(value)}" for name, value in plan.shown_environment.items()]
    return " ".join([*assignments, *map(shell_word, plan.command if command is None else command)])


def rules_title(plan: Plan) -> str:
    """Names the release whose rules made the values below."""
    if not plan.is_exact:
        return f"Resolved by {SPECIFIED_VERSION}'s rules, an estimate: SGLang {plan.engine.version} decides"
    if plan.engine.name != "sglang" or same_release(plan.engine.version, SPECIFIED_VERSION):
        return "Resolved by SGLang's rules"
    return f"Resolved by {plan.engine.version}'s own code" + (", recorded" if plan.basis == "recorded" else "")


def summary(plan: Plan) -> Line:
    """Returns the verdict on a plan in one line, with its id and the number of findings."""
    levels = [finding.level for finding in plan.findings]
    counts = f"{plural(levels.count('error'), 'error')}, {plural(levels.count('warning'), 'warning')}"
    if plan.ignored:
        counts += f", {len(plan.ignored)} ignored"
    if plan.launchable is not False:
        verdict = verdict_span(plan.verdict)
    elif plan.ok and not plan.resolution.ok:
        verdict = text(f"SGLang {SPECIFIED_VERSION} would refuse it", "bold red")
    elif plan.ok:
        verdict = text("SGLang would accept it and then fail", "bold red")
    else:
        verdict = text("SGLang would refuse it", "bold red")
    return [verdict, text(f": plan {plan.server_id}, {counts}"), *not_known(plan.verdict)]


def _counts(plan: Plan) -> str:
    changed = {entry.field for entry in plan.resolution.ledger}
    asked = set(plan.intent)
    untouched = len(plan.values) - len(changed | asked)
    ignored = f"; ignored: {', '.join(dict.fromkeys(item.id for item in plan.ignored))}" if plan.ignored else ""
    return f"Plan {plan.server_id}: {len(asked)} set, {len(changed)} resolved, {untouched} at their defaults{ignored}"


def heading(plan: Plan) -> Iterator[Line]:
    """Yields the plan's release, model and GPU, and the sources of their facts."""
    model = plan.intent.get("model_path")
    serving = [text(" serving "), text(shown(model), "bold")] if model else []
    gpu = "a GPU that is not known" if plan.gpu.name == "none" else plan.gpu.name
    yield [text(server_name(plan), "bold"), *serving, text(" on "), text(gpu, "bold")]
    if plan.model.known:
        known = f"model facts: {plan.model.source}"
        if plan.model.unknown:
            known += f"; unknown: {', '.join(plan.model.unknown)}"
    else:
        known = f"model facts: unknown ({plan.model.source})"
    inherited = [f"{name}={shown(value)}" for name, value in plan.inherited.items()]
    notes = [known, *plan.notes, *([f"environment: {' '.join(inherited)} (set already)"] if inherited else [])]
    yield from all_folded([("  ", ""), note] for note in texts(notes, "dim"))


def section(title: str, rows: list[list[Span]], more: str = "") -> list[Line]:
    """Formats rows under a title, and a line on ``more``; empty without rows."""
    lines = all_folded(columns(rows))
    lines += [[text(f"  {more}", "dim")]] if more else []
    return [[text(title, "bold")], *lines, []] if lines else []


def set_rows(plan: Plan) -> list[list[Span]]:
    """Returns a row for each argument of ``plan.intent``, in its order: value, origin, overridden origin."""
    rows = []
    for name, value in plan.intent.items():
        chain = plan.origins.get(name, ())
        beaten = f" (over {shown_origin(chain[-2])})" if len(chain) > 1 else ""
        who = f"{shown_origin(chain[-1])}{beaten}" if chain else ""
        rows.append([text("+", "green"), text(name), text(shown_setting(name, value)), text(who, "dim")])
    return rows


def changed_rows(plan: Plan) -> list[list[Span]]:
    """Returns a row for each entry of the ledger, in its order; long values are cut to make the rule visible."""
    entries = plan.resolution.ledger
    longest = max((len(entry.field) for entry in entries), default=0)
    widest = max(20, min(60, room() - longest - 25))
    asked = {name for name, value in plan.intent.items() if value is not None}
    changes = shown_changes([(entry.before, entry.after) for entry in entries], width=widest)
    reasons = texts([entry.reason for entry in entries], "dim")
    return [
        [
            ("!", "bold yellow") if entry.field in asked else ("~", "yellow"),
            (entry.field, ""),
            (change, ""),
            (entry.rule, "cyan"),
            reason,
        ]
        for entry, change, reason in zip(entries, changes, reasons, strict=True)
    ]
