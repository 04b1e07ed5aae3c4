"""Turns a text into experiments: finds its servers, and for each the nearest preset and the fewest overrides."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.secrets import (
    API_KEY_REFERENCE,
    HIDDEN,
    SECRET_FIELDS,
    has_secret_form,
    is_secret,
    is_secret_name,
    looks_drawn,
)
from sglang_hydra.arguments.tables.table import nearest_known
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import PAIR
from sglang_hydra.convert.importing.flags import Arguments
from sglang_hydra.convert.importing.launches import Launch, is_open, without_marks
from sglang_hydra.convert.importing.proof import Deviation, argv_of, compared
from sglang_hydra.convert.importing.reading import read_launches, version_in
from sglang_hydra.convert.importing.reduction import Reduced, preset_for, reduce_to_preset
from sglang_hydra.convert.importing.sources import Source, launches_of, within_budget
from sglang_hydra.convert.importing.typed import Typed
from sglang_hydra.facts.hub import offline
from sglang_hydra.planning.choosing.catalog import gpu_classes
from sglang_hydra.text.budget import check_items
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import Json, JsonDict, JsonObject, json_beside
from sglang_hydra.text.screen import shown
from sglang_hydra.text.words import program, short, without_secret_forms

NO_GPU = ("auto", "none", "cpu")
_VARIABLES = "engine.env."
_PORT = re.compile(r":(\d{1,5})\Z", re.ASCII)


@dataclass(frozen=True)
class State:
    """The fate of one argument of the source: kept, preset, overridden (kept, but a rule replaces it), deprecated
    (kept), undone (set only by the preset), extra, open, secret, unknown. ``note`` says who or why."""

    name: str
    value: Json
    state: str
    note: str = ""


@dataclass(frozen=True)
class Imported:
    """One server as an experiment. ``arguments`` are all those of the source, ``overrides`` those needed on top of
    ``choices``; ``nodes`` are dotted keys of ours. ``equal``: both plan to the same server; ``server_id`` is its
    identity on a known GPU. ``argv`` are all of SGLang's flags, without secrets. ``differences`` are deviations
    of the exported flags from the source. ``old`` maps arguments to the words of deprecated flags, ``refused``: the
    plan's release rejects it. ``image_version`` is the release of the named image. ``fits`` are the first and the last
    release that can read a source without a release. ``gpus`` are the classes that the source names, if several."""

    name: str
    kind: str
    place: str
    choices: Mapping[str, str]
    overrides: JsonObject
    nodes: JsonObject
    arguments: JsonObject
    extra: JsonObject
    version: str | None
    states: tuple[State, ...]
    argv: tuple[str, ...] | None
    equal: bool
    server_id: str | None
    fits: tuple[str, str] | None = None
    findings: tuple[Finding, ...] = field(default=())
    differences: tuple[Deviation, ...] = field(default=())
    old: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    idle: tuple[str, ...] = ()
    refused: bool = False
    image_version: str | None = None
    gpus: tuple[str, ...] = ()
    gpu_count: int | None = None

    @property
    def taken_over(self) -> bool:
        """Returns whether every part of the source could be read."""
        return not any(finding.level == "error" for finding in self.findings)

    @property
    def held(self) -> bool:
        """Returns whether the exported flags mean the same as the source's."""
        return all(item.harmless for item in self.differences)

    @property
    def complete(self) -> bool:
        """Returns whether everything was read, the exported flags mean the same, and the release, if known, accepts
        them."""
        return self.taken_over and self.held and not self.refused


def import_source(source: Source, typed: Typed, composer: Composer, on: Sequence[str] | None = None) -> list[Imported]:
    """Imports every server of a source. ``typed`` are the overrides behind the source, which win over it. Where they
    are planned afterwards, ``on`` these GPU classes (empty: on any), nothing is planned or compared here.

    Raises ConfigError for a source that starts no server."""
    with within_budget(source):
        found = list(read_launches(launches_of(source, composer), typed, source, composer))
    with within_budget(source):
        for launch, _ in found:
            check_items(len(launch.environment), "words", "variables")
    servers = [_import_one(launch, arguments, typed, composer, on) for launch, arguments in found]
    return _named(servers)


_On = Sequence[str] | None


