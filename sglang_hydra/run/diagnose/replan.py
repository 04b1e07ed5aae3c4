"""Plans a failed server again from the arguments in its log, on the GPU that the log names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.tables.order import release_key
from sglang_hydra.arguments.tables.table import known_versions, nearest_known
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.facts.hub import offline
from sglang_hydra.facts.installed import installed
from sglang_hydra.planning.plan import Plan
from sglang_hydra.releases.records import default_release
from sglang_hydra.run.diagnose.classes import LOG_LINES
from sglang_hydra.run.diagnose.diagnosis import Diagnosis
from sglang_hydra.run.diagnose.log_facts import releases_with
from sglang_hydra.run.diagnose.server_args import named
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.user_settings import settings

_WAVES, _MACHINE = LOG_LINES["replanned"], frozenset(LOG_LINES["of_the_machine"])
"""The concerns of the arguments that are planned again, in the order in which they are compared with the log: what
decides first. The others belong to the log's machine."""
_SNAPSHOT = re.compile(r"models--([\w.-]{1,96}?)--([\w.-]{1,96})/")
_PLACE = "the log"
_CAPACITY_BELOW = (0.005, 0.03)
"""The share of the class's memory that torch does not see, from least to most: the driver and the context take it."""
_MOST_CLASSES = 4
_ROUNDS = 3


class Replanned(NamedTuple):
    """One plan for each GPU class that the log's GPU may be, and the assumptions."""

    plans: tuple[Plan, ...]
    requests: tuple[tuple[Request, ...], ...]
    remarks: tuple[str, ...]


