"""Where a recorded plan and the one of today differ, each with what it was, what it is now, and who says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sglang_hydra.facts.stated_config import laid_over
from sglang_hydra.planning.comparing.difference import Difference, between
from sglang_hydra.planning.plan import GPU_FACTS, NOT_IDENTITY
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import plain
from sglang_hydra.text.screen import shown
from sglang_hydra.text.words import number, program

if TYPE_CHECKING:
    from sglang_hydra.planning.plan import Plan
    from sglang_hydra.planning.recorded.saved import SavedPlan

_WHERE_IT_RUNS = ("engine", "launch", "gpu")
"""Groups of which only the outcome counts."""
_WHOLE = "transformers_version"
_ABSENT_NAME = "(no such argument)"


def differences(locked: SavedPlan, plan: Plan, typed: Mapping[str, str]) -> Iterator[Finding]:
    """One error for each part of a server's identity that is not as recorded, causes before what follows from them.

    ``typed`` are the keys that were given on top of the lock, with their places.
    """
    record = locked.record
    # Options that were chosen on top: the recorded arguments would silently beat what they bring.
    groups = [group for group in typed if group in plan.choices and group not in _WHERE_IT_RUNS]
    then, now = ({group: choices.get(group) for group in groups} for choices in (record["choices"], plan.choices))
    for item in between("fact", then, now):
        yield _other("LCK007" if item.key == "model" else "LCK005", item, typed[item.key])
    yield from _engine(record, plan, typed)
    image = {"launch.image": record.get("settings", {}).get("launch.image", {}).get("value")}
    for item in between("fact", image, {"launch.image": plan.nodes.launch.image}):
        yield _other("LCK009", item, _place(typed, item.key))
    here = "this machine" if plan.probed else f"gpu={plan.choices.get('gpu')}"
    then, now = ({f"gpu.{key}": gpu[key] for key in GPU_FACTS[1:]} for gpu in (record["gpu"], plain(plan.gpu)))
    for item in between("fact", then, now):
        yield _other("LCK006", item, _place(typed, item.key, "gpu") or here)
    yield from _model(record["model"], plan, typed)
    then, now = (
        {**inherited, **{name: value for name, value in variables.items() if name.startswith("SGLANG_")}}
        for inherited, variables in (
            (record["inherited"], record["environment"]),
            (plan.inherited, plan.shown_environment),
        )
    )
    for item in sorted(between("environment", then, now), key=lambda item: item.key):
        hint = f"export {item.key}={item.before}" if item.key in then else f"unset {item.key}"
        yield _other("LCK010", item, "the environment", hint)
    yield from _values(locked, plan)


def _engine(record: Mapping[str, Any], plan: Plan, typed: Mapping[str, str]) -> Iterator[Finding]:
    recorded = record["engine"]
    setting = record.get("settings", {}).get("engine.version", {})
    # A lock of a lock has it from there, not from somebody who named it.
    named = setting.get("layer", "lock") != "lock" or "engine.version" in typed
    version = plan.engine.version if named else _installed_version(plan)
    then = {"engine": recorded["name"], "engine.version": recorded["version"]}
    for item in between("fact", then, {"engine": plan.engine.name, "engine.version": version}):
        has_it = f"engine.python=<an interpreter that has SGLang {item.before}>"
        hint = f"{item.key}={item.before}" if item.key in typed else has_it
        yield _other("LCK008", item, _place(typed, item.key, "engine.python") or "installed here", hint)


def _installed_version(plan: Plan) -> str:
    """The release that would run; where none is installed, nothing speaks against the recorded one."""
    from sglang_hydra.facts.packages import installed

    return installed(plan.engine.python).versions.get(plan.engine.name) or plan.engine.version


def _model(recorded: Mapping[str, Any], plan: Plan, typed: Mapping[str, str]) -> Iterator[Finding]:
    by = _place(typed, "model_path", "model", "revision") or plan.model.source
    revision = {"model.revision": recorded["revision"]}
    for item in between("fact", revision, {"model.revision": plan.model.revision}):
        yield _other("LCK007", item, by, f"revision={item.before}" if item.before else None)
    then, now = recorded["config"] or {}, plain(plan.model.config or {})
    if _WHOLE in now and _WHOLE not in then:
        then = laid_over(now, then)  # an excerpt says nothing about what it leaves out
    then, now = ({f"model.config.{key}": value for key, value in config.items()} for config in (then, now))
    yield from (_other("LCK007", item, by) for item in between("fact", then, now))


def _values(locked: SavedPlan, plan: Plan) -> Iterator[Finding]:
    then, now = locked.values, plan.values
    if "rules" in (locked.basis, plan.basis):
        if locked.basis != "rules" and locked.record["engine"]["version"] == plan.engine.version:
            message = f"whether the values are still those of SGLang {plan.engine.version} cannot be known: "
            hint = f"{program()} release fetch {plan.engine.version}"
            yield Finding("error", "LCK014", message + "it was not asked", ("engine.version",), hint)
        then, now = locked.intent, plan.intent
    names = [name for name in dict.fromkeys([*then, *now]) if name not in NOT_IDENTITY]
    then, now = ({name: plain(values.get(name, _ABSENT_NAME)) for name in names} for values in (then, now))
    for item in between("value", then, now, same=_is_same):
        if not (item.key == "random_seed" and item.before is None and plan.seed_drawn):
            yield _other("LCK005", item, _who_now(item.key, plan), said_then=_who_then(item.key, locked))


def _is_same(then: Any, now: Any) -> bool:
    return bool(then == now) and isinstance(then, bool) is isinstance(now, bool)


def _who_now(name: str, plan: Plan) -> str:
    written, chain = plan.resolution.ledger.of(name), plan.origins.get(name, ())
    if written:
        return f"{written[-1].rule}: {written[-1].reason}"
    return chain[-1].place or chain[-1].layer if chain else "SGLang's default"


def _who_then(name: str, locked: SavedPlan) -> str:
    written = [entry for entry in locked.record["ledger"] if entry["field"] == name]
    if written:
        return f"{written[-1].get('rule')}: {written[-1].get('reason')}"
    chain = locked.record["origins"].get(name)
    last = chain[-1] if isinstance(chain, list) and chain and isinstance(chain[-1], dict) else {}
    return str(last.get("place") or "SGLang's default")


def _other(id: str, item: Difference, by: str | None, hint: str | None = None, said_then: str | None = None) -> Finding:
    before = f" ({said_then})" if said_then else ""
    after = f" ({by})" if by else ""
    message = f"{item.key}: {_shown(item.before)} in the lock{before}, now {_shown(item.after)}{after}"
    return Finding("error", id, message, (item.key,), hint)


def _shown(value: Any) -> str:
    return number(value) if isinstance(value, float) else shown(value)


def _place(typed: Mapping[str, str], *keys: str) -> str | None:
    return next((typed[key] for key in keys if key in typed), None)