def _import_one(launch: Launch, arguments: Arguments, typed: Typed, composer: Composer, on: _On) -> Imported:
    gpus, gpu_findings = _gpu(launch, arguments, typed, composer)
    values = {**arguments.values, **typed.values}
    known = {name: value for name, value in values.items() if name in FIELDS}
    extra = {name: value for name, value in values.items() if name not in FIELDS}
    if "model" in typed.choices:
        known.pop("model_path", None)
    environment, hidden = _environment(launch.environment)
    known, secrets = _without_secrets(known, arguments, hide := _hiding({**launch.variables, **launch.environment}))
    version = arguments.version or (arguments.read_by if extra else None)
    gpu = gpus[0] if len(gpus) == 1 and gpus[0] not in NO_GPU else None
    nodes = _nodes(version, environment, extra, arguments.left_open)
    nodes |= _count_of(launch, gpu, composer, is_planned_later=on is not None)
    nodes |= {**(facts := _facts_of_hidden(known, typed, composer)), **typed.nodes}
    findings = [*arguments.findings, *_guess_findings(arguments), *gpu_findings, *_facts_findings(facts, known)]
    findings += _secret_findings({**secrets, **hidden})
    planned = {name: _as_meant(name, value) for name, value in known.items()}
    grouped = {name: choice for name, choice in typed.choices.items() if name != "gpu"}
    try:
        classes = gpus or on or _all_classes(launch, known, composer)
        is_planned, settings = on is None and len(gpus) == 1, {**grouped, **nodes}
        reduced = reduce_to_preset(planned, settings, classes, composer, offline(), is_planned=is_planned)
    except ConfigError as failure:
        findings += failure.findings
        reduced = Reduced(None, planned, None, False)
    overrides = {**reduced.overrides, **secrets}
    choices = {"gpu": gpus[0]} if len(gpus) == 1 else {}
    choices |= {} if reduced.model is None else {"model": reduced.model}
    choices |= {name: choice for name, choice in typed.choices.items() if name not in choices}
    if "model_path" not in secrets:
        findings += _planned_findings(reduced, known, composer)
    nodes |= hidden
    states = tuple(_states(reduced, known, arguments, secrets, extra))
    settings, by_name = {**choices, **overrides, **nodes}, {state.name: state.state for state in states}
    differences = compared(settings, arguments.read_by, by_name, arguments, typed, composer) if on is None else ()
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
        states=states,
        argv=argv_of({**known, **extra}, arguments.read_by),
        equal=reduced.equal,
        server_id=reduced.plan.server_id if reduced.plan is not None else None,
        fits=arguments.guess[:2] if arguments.guess is not None else None,
        findings=tuple(dict.fromkeys(replace(item, message=hide(item.message)).reworded(hide) for item in findings)),
        differences=tuple(differences),
        old=arguments.old,
        idle=tuple(arguments.idle),
        refused=reduced.plan is not None and not reduced.plan.ok,
        image_version=version_in(launch.mentions),
        gpus=tuple(gpus),
        gpu_count=launch.gpu_count,
    )


def _count_of(launch: Launch, gpu: str | None, composer: Composer, *, is_planned_later: bool) -> JsonDict:
    """Returns the number of GPUs that the source gives the server, where it is not the usual one of its class."""
    usual = composer.compose([Request(f"gpu={gpu}", "the source")]).nodes.gpu.count if gpu else None
    is_stated = usual not in (None, launch.gpu_count) if gpu else is_planned_later
    return {"gpu.count": launch.gpu_count} if launch.gpu_count and is_stated else {}


def _facts_of_hidden(known: Mapping[str, object], typed: Typed, composer: Composer) -> dict[str, str]:
    """Returns the preset with the facts of a model without a preset of its path: by served_model_name for a folder of
    another machine, or by another spelling of the checkpoint's name."""
    path, served = str(known.get("model_path") or ""), str(known.get("served_model_name") or "")
    is_named = "model" in typed.choices or any(key.startswith("model.") for key in typed.nodes)
    preset = None if is_named or os.path.exists(path) else preset_for(served if path[:1] == "/" else path, composer)
    return {} if preset is None or preset.path == path else {"model.facts_from": preset.name}


def _without_secrets(
    known: Mapping[str, object], arguments: Arguments, hide: Callable[[str], str]
) -> tuple[dict[str, object], dict[str, str]]:
    """Returns the arguments without secrets, and references for the secret ones."""
    kept = dict(known)
    secrets = {name: API_KEY_REFERENCE for name in SECRET_FIELDS if kept.pop(name, None) is not None}
    secrets |= arguments.secrets
    addresses = [name for name, value in kept.items() if has_secret_form(value) or hide(str(value)) != str(value)]
    secrets |= {name: f"${{oc.env:SGLANG_HYDRA_{name.upper()}}}" for name in addresses}
    return {name: value for name, value in kept.items() if name not in addresses}, secrets


def _guess_findings(arguments: Arguments) -> Iterator[Finding]:
    guess = arguments.guess
    if guess is None or arguments.version is None or guess.first == guess.last:
        return
    reasons = ", ".join(guess.evidence[:4]) + (", ..." if len(guess.evidence) > 4 else "")
    message = f"SGLang {arguments.version} is a guess: {guess.first} to {guess.last} fit, by {reasons}"
    yield Finding("info", "IMP017", message, ("engine.version",), "put engine.version=... behind the source")