def replan(diagnosis: Diagnosis, composer: Composer, overrides: Sequence[Request] = ()) -> Replanned | str:
    """Plans the server of a log again; ``overrides`` (gpu=h100, model=...) replace values of the log.

    Returns the reason as text when it cannot: the model or the GPU is unknown, or the arguments do not compose."""
    words = dict(request.text.partition("=")[::2] for request in overrides)
    typed = {name.partition(".")[0] for name in words}
    remarks: list[str] = []
    release, why = words.get("engine.version", default_release()), None
    if "engine" not in typed:
        release, why = release_of(diagnosis)
    remarks += [f"{why}: planned for SGLang {release}"] if why else []
    values, refused = _planned_values(diagnosis, release)
    remarks += [f"left out, as SGLang {release} does not take the value: {', '.join(refused)}"] if refused else []
    model = None if typed & {"model", "model_path", "recipe"} else _model_of(values, composer, remarks)
    if model is None and not typed & {"model", "model_path", "recipe"}:
        return "the log has no server_args line that names a model; type model=... after the file"
    gpus = [None] if typed & {"gpu", "recipe"} else gpu_classes_of(diagnosis, composer, remarks)
    if not gpus:
        return "the log does not say which GPU it was; type gpu=... after the file"
    fixed = [model] if model else []
    fixed += [] if "engine" in typed else list(map(_chosen, ("engine=sglang", f"engine.version={release}")))
    rest = {name: value for name, value in values.items() if name not in typed and name != "model_path"}
    plans, kept = [], []
    for gpu in gpus:
        chosen = [*fixed, _chosen(f"gpu={gpu}")] if gpu else fixed
        try:
            plan, requests = _minimal(composer, chosen, rest, overrides, remarks)
            ranks = -(-plan.layout.gpus // plan.layout.nodes)  # of a node
            if "gpu" not in typed and (plan.gpu.count or 0) < ranks:
                chosen = [*chosen, _chosen(f"gpu.count={ranks}")]
                plan, requests = _minimal(composer, chosen, rest, overrides, remarks)
        except ConfigError as failure:
            first = failure.findings[0]
            what = "what was typed" if first.typed else "the arguments of the log"
            return f"{what} cannot be planned: {first.message}{f': {first.hint}' if first.typed and first.hint else ''}"
        if not plan.model.known:
            path = plan.values["model_path"]
            return f"{path} is unknown here; type model=PRESET or model=FOLDER after the file"
        plans.append(plan)
        kept.append(tuple(requests))
    return Replanned(tuple(plans), tuple(kept), tuple(dict.fromkeys(remarks)))


def _chosen(text: str) -> Request:
    return Request(text, _PLACE, "experiment")


def release_of(diagnosis: Diagnosis) -> tuple[str, str | None]:
    """Returns the release to plan for, and the reason for this choice; None when the log names a known release.

    For an unrecorded release returns the nearest recorded one. Otherwise chooses among the releases that have all
    logged arguments: the installed one, else the user's choice, else the newest."""
    known, stated = known_versions(), diagnosis.version or ""
    if stated in known:
        return stated, None
    near = stated.removeprefix("near ")
    if release_key(near) is not None:
        nearest = nearest_known(near) or known[0]
        return nearest, f"the log is of a release {stated}, and {nearest} is the nearest one that is known here"
    fitting = [version for version in releases_with(diagnosis.server_args or {}) if version in known]
    choice = settings().release
    liked = (
        (installed(None).versions.get("sglang"), "is installed here"),
        (choice.value if choice else None, "is the choice of your settings (release use)"),
        (known[-1], "is the newest one"),
        (fitting[-1] if fitting else "", "has all arguments that it writes down"),
    )
    fits = ((version, why) for version, why in liked if version in fitting)
    found, why = next(fits, (default_release(), "is the default"))
    return found, f"the log names no release, and {found} {why}"


def _planned_values(diagnosis: Diagnosis, version: str) -> tuple[dict[str, object], list[str]]:
    """Returns the logged arguments to plan again, under the names of ``version``, and those that the failing condition
    reads: without them, a change would be planned for a server that cannot have this fault. Also returns the names
    whose values the release does not take."""
    logged, refused = named(diagnosis.server_args or {}, version)
    read = diagnosis.cause.arguments if diagnosis.cause is not None else {}
    concerns = {concern for wave in _WAVES for concern in wave}
    again = {name for name in logged if EVERY[name].concern in concerns and name not in _MACHINE}
    return {name: value for name, value in logged.items() if name in read or name in again}, refused


def _model_of(values: Mapping[str, object], composer: Composer, remarks: list[str]) -> Request | None:
    """Returns the request for the model: an existing path, a preset of the same name, or the name on the hub."""
    from sglang_hydra.planning.choosing.catalog import models

    path = values.get("model_path")
    if not isinstance(path, str) or not path:
        return None
    snapshot = _SNAPSHOT.search(path)
    path = f"{snapshot[1]}/{snapshot[2]}" if snapshot is not None else path
    name = path.rstrip("/").rpartition("/")[2].lower()
    fixed = (preset for preset in models(composer) if not preset.path.startswith("${"))
    preset = next((preset for preset in fixed if preset.path.rpartition("/")[2].lower() == name), None)
    if preset is None or os.path.exists(path):
        return Request.typed("model_path", path, _PLACE, "experiment")
    if preset.path != path:
        remarks.append(f"{path} is taken for model={preset.name}, by its name")
    return _chosen(f"model={preset.name}")


def gpu_classes_of(diagnosis: Diagnosis, composer: Composer, remarks: list[str]) -> list[str | None]:
    """Returns the GPU classes that the log's GPU may be: by its name, else all with that much memory."""
    from sglang_hydra.facts.probe import GpuProbe
    from sglang_hydra.facts.recognise import recognise
    from sglang_hydra.planning.choosing.catalog import gpu_classes
    from sglang_hydra.planning.making.gpu_class import gpu_nodes

    if (diagnosis.server_args or {}).get("device") == "cpu":
        return ["cpu"]
    capacity = diagnosis.gpu_memory_mib
    presets = gpu_nodes(composer) if diagnosis.gpu else {}
    for preset in presets.values():
        memory = capacity or preset.get("memory_mib")
        seen = GpuProbe("nvidia", "cuda", (diagnosis.gpu or "",), visible_memory_mib=memory, count=1)
        if (name := recognise(seen, presets)) is not None:
            remarks.append(f"the log names {diagnosis.gpu}: gpu={name}")
            return [name]
    least, most = _CAPACITY_BELOW
    found: list[str | None] = [
        gpu.name
        for gpu in (gpu_classes(composer) if capacity else ())
        if gpu.facts.is_cuda and gpu.facts.memory_mib and least <= 1 - (capacity or 0) / gpu.facts.memory_mib <= most
    ]
    if not capacity or not 1 <= len(found) <= _MOST_CLASSES:
        return []
    remarks.append(f"a GPU of {capacity / 1024:.1f} GiB is taken for gpu={' or '.join(map(str, found))}")
    return found


def _minimal(
    composer: Composer,
    fixed: Sequence[Request],
    values: Mapping[str, object],
    overrides: Sequence[Request],
    remarks: list[str],
) -> tuple[Plan, list[Request]]:
    """Returns a plan of few arguments that resolves to the logged values, and its requests.

    SGLang logs the values after it resolved them, so most were never typed: only those that the plan lacks are added,
    first those that decide others. Raises ConfigError when nothing composes."""
    from sglang_hydra.planning.making.make import make_plan

    def planned(added: Mapping[str, object]) -> tuple[Plan, list[Request]]:
        requests = [*fixed, *(Request.typed(*item, _PLACE, "experiment") for item in added.items()), *overrides]
        return make_plan(composer, requests, env=offline()), requests

    added: dict[str, object] = {}
    plan, requests = planned(added)
    for wave in (wave for wave in _WAVES for _ in range(_ROUNDS)):
        more = {
            name: value
            for name, value in values.items()
            if (EVERY[name].concern in wave or wave is _WAVES[-1])
            and name not in added
            and plan.values.get(name, value) != value
        }
        chunk, groups = more.get("chunked_prefill_size"), plan.layout.attention_groups
        if isinstance(chunk, int) and groups > 1:
            more["chunked_prefill_size"] = chunk * groups  # SGLang divides it by the groups
        try:
            plan, requests = planned({**added, **more}) if more else (plan, requests)
            added |= more
        except ConfigError as failure:
            refused = {name for name in more if any(name in item.fields for item in failure.findings)}
            if not refused:
                raise
            remarks.append(f"left out, as the release does not take the value: {', '.join(sorted(refused))}")
            values = {name: value for name, value in values.items() if name not in refused}
    return plan, requests
