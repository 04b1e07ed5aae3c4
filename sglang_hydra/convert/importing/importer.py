"""From a text to experiments: the servers in it, each with its nearest preset and the fewest overrides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sglang_hydra.arguments.argv import render_argv
from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.secrets import API_KEY_REFERENCE, SECRET_FIELDS, is_secret_name
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.translate import translate
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.convert.importing.flags import Arguments, read_arguments
from sglang_hydra.convert.importing.hardware import classes_named_in
from sglang_hydra.convert.importing.launches import Launch, is_open, without_marks
from sglang_hydra.convert.importing.passwords import hidden_in, holds_a_password, variable_for
from sglang_hydra.convert.importing.reduction import Reduced, Wanted, nearest_preset, reduce_to_preset
from sglang_hydra.convert.importing.sources import Source, launches_of
from sglang_hydra.convert.importing.typed import Typed
from sglang_hydra.planning.catalog import gpu_classes
from sglang_hydra.planning.difference import why
from sglang_hydra.releases.order import same_release
from sglang_hydra.releases.table import known_versions, nearest_known
from sglang_hydra.run.diagnose.replan import offline
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import shown
from sglang_hydra.text.words import program, short

_VERSION = re.compile(
    r"sglang(?:\[[\w,-]{0,80}\])?(?:[:@](?:[\w-]+-)?v?|==|\+v|-v)(\d+\.\d+\.\d+(?:[.-]?(?:post|rc)\d+)?)"
)
_NO_GPU = ("auto", "none", "cpu")
_NODE_RANK = "node_rank"


@dataclass(frozen=True)
class State:
    """What became of one argument of the source: kept, redundant, overridden (kept, and a rule replaces it), deprecated
    (kept), undone (a preset has it, the source has not), extra, open, secret. ``note`` says who or why."""

    name: str
    value: Any
    state: str
    note: str = ""


@dataclass(frozen=True)
class Imported:
    """One server as an experiment. ``arguments`` are all that the source says, ``overrides`` what of it is needed on
    top of ``choices``; ``nodes`` are dotted keys of ours. ``equal`` says that both were planned to the same server;
    ``server_id`` is its identity where the GPU is known. ``argv`` are SGLang's flags for all of it, without secrets."""

    name: str
    kind: str
    place: str
    choices: Mapping[str, str]
    overrides: Mapping[str, Any]
    nodes: Mapping[str, Any]
    arguments: Mapping[str, Any]
    extra: Mapping[str, Any]
    version: str | None
    states: tuple[State, ...]
    argv: tuple[str, ...] | None
    equal: bool
    server_id: str | None
    findings: tuple[Finding, ...] = field(default=())

    @property
    def complete(self) -> bool:
        """Whether everything that the source says is in the experiment, or left out for a reason that is none."""
        return not any(finding.level == "error" for finding in self.findings)


def import_source(source: Source, typed: Typed, composer: Composer) -> list[Imported]:
    """Imports every server of a source. ``typed`` are the overrides behind the source, which win over it.

    Raises ConfigError for a source that starts no server.
    """
    read = _of_one_release([_read(launch, typed, source) for launch in launches_of(source, composer)], source)
    servers = [_import_one(launch, arguments, typed, composer) for launch, arguments in _of_one_server(read)]
    return _named(servers)


def _read(launch: Launch, typed: Typed, source: Source) -> tuple[Launch, Arguments]:
    version = typed.nodes.get("engine.version") or launch.version or _version_in(launch.mentions)
    arguments = read_arguments(launch, version if version and nearest_known(str(version)) else None, source.folder)
    if version and not nearest_known(str(version)):
        message = f"the source is for SGLang {version}, which is not in the table of releases: planned for 0.5.2"
        arguments.findings.append(Finding("warning", "IMP004", message, ("engine.version",)))
    if launch.nodes is not None and launch.nodes > 1 and "nnodes" not in arguments.known:
        arguments.known["nnodes"] = launch.nodes
        if arguments.left_open.pop("nnodes", None):
            arguments.findings = [item for item in arguments.findings if item.fields != ("nnodes",)]
    for remark in launch.remarks:
        arguments.findings.append(Finding("warning", "IMP011", remark))
    return launch, arguments


