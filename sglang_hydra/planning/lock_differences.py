"""Where a recorded plan and the one of today differ, each with what it was, what it is now, and who says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sglang_hydra.facts.stated_config import laid_over
from sglang_hydra.planning.plan import NOT_IDENTITY
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import plain
from sglang_hydra.text.screen import shown
from sglang_hydra.text.words import number, program

if TYPE_CHECKING:
    from sglang_hydra.planning.plan import Plan
    from sglang_hydra.planning.saved import SavedPlan

_GPU = ("vendor", "device", "memory_mib", "compute_capability", "count", "flashinfer", "triton_kernels")
_WHERE_IT_RUNS = ("engine", "launch", "gpu")
"""Groups of which only the outcome counts."""
_WHOLE = "transformers_version"
_ABSENT = object()
_ABSENT_NAME = "(no such argument)"


def differences(locked: SavedPlan, plan: Plan, typed: Mapping[str, str]) -> Iterator[Finding]:
    """One error for each part of a server's identity that is not as recorded, causes before what follows from them.

    ``typed`` are the keys that were given on top of the lock, with their places.
    """
    record = locked.record
    yield from _choices(record["choices"], plan, typed)
    yield from _engine(record, plan, typed)
    yield from _image(record, plan, typed)
    yield from _gpu(record["gpu"], plan, typed)
    yield from _model(record["model"], plan, typed)
    yield from _environment(record, plan)
    yield from _values(locked, plan)
    yield from _extra(record.get("extra", {}), plan, typed)


def _choices(recorded: Mapping[str, Any], plan: Plan, typed: Mapping[str, str]) -> Iterator[Finding]:
    """Options that were chosen on top: the recorded arguments would silently beat what they bring."""
    for group, place in typed.items():
        then, now = recorded.get(group), plan.choices.get(group)
        if group in plan.choices and group not in _WHERE_IT_RUNS and then != now:
            yield _other("LCK007" if group == "model" else "LCK005", group, then, now, place)


def _engine(record: Mapping[str, Any], plan: Plan, typed: Mapping[str, str]) -> Iterator[Finding]:
    recorded = record["engine"]
    setting = record.get("settings", {}).get("engine.version", {})
    # A lock of a lock has it from there, not from somebody who named it.
    named = setting.get("layer", "lock") != "lock" or "engine.version" in typed
    version = plan.engine.version if named else _installed_version(plan)
    for key, then, now in (
        ("engine", recorded["name"], plan.engine.name),
        ("engine.version", recorded["version"], version),
    ):
        if then != now:
            by = _place(typed, key, "engine.python") or "installed here"
            hint = f"{key}={then}" if key in typed else f"engine.python=<an interpreter that has SGLang {then}>"
            yield _other("LCK008", key, then, now, by, hint)


def _installed_version(plan: Plan) -> str:
    """The release that would run; where none is installed, nothing speaks against the recorded one."""
    from sglang_hydra.facts.packages import installed

    return installed(plan.engine.python).versions.get(plan.engine.name) or plan.engine.version


def _image(record: Mapping[str, Any], plan: Plan, typed: Mapping[str, str]) -> Iterator[Finding]:
    setting = record.get("settings", {}).get("launch.image") or {}
    then, now = setting.get("value"), plan.nodes["launch"]["image"]
    if then != now:
        yield _other("LCK009", "launch.image", then, now, _place(typed, "launch.image"))


def _gpu(recorded: Mapping[str, Any], plan: Plan, typed: Mapping[str, str]) -> Iterator[Finding]:
    for key in _GPU:
        then, now = recorded[key], plain(getattr(plan.gpu, key))
        if then != now:
            preset = f"gpu={plan.choices.get('gpu')}" if not plan.probed else "this machine"
            yield _other("LCK006", f"gpu.{key}", then, now, _place(typed, f"gpu.{key}", "gpu") or preset)


def _model(recorded: Mapping[str, Any], plan: Plan, typed: Mapping[str, str]) -> Iterator[Finding]:
    by = _place(typed, "model_path", "model", "revision") or plan.model.source
    if recorded["revision"] != plan.model.revision:
        hint = f"revision={recorded['revision']}" if recorded["revision"] else None
        yield _other("LCK007", "model.revision", recorded["revision"], plan.model.revision, by, hint)
    then, now = recorded["config"] or {}, plain(plan.model.config or {})
    if _WHOLE in now and _WHOLE not in then:
        then = laid_over(now, then)  # an excerpt says nothing about what it leaves out
    for key in (*then, *(key for key in now if key not in then)):
        if then.get(key, _ABSENT) != now.get(key, _ABSENT):
            yield _other("LCK007", f"model.config.{key}", then.get(key), now.get(key), by)


def _environment(record: Mapping[str, Any], plan: Plan) -> Iterator[Finding]:
    """The SGLANG_* variables that the server would find, whoever sets them."""
    then = {**record["inherited"], **_sglang(record["environment"])}
    now = {**plan.inherited, **_sglang(plan.shown_environment)}
    for name in sorted({*then, *now}):
        if then.get(name) != now.get(name):
            hint = f"export {name}={then[name]}" if name in then else f"unset {name}"
            yield _other("LCK010", name, then.get(name), now.get(name), "the environment", hint)


def _values(locked: SavedPlan, plan: Plan) -> Iterator[Finding]:
    then_known, now_known = locked.values, plan.values
    if "rules" in (locked.basis, plan.basis):
        if locked.basis != "rules" and locked.record["engine"]["version"] == plan.engine.version:
            message = f"whether the values are still those of SGLang {plan.engine.version} cannot be known: "
            hint = f"{program()} release fetch {plan.engine.version}"
            yield Finding("error", "LCK014", message + "it was not asked", ("engine.version",), hint)
        then_known, now_known = locked.intent, plan.intent
    for name in dict.fromkeys([*then_known, *now_known]):
        then, now = plain(then_known.get(name, _ABSENT_NAME)), plain(now_known.get(name, _ABSENT_NAME))
        same = then == now and isinstance(then, bool) is isinstance(now, bool)
        is_drawn = name == "random_seed" and then is None and plan.seed_drawn
        if same or is_drawn or name in NOT_IDENTITY:
            continue
        yield _other("LCK005", name, then, now, _who_now(name, plan), said_then=_who_then(name, locked))


def _extra(then: Mapping[str, Any], plan: Plan, typed: Mapping[str, str]) -> Iterator[Finding]:
    now = plain(plan.extra)
    for name in sorted({*then, *now}):
        if then.get(name) != now.get(name):
            key = f"extra.{name}"
            yield _other("LCK005", key, then.get(name), now.get(name), _place(typed, key, "extra"))


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


def _other(
    id: str, key: str, then: Any, now: Any, by: str | None, hint: str | None = None, said_then: str | None = None
) -> Finding:
    before = f" ({said_then})" if said_then else ""
    after = f" ({by})" if by else ""
    return Finding("error", id, f"{key}: {_shown(then)} in the lock{before}, now {_shown(now)}{after}", (key,), hint)


def _shown(value: Any) -> str:
    return number(value) if isinstance(value, float) else shown(value)


def _place(typed: Mapping[str, str], *keys: str) -> str | None:
    return next((typed[key] for key in keys if key in typed), None)


def _sglang(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("SGLANG_")}
