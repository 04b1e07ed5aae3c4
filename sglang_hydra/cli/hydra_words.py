"""Decides for each typed key of Hydra's own node whether it is obeyed, or refused with the reason.

text/hydra_keys.json has a row for each key of Hydra's config tree: ``obeyed`` lists who obeys it (``run``: one server,
``sweep``: ``-m`` and ``bench``, ``launcher``: a sweep with a Hydra launcher, ``look``: verbs that start nothing,
``ask``: Hydra's own flags), the other fields give the reasons of those that refuse it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request, is_hydras
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonObject
from sglang_hydra.text.words import nearest, program, short

_SWEEPS = ("bench", "resume")
_MODES = ("RUN", "MULTIRUN")
FILE_LAYER = "experiment"
_TABLE = Path(__file__).parents[1] / "text" / "hydra_keys.json"


def settle_hydra_words(invocation: Invocation) -> None:
    """Replaces a typed ``hydra.mode`` by ``-m`` or nothing. Raises ConfigError for every key below ``hydra`` that would
    change nothing here."""
    typed = [request for request in invocation.requests if request.key is None and is_hydras(request.text)]
    if not typed:
        return
    for request in typed:
        key, _, value = request.text.lstrip("+").partition("=")
        if key == "hydra.mode":
            if value.upper() not in _MODES:
                message = f"{request.text}: Hydra's modes are {', '.join(_MODES)}"
                raise ConfigError.of("CLI023", message, "hydra.mode", hint="hydra.mode=MULTIRUN, or -m")
            invocation.requests.remove(request)
            if value.upper() == "MULTIRUN":
                invocation.given["multirun"] = True
    refuse_what_changes_nothing(invocation, typed)


def refuse_what_changes_nothing(invocation: Invocation, typed: Sequence[Request]) -> None:
    """Raises ConfigError with a finding for each of these Hydra keys that the verb cannot obey."""
    chosen = [request.text.partition("=")[2] for request in typed if "hydra/launcher=" in request.text]
    launched = bool(chosen) and chosen[-1] != "basic"  # its jobs are taken here, without Hydra
    kind = _kind(invocation)
    kinds = (kind, "launcher") if kind == "sweep" and launched else (kind,)
    findings = [found for request in typed if (found := _problem(request, invocation.verb, kinds)) is not None]
    if findings:
        raise ConfigError(*findings)


def check_hydra_keys_of_file(invocation: Invocation) -> None:
    """Raises ConfigError for Hydra keys in a typed file that neither a run nor a sweep obeys. The current verb does not
    matter, because the file is for other verbs too."""
    found = [
        replace(problem, message=f"{request.place}: {problem.message}")
        for request in invocation.requests
        if request.layer == FILE_LAYER and request.key is None and is_hydras(request.text)
        if (problem := _problem(request, "serve", ("run", "sweep", "launcher"))) is not None
    ]
    if found:
        raise ConfigError(*found)


def asks_for_sweep(composer: Composer, invocation: Invocation) -> bool:
    """Returns whether a chosen file sets ``hydra.mode: MULTIRUN``. Only the user's own files may."""
    if any(item.layer == FILE_LAYER and item.text.lower() == "hydra.mode=multirun" for item in invocation.requests):
        return True
    own = invocation.value("config_name") or invocation.config_dirs
    if not own and not any(request.text.lstrip("+").startswith("experiment") for request in invocation.requests):
        return False
    from sglang_hydra.measure.sweep.axes import axis_of

    words = invocation.requests
    common = [item for item in words if not item.is_word or axis_of(item, composer.options) is None]
    try:
        return str(composer.hydra_keys(common).get("hydra.mode", "")).upper() == "MULTIRUN"
    except ConfigError:
        return False  # planning reports it


def _kind(invocation: Invocation) -> str:
    if invocation.hydra:
        return "ask"
    if invocation.verb in _SWEEPS or (invocation.verb == "serve" and invocation.has("multirun")):
        return "sweep"
    return "run" if invocation.verb == "serve" else "look"


def _problem(request: Request, verb: str, kinds: Sequence[str]) -> Finding | None:
    """Returns why a Hydra key is refused; None if it is obeyed."""
    table: JsonObject = json.loads(_TABLE.read_text(encoding="utf-8"))
    typed, _, value = request.text.lstrip("+~").partition("=")
    key = typed.partition("@")[0]
    dotted = key.replace("/", ".")
    known = [name for name in table if f"{dotted}.".startswith(f"{name}.")]
    if not known:
        return _unknown(key, dotted, table)
    if request.text.startswith("~") and key in ("hydra.mode", "hydra.searchpath"):
        return Finding("error", "CLI023", f"{request.text}: there is nothing to delete", (key,), f"{key}=VALUE")
    if dotted == key in ("hydra.sweeper", "hydra.launcher") and value.isidentifier():
        group = key.replace(".", "/")
        return Finding("error", "CLI023", f"{key} is the group {group}", (key,), fix=f"{group}={value}")
    row = table[max(known, key=len)]
    wrong_choice = "only" in row and "/" in key and value != row["only"] and "ask" not in kinds
    if not wrong_choice and set(row["obeyed"]) & set(kinds):
        return None
    takers = [name for name, kind in (("serve", "run"), ("bench -m", "sweep")) if kind in row["obeyed"]]
    if kinds[0] == "look" and "all" not in row:
        why = f"{verb} starts no Hydra job"
        hint = f"{' and '.join(takers or ['bench -m'])} obeys it: {program()} {(takers or ['bench -m'])[0]} ..."
    else:
        without = "without a Hydra launcher the points are taken here, and no job of Hydra's runs"
        why = row.get(kinds[0]) or row.get("all") or without
        hint = row.get("hint") or f"leave {key} out; hydra/launcher=joblib starts the jobs of a sweep"
    shown = short(request.text.lstrip("+"))
    return Finding("error", "CLI023", f"{shown}: {why}, so {key} would change nothing", (key,), hint)


def _unknown(key: str, dotted: str, table: Mapping[str, object]) -> Finding:
    inside = [name for name in table if name.startswith(f"{dotted}.")]
    if inside:
        hint = f"name the key: {'hydra.run.dir' if dotted == 'hydra' else inside[0]}=VALUE"
        return Finding("error", "CLI023", f"{key}: the node is not set as a whole here", (key,), hint)
    names = {name.rpartition(".")[2]: name for name in table}
    near = nearest(dotted, table) if nearest(dotted.rpartition(".")[2], names) else None
    hint = f"did you mean {near}?" if near else f"{program()} --cfg hydra shows Hydra's keys"
    return Finding("error", "CLI023", f"Hydra has no key {short(key)}", (key,), hint)