def _nodes(
    version: str | None, environment: Mapping[str, str], extra: Mapping[str, object], left_open: Mapping[str, str]
) -> JsonDict:
    """Returns the keys of the engine: its release, its variables and arguments of other releases; and the rendezvous
    port if the nodes' address is known only at run time."""
    nodes: dict[str, object] = {}
    if version is not None:
        nodes["engine.version"] = nearest_known(version) or version
    nodes |= {f"{_VARIABLES}{name}": value for name, value in environment.items()}
    if port := _PORT.search(left_open.get("dist_init_addr", "")):
        nodes["launch.head_port"] = int(port[1])
    return nodes | dict(extra)


def _as_meant(name: str, value: object) -> object:
    """Converts a switch that SGLang's command line reads as text: any text, even false, switches it on."""
    return bool(value) if EVERY[name].is_flag and isinstance(value, str) else value


def _facts_findings(facts: Mapping[str, str], known: Mapping[str, object]) -> Iterator[Finding]:
    for key, preset in facts.items():
        message = f"{known['model_path']} has the facts of model={preset}, whose checkpoint the source names"
        yield Finding("info", "IMP007", message, ("model_path",), f"{key}=... names another one")


def _gpu(launch: Launch, arguments: Arguments, typed: Typed, composer: Composer) -> tuple[list[str], list[Finding]]:
    if "gpu" in typed.choices:
        return [typed.choices["gpu"]], []
    found = list(launch.gpu_classes) or classes_named_in((*launch.mentions, *launch.files), composer.options("gpu"))
    if not found and arguments.values.get("device") == "cpu":
        found = ["cpu"]
    if len(found) == 1:
        return found, []
    named = f"names several GPUs ({', '.join(found)})" if found else "names no GPU"
    message = f"the source {named}: gpu is left out, so the plan is for this machine"
    return found, [Finding("info", "IMP010", message, ("gpu",), "put gpu=... behind the source, or into the file")]


def _all_classes(launch: Launch, known: Mapping[str, object], composer: Composer) -> list[str]:
    """Returns the classes on which a reduction must hold if the GPU is unknown: those that fit a log, or those of the
    device, one of all whose presets set the same arguments, also together with a model's."""
    if launch.gpu_classes:
        return list(launch.gpu_classes)
    classes = [gpu for gpu in gpu_classes(composer) if gpu.name not in NO_GPU]
    same = [gpu for gpu in classes if gpu.facts.device == known.get("device")] or classes
    paired = {name.partition("-")[0] for name in composer.options(PAIR)}
    kinds = {(str(gpu.args), gpu.facts.name if gpu.facts.name in paired else ""): gpu.name for gpu in reversed(same)}
    return [*kinds.values()]


def _hiding(variables: Mapping[str, object]) -> Callable[[str], str]:
    """Returns what hides in a text the secrets of the source's ``variables``, tokens and addresses' passwords."""
    own = ((name, value) for name, value in variables.items() if isinstance(value, str) and looks_drawn(value))
    drawn = [value for name, value in own if is_secret_name(name.upper())]

    def hide(text: str) -> str:
        for value in drawn:
            text = text.replace(value, HIDDEN)
        return without_secret_forms(text)

    return hide