def _of_one_release(read: Sequence[tuple[Launch, Arguments]], source: Source) -> Sequence[tuple[Launch, Arguments]]:
    """Gives servers of one source the same release: where several were guessed from flags, the latest."""
    guessed = [arguments.version for _, arguments in read if arguments.guessed and arguments.version]
    if len(set(guessed)) < 2:
        return read
    latest = max(guessed, key=known_versions().index)
    return [
        _read(launch, Typed(nodes={"engine.version": latest}), source) if arguments.guessed else (launch, arguments)
        for launch, arguments in read
    ]


def _of_one_server(read: Sequence[tuple[Launch, Arguments]]) -> Iterator[tuple[Launch, Arguments]]:
    """Merges the commands of several nodes into one server: they differ in their rank alone."""
    seen: list[tuple[Any, ...]] = []
    for launch, arguments in sorted(read, key=lambda item: int(item[1].known.get(_NODE_RANK) or 0)):
        same = {name: value for name, value in arguments.known.items() if name != _NODE_RANK}
        key = (same, arguments.extra, launch.name)
        nodes = arguments.known.get("nnodes", 1)
        if isinstance(nodes, int) and nodes > 1 and key in seen:
            continue
        seen.append(key)
        yield launch, arguments


def _import_one(launch: Launch, arguments: Arguments, typed: Typed, composer: Composer) -> Imported:
    gpus, gpu_findings = _gpu(launch, arguments, typed, composer)
    known = {**arguments.known, **typed.values}
    if "model" in typed.choices:
        known.pop("model_path", None)
    secrets = {name: API_KEY_REFERENCE for name in SECRET_FIELDS if known.pop(name, None) is not None}
    secrets |= arguments.secrets
    addresses = [name for name, value in known.items() if holds_a_password(value)]
    secrets |= {name: f"${{oc.env:{variable_for(name)}}}" for name in addresses}
    known = {name: value for name, value in known.items() if name not in addresses}
    environment, secret_variables = _environment(launch.environment)
    extra = {
        name: value
        for name, value in arguments.extra.items()
        if name not in typed.values and not holds_a_password(value)
    }
    version = arguments.version
    nodes = _engine_nodes(version, environment, extra)
    gpu = gpus[0] if len(gpus) == 1 and gpus[0] not in _NO_GPU else None
    if gpu and launch.gpu_count and _usual_count(gpu, composer) not in (None, launch.gpu_count):
        nodes["gpu.count"] = launch.gpu_count
    nodes |= arguments.topology
    nodes |= typed.nodes
    findings = [*arguments.findings, *gpu_findings, *_secret_findings(secrets, secret_variables)]
    contexts = gpus or _all_classes(launch, known, composer)
    planned = {name: _as_meant(name, value) for name, value in known.items()}
    grouped = {"topology": "replicas"} if arguments.topology else {}
    grouped |= {name: choice for name, choice in typed.choices.items() if name != "gpu"}
    settings = {**grouped, **nodes}
    try:
        reduced = reduce_to_preset(Wanted(planned, settings, launch.resolved), contexts, composer, offline())
    except ConfigError as failure:
        findings += failure.findings
        reduced = Reduced(None, planned, {}, {}, False)
    overrides = {**reduced.overrides, **secrets}
    choices = {"gpu": gpus[0]} if len(gpus) == 1 else {}
    if reduced.model is not None:
        choices["model"] = reduced.model
    choices |= {name: choice for name, choice in (grouped | dict(typed.choices)).items() if name not in choices}
    if "model_path" not in secrets:
        findings += _planned_findings(reduced, known, launch, composer, len(gpus) == 1)
    nodes |= {f"engine.env.{name}": f"${{oc.env:{name}}}" for name in secret_variables}
    return Imported(
        name=launch.name,
        kind=launch.kind,
        place=launch.place,
        choices=choices,
        overrides=overrides,
        nodes=nodes,
        arguments={**known, **secrets},
        extra=extra,
        version=version,
        states=tuple(_states(reduced, known, arguments, secrets, extra)),
        argv=_argv(known, extra, version),
        equal=reduced.equal,
        server_id=reduced.small[gpus[0]].server_id if len(gpus) == 1 and gpus[0] in reduced.small else None,
        findings=tuple(dict.fromkeys(hidden_in(findings))),
    )