def _environment(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the variables to set, and references for the secret ones by their keys. Omits variables that are known
    only at run time."""
    known = {name: value for name, value in given.items() if value and "\0" not in value and not is_open(value)}
    known = {name: value for name, value in known.items() if name.isascii() and name.isidentifier()}
    secrets = [name for name, value in known.items() if is_secret(name.upper(), value)]
    kept = {name: value for name, value in known.items() if name not in secrets}
    return kept, {f"{_VARIABLES}{name}": f"${{oc.env:{name}}}" for name in secrets}


def _secret_findings(references: Mapping[str, str]) -> Iterator[Finding]:
    for key, reference in references.items():
        message = f"{key.removeprefix(_VARIABLES)} is a secret: the file refers to {reference}"
        variable = reference.removeprefix("${oc.env:").removesuffix("}")
        yield Finding("warning", "IMP009", message, (key,), f"export {variable}=... before it is planned or started")


def _planned_findings(reduced: Reduced, known: Mapping[str, object], composer: Composer) -> Iterator[Finding]:
    if known.get("model_path") is None and reduced.model is None:
        message = "the source does not say which model: the file needs one"
        yield Finding("error", "IMP006", message, ("model_path",), "put model=... behind the source")
        return
    if reduced.model is None and not reduced.known:
        path = str(known.get("model_path"))
        message = f"no preset is for {short(path)}, and nothing else is known about that model here"
        near = composer.model_presets().resembling(path)
        hint = f"model={near or 'PRESET'} behind the source if it is meant; {program()} --help model lists the presets"
        yield Finding("info", "IMP007", message, ("model_path",), hint)
    if not reduced.equal:
        message = "the preset does not plan to the same server: every argument is kept"
        yield Finding("warning", "IMP012", message)
    if (plan := reduced.plan) is not None and plan.errors:
        reasons = "; ".join(f"{finding.id} {finding.message}" for finding in plan.errors[:3])
        verdict = "it would start and then fail" if plan.ok else f"SGLang {plan.engine.version} would refuse it"
        yield Finding("warning", "IMP016", f"on {plan.gpu.name} {verdict}: {reasons}", hint=f"{program()} check FILE")


def _states(
    reduced: Reduced,
    known: Mapping[str, object],
    arguments: Arguments,
    secrets: Mapping[str, str],
    extra: Mapping[str, object],
) -> Iterator[State]:
    plan = reduced.plan
    found = plan.findings if plan is not None else ()
    deprecated = {name: item for item in found if item.about == "old_switch" for name in item.fields}
    for name in (name for name in FIELDS if name in known):
        value = known[name]
        entries = plan.resolution.ledger.of(name) if plan is not None else ()
        entry = next((entry for entry in entries if entry.before == value), None)
        if name not in reduced.overrides:
            yield State(name, value, "preset", f"model={reduced.model}")
        elif name in deprecated:
            hint = deprecated[name].hint or ""
            instead = hint.split()[list(deprecated[name].fields).index(name)] if hint else ""
            yield State(name, value, "deprecated", f"{instead} instead" if instead else "")
        elif entry is not None and shown(entry.after) != shown(value):
            yield State(name, value, "overridden", f"{entry.rule} makes it {shown(entry.after)}: {entry.reason}")
        else:
            yield State(name, value, "kept")
    for name, value in reduced.overrides.items():
        if name not in known:
            yield State(name, value, "undone", f"model={reduced.model} sets it, and the source does not")
    for name, value in extra.items():
        yield State(name, value, "extra", f"an argument of SGLang {arguments.version}")
    for name, reference in secrets.items():
        yield State(name, reference, "secret")
    for name, written in arguments.left_open.items():
        yield State(name, "***" if is_secret_name(name) else without_marks(written), "open")
    for name in arguments.unread:
        yield State(name, None, "unknown")


def _named(servers: Sequence[Imported]) -> list[Imported]:
    if len(servers) == 1:
        return list(servers)
    roles = [str(server.arguments.get("disaggregation_mode") or "") for server in servers]
    wanted = [server.name or role or "server" for server, role in zip(servers, roles, strict=True)]
    named: list[Imported] = []
    for server, name, role in zip(servers, wanted, roles, strict=True):
        full = f"{name}-{role}" if wanted.count(name) > 1 and role not in ("", "null", name) else name
        taken = {item.name for item in named}
        numbered = chain([full], (f"{full}-{number}" for number in count(2)))
        named.append(replace(server, name=next(each for each in numbered if each not in taken)))
    return named


def classes_named_in(texts: Iterable[str], options: Sequence[str]) -> list[str]:
    """Returns the classes (``options`` of ``gpu``) that these texts name, each once, in order.

    hardware.json has the patterns. ``instances`` are families of cloud instances, from the providers' documentation:
    docs.aws.amazon.com/dlami/latest/devguide/gpu.html, cloud.google.com/compute/docs/gpus,
    learn.microsoft.com/azure/virtual-machines/sizes/overview. ``words`` are parts of tags and labels that are no
    class's own name; AMD's images are for an architecture (gfx942, gfx950)."""
    table = json_beside(str(Path(__file__).with_name("hardware")))
    texts = [text.lower()[:2000] for text in texts]
    said = " ".join(texts)
    patterns = [
        *((rf"(?<![\w-]){pattern}(?![\w-])", name) for pattern, name in table["instances"].items()),
        *((rf"(?<![a-z0-9]){pattern}(?![a-z0-9])", name) for pattern, name in table["words"].items()),
        *(
            (rf"(?<![a-z0-9]){re.escape(name).replace('_', '[-_ ]')}(?![a-z0-9])", name)
            for name in sorted(options, key=len, reverse=True)
            if name not in NO_GPU and name.partition("_")[0] in said
        ),
    ]
    found: dict[str, None] = {}
    for text in texts:
        for pattern, name in patterns:
            if name in options and re.search(pattern, text):
                found.setdefault(name)
                text = re.sub(pattern, " ", text)  # an H100-PCIe is no H100 too
    return list(found)