def _engine_nodes(version: str | None, environment: Mapping[str, str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the engine: its release where that matters, its variables and what only later releases take."""
    nodes: dict[str, Any] = {}
    if version is not None and (extra or not same_release(version, SPECIFIED_VERSION)):
        nodes["engine.version"] = nearest_known(version) or version
    nodes |= {f"engine.env.{name}": value for name, value in environment.items()}
    return nodes | {f"extra.{name}": value for name, value in extra.items()}


def _as_meant(name: str, value: Any) -> Any:
    """Converts a switch that SGLang's command line reads as text: any text switches it on, also false."""
    return bool(value) if FIELDS[name].is_flag and isinstance(value, str) else value


def _gpu(launch: Launch, arguments: Arguments, typed: Typed, composer: Composer) -> tuple[list[str], list[Finding]]:
    """The GPU class, if the source names one."""
    if "gpu" in typed.choices:
        return [typed.choices["gpu"]], []
    found = list(launch.gpu_classes) or classes_named_in((*launch.mentions, *launch.files), composer.options("gpu"))
    if not found and arguments.known.get("device") == "cpu":
        found = ["cpu"]
    if len(found) == 1:
        return found, []
    hint = "put gpu=... behind the source, or into the file"
    if found:
        message = f"the source speaks of {', '.join(found)}: gpu is left out, which means the machine that plans it"
    else:
        message = "the source does not say which GPU it is for: gpu is left out, which means the machine that plans it"
    return [], [Finding("info", "IMP010", message, ("gpu",), hint)]


def _all_classes(launch: Launch, known: Mapping[str, Any], composer: Composer) -> list[str]:
    """Returns the classes on which a reduction must hold where the GPU is not known: all of the device, or those
    that fit a log."""
    if launch.gpu_classes:
        return list(launch.gpu_classes)
    classes = [gpu for gpu in gpu_classes(composer) if gpu.name not in _NO_GPU]
    same = [gpu.name for gpu in classes if gpu.facts.device == known.get("device")]
    return same or [gpu.name for gpu in classes]


def _usual_count(gpu: str, composer: Composer) -> int | None:
    count = composer.compose([Request(f"gpu={gpu}", "the source")]).nodes["gpu"]["count"]
    return count if isinstance(count, int) else None


def _environment(given: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Returns the variables to set, and the names of those that hold secrets. Variables that are known only where it
    runs are left out."""
    kept: dict[str, str] = {}
    secrets: list[str] = []
    for name, value in given.items():
        if is_open(value) or not (name.isascii() and name.isidentifier()) or "\0" in value or not value:
            continue
        if is_secret_name(name.upper()) or holds_a_password(value):
            secrets.append(name)
        else:
            kept[name] = value
    return kept, secrets


def _secret_findings(secrets: Mapping[str, str], variables: Sequence[str]) -> Iterator[Finding]:
    for name, reference in secrets.items():
        variable = reference.removeprefix("${oc.env:").removesuffix("}")
        message = f"{name} is a secret: the file refers to {reference}"
        yield Finding("warning", "IMP009", message, (name,), f"export {variable}=... before it is planned or started")
    for name in variables:
        message = f"{name} is a secret: the file refers to ${{oc.env:{name}}}"
        yield Finding("warning", "IMP009", message, (f"engine.env.{name}",), f"export {name}=... before it is planned")


def _planned_findings(
    reduced: Reduced, known: Mapping[str, Any], launch: Launch, composer: Composer, gpu_known: bool
) -> Iterator[Finding]:
    if known.get("model_path") is None and reduced.model is None:
        message = "the source does not say which model: the file needs one"
        yield Finding("error", "IMP006", message, ("model_path",), "put model=... behind the source")
        return
    plan = next(iter(reduced.small.values()), None)
    if reduced.respelled and plan is not None:
        message = (
            f"model_path={known['model_path']} is the checkpoint {plan.values['model_path']} of model={reduced.model}"
        )
        yield Finding("info", "IMP007", message, ("model_path",))
    elif reduced.model is None and plan is not None and not plan.model.known:
        message = f"nothing is known here of {short(shown(known.get('model_path')))}: no preset is for it"
        near = nearest_preset(str(known.get("model_path")), composer)
        meant = f"if {near} is meant, put it behind the source" if near else "put model=PRESET behind the source"
        hint = f"{meant}; {program()} --help model lists the presets"
        yield Finding("info", "IMP007", message, ("model_path",), hint)
    if launch.resolved and not reduced.equal and reduced.small:
        yield from _differences_from_log(reduced, known)
    elif not reduced.equal and reduced.small:
        message = "no preset plans to the same server: every argument is kept"
        yield Finding("warning", "IMP012", message)
    errors = plan.errors if gpu_known and plan is not None else ()
    if errors and plan is not None:
        reasons = "; ".join(f"{finding.id} {finding.message}" for finding in errors[:3])
        verdict = "it would start and then fail" if plan.ok else "SGLang 0.5.2 would refuse it"
        yield Finding("warning", "IMP016", f"on {plan.gpu.name} {verdict}: {reasons}", hint=f"{program()} check FILE")


def _differences_from_log(reduced: Reduced, known: Mapping[str, Any]) -> Iterator[Finding]:
    """Reports values of the log that no arguments lead to by the rules of 0.5.2."""
    plan = next(iter(reduced.small.values()))
    away = [name for name, value in known.items() if name in FIELDS and plan.values[name] != value]
    if away:
        listed = ", ".join(f"{name} {shown(known[name])} (planned: {shown(plan.values[name])})" for name in away[:8])
        message = f"the log's server resolved {len(away)} of its values otherwise: {listed}"
        yield Finding("info", "IMP013", message, tuple(away))


def _states(
    reduced: Reduced,
    known: Mapping[str, Any],
    arguments: Arguments,
    secrets: Mapping[str, str],
    extra: Mapping[str, Any],
) -> Iterator[State]:
    plan = next(iter(reduced.small.values()), None)
    full = list(reduced.full.values())
    deprecated = {
        name: item for plan_ in full[:1] for item in plan_.findings if item.id == "DEP004" for name in item.fields
    }
    for name in (name for name in FIELDS if name in known):
        value = known[name]
        replaced = [
            next((entry for entry in item.resolution.ledger.of(name) if entry.before == value), None) for item in full
        ]
        changed = [entry for entry in replaced if entry is not None and shown(entry.after) != shown(value)]
        if name not in reduced.overrides:
            preset = plan is not None and name == "model_path" and reduced.model is not None
            reason = why(plan, name) if plan is not None else ""
            # On several GPU classes a rule may have several reasons.
            note = f"model={reduced.model}" if preset else reason if len(full) == 1 else reason.partition(":")[0]
            yield State(name, value, "preset" if preset else "redundant", note)
        elif name in deprecated:
            hint = deprecated[name].hint or ""
            instead = hint.split()[list(deprecated[name].fields).index(name)] if hint else ""
            yield State(name, value, "deprecated", f"{instead} instead" if instead else "")
        elif changed and len(changed) == len(full):
            entry = changed[0]
            yield State(name, value, "overridden", f"{entry.rule} makes it {shown(entry.after)}: {entry.reason}")
        else:
            yield State(name, value, "kept")
    for name, value in reduced.overrides.items():
        if name not in known and reduced.respelled and name == "served_model_name":
            yield State(name, value, "undone", "what clients call it, as the source spells the model")
        elif name not in known:
            yield State(name, value, "undone", f"model={reduced.model} sets it, and the source does not")
    for name, value in extra.items():
        yield State(f"extra.{name}", value, "extra", f"an argument of SGLang {arguments.version}")
    for name, reference in secrets.items():
        yield State(name, reference, "secret")
    for name, written in arguments.left_open.items():
        yield State(name, "***" if is_secret_name(name) else without_marks(written), "open")
    for name in arguments.unread:
        yield State(name, None, "unknown")


def _argv(known: Mapping[str, Any], extra: Mapping[str, Any], version: str | None) -> tuple[str, ...] | None:
    """Returns SGLang's flags; None for arguments that no command line can express."""
    try:
        if not extra and (version is None or same_release(version, SPECIFIED_VERSION)):
            return tuple(render_argv(known))
        return tuple(translate(known, nearest_known(version or "") or known_versions()[0], extra).flags())
    except (ValueError, KeyError):
        return None


def _version_in(texts: Sequence[str]) -> str | None:
    for text in texts:
        if found := _VERSION.search(text):
            return found[1].replace("-", ".")
    return None


def _named(servers: Sequence[Imported]) -> list[Imported]:
    """Gives each of several servers a unique name."""
    if len(servers) == 1:
        return list(servers)
    roles = [str(server.arguments.get("disaggregation_mode") or "") for server in servers]
    wanted = [server.name or role or "server" for server, role in zip(servers, roles, strict=True)]
    named: list[Imported] = []
    for number, (server, name) in enumerate(zip(servers, wanted, strict=True)):
        role = roles[number]
        full = f"{name}-{role}" if wanted.count(name) > 1 and role not in ("", "null", name) else name
        taken = {item.name for item in named}
        count = 2
        unique = full
        while unique in taken:
            unique, count = f"{full}-{count}", count + 1
        named.append(replace(server, name=unique))
    return named
