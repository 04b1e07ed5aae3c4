"""Answers the questions of the web page with JSON. Every verdict is that of a verb or plan; the page only shows it."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sglang_hydra.arguments.secrets import masked_word
from sglang_hydra.cli.completion import candidates
from sglang_hydra.cli.file_argument import read_file_argument
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.main import entry
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.corrections import gpus_meant
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.nodes import has_several_servers
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.verdict import constant_fields
from sglang_hydra.show.findings import setters_of
from sglang_hydra.show.first_lines import gpus_line, room_line, server_name
from sglang_hydra.show.memory import memory_rows
from sglang_hydra.show.plan import changed_rows, command_cells, rules_title, set_rows
from sglang_hydra.show.roofline import limit_rows, roofline_lines
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.errors import SglangHydraError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict, JsonObject
from sglang_hydra.text.screen import Line, Span
from sglang_hydra.text.words import plain_name, without_secret_forms

VERBS = ("plan", "check", "explain", "diff", "upgrade", "fit", "suggest", "export", "import", "recipes", "diagnose")
"""The verbs that the page may use: none starts, writes or fetches anything."""
OWN_FOLDER = "own"
"""The folder in the working directory with the user's presets, if any. Experiments are beside it."""
CONFIG_FILE = "config.json"
"""The file in the working directory with a pasted config.json."""


def answer(question: str) -> str:
    """Answers one question about ``words``, the ``form`` of the page or both, and ``config``, the text of a
    config.json.

    ``{"ask": "plan"}``: ``plan`` and its rows, or null and ``findings`` if there is no plan. ``{"ask": "verb", "verb":
    ["explain", "tp_size"], "stdin": TEXT}``: ``code``, ``out`` and ``err`` of that command line. ``{"ask": "fill",
    "add": ["tp_size=8"]}``: the form with these words. ``{"ask": "paste", "text": TEXT}``: the results of ``import``
    and ``diagnose``. ``{"ask": "complete", "line": TEXT}``: ``candidates``. ``{"ask": "options"}``: ``gpus`` and
    ``models``. Raises ValueError for any other question, and for a line that no shell could read."""
    asked = read_json(question, "record")
    kinds: Mapping[str, Callable[[JsonObject], JsonDict]]
    kinds = {"plan": _plan, "verb": _verb, "fill": _fill, "paste": _paste, "complete": _complete, "options": _options}
    if asked.get("ask") not in kinds:
        raise ValueError(f"ask={asked.get('ask')!r} is not one of {', '.join(kinds)}")
    return without_secret_forms(json.dumps(kinds[asked["ask"]](asked)))


def _complete(asked: Mapping[str, object]) -> dict[str, object]:
    flags = "".join(f"--config-dir {folder} " for folder in _own())
    return {"candidates": candidates(f"sglang-hydra plan {flags}{asked['line']}")}


_FIELDS = {
    "gpu": "gpu",
    "count": "tp_size",
    "release": "engine.version",
    "context": "fit.context",
    "users": "fit.users",
}
"""The key of each field of the form; ``users`` is also the number of requests in the forecast. The field ``model`` has
a preset or checkpoint, ``more`` a line of overrides."""
_USERS = "bench.concurrency"


def form_words(form: Mapping[str, str], has_config: bool = False) -> list[str]:
    """Returns the overrides of a form. A model without a slash is a preset unless its config.json was pasted. Raises
    ValueError for an open quote."""
    form = {**form, **{taken["field"]: taken["name"] for taken in taken_names(form)}}
    words = [f"{key}={form[name]}" for name, key in _FIELDS.items() if form.get(name)]
    model = form.get("model")
    if model:
        is_preset = model in _composer().options("model") or not ("/" in model or has_config)
        words.append(f"{'model' if is_preset else 'model_path'}={model}")
    more = shlex.split(form.get("more") or "")
    if form.get("users") and not any(word.startswith(f"{_USERS}=") for word in more):
        words.append(f"{_USERS}={form['users']}")
    return [*words, *more]


def taken_names(form: Mapping[str, str]) -> list[dict[str, str]]:
    """Returns the names that a preset's name replaces in the form: ``field``, ``typed`` and ``name`` of each."""
    found = []
    for field, preset in (("gpu", _gpu_named), ("model", _model_named)):
        typed = (form.get(field) or "").strip()
        if typed and typed not in _composer().options(field) and (name := preset(typed)) is not None:
            found.append({"field": field, "typed": typed, "name": name})
    return found


def _gpu_named(typed: str) -> str | None:
    """Returns the GPU class of a chip and words (``RTX 4090``, ``H100 SXM 80 GB``); None if it may be several."""
    named = gpus_meant(typed, _composer().options("gpu"))
    return named[0].removeprefix("gpu=") if len(named) == 1 and " " not in named[0] else None


def _model_named(typed: str) -> str | None:
    """Returns the preset of a checkpoint, by hub id or its last part, or the only preset whose name begins so."""
    paths = {preset.name: str(preset.node["model_path"]) for preset in _composer().presets("model")}
    if "/" in typed:
        return next((name for name, path in paths.items() if path.lower() == typed.lower()), None)
    flat, names = plain_name(typed), _composer().options("model")
    same = [name for name in names if flat in (plain_name(name), plain_name(paths.get(name, "").rpartition("/")[2]))]
    begun = [name for name in names if len(flat) > 3 and plain_name(name).startswith(flat)]
    return same[0] if same else begun[0] if len(begun) == 1 else None


def filled(form: Mapping[str, str], words: Sequence[str]) -> dict[str, str]:
    """Returns a form with ``words`` in place of its values for the same keys. It becomes an address, so that its
    secrets are hidden."""
    form = dict(form)
    rest = list(map(masked_word, shlex.split(form.get("more") or "")))
    names = {**{key: name for name, key in _FIELDS.items()}, _USERS: "users", "model": "model", "model_path": "model"}
    for word in map(masked_word, words):
        key, _, value = word.partition("=")
        rest = [other for other in rest if other.partition("=")[0] != key]
        if key in names:
            form[names[key]] = value
        else:
            rest.append(word)
    return {**form, "more": shlex.join(rest)} if rest or form.get("more") else form


def _fill(asked: JsonObject) -> dict[str, object]:
    return {"form": filled(asked.get("form") or {}, asked["add"])}


def _options(asked: Mapping[str, object]) -> dict[str, object]:
    return {"gpus": _composer().options("gpu"), "models": _composer().options("model")}


def _words(asked: JsonObject) -> list[str]:
    """Returns the words of the question, after writing a pasted config.json to the file they name."""
    config = asked.get("config")
    words = [*asked.get("words", ()), *form_words(asked.get("form") or {}, bool(config))]
    if not config:
        return words
    Path(CONFIG_FILE).write_text(config, encoding="utf-8")
    named = any(word.startswith("model_path=") for word in words)
    return [*words, *([] if named else ["model_path=pasted"]), f"model.facts_from={CONFIG_FILE}"]


def _verb(asked: JsonObject) -> JsonDict:
    words = [*asked["verb"], *_words(asked), *(word for folder in _own() for word in ("--config-dir", folder))]
    if words[:1] == [] or words[0] not in VERBS:
        raise ValueError(f"{words[:1]} is not one of {', '.join(VERBS)}")
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO((asked.get("stdin") or "").encode()), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = entry(words)
    finally:
        sys.stdin = before
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


def _paste(asked: JsonObject) -> JsonDict:
    """Returns the servers that a text starts, each with its form, and a diagnosis if it is a log or starts none."""
    imported, diagnosed = (
        _verb({"verb": [verb, "-", "--json"], "stdin": asked["text"]}) for verb in ("import", "diagnose")
    )
    record = read_json(imported["out"], "record")
    servers = record.get("servers", [])
    is_log = diagnosed["code"] == 0 or not servers or any(server["kind"] == "log" for server in servers)
    diagnosis = read_json(diagnosed["out"], "record")["results"][0] if is_log else None
    gpu = _gpu_in(asked["text"]) if diagnosis is not None else None
    for server in servers:
        words = shlex.split(server["command"] or "")[1:]
        server["form"] = filled({"gpu": gpu} if gpu else {}, words)
        for argument in server["arguments"]:
            argument["shown"] = json.dumps(argument["value"])
    return {"servers": servers, "findings": record.get("findings", []), "diagnosis": diagnosis}


def _gpu_in(text: str) -> str | None:
    """Returns the GPU class in a log (``8x NVIDIA H100 80GB HBM3``); None unless it is exactly one."""
    words = (word for name in _composer().options("gpu") for word in name.split("_"))
    chips = {word for word in words if re.fullmatch(r"[a-z]+\d+[a-z]*|\d{4}", word)}
    near = re.compile(rf"\b(?:{'|'.join(sorted(chips, key=len, reverse=True))})\b[\w. -]{{0,24}}", re.IGNORECASE)
    # The words after a chip may be its variant, or anything.
    named = {_gpu_named(found) or _gpu_named(re.split(r"[ _-]", found)[0]) for found in set(near.findall(text))}
    return named.pop() if len(named) == 1 else None


def _plan(asked: JsonObject) -> JsonDict:
    words = _words(asked)
    taken = taken_names(asked.get("form") or {})
    told = list(map(masked_word, words))
    head = {"words": told, "typed": shlex.join(["sglang-hydra", "plan", *told]), "taken": taken}
    requests = [Request(word, f"override {place}") for place, word in enumerate(words, 1)]
    invocation = Invocation("plan", requests=requests, config_dirs=_own())
    try:
        read_file_argument(invocation)
        plan = make_plan(_composer(), invocation.requests)
    except SglangHydraError as failure:
        return {**head, "plan": None, "findings": [_finding(item) for item in failure.findings]}
    if has_several_servers(plan.nodes):
        shown = _verb({"verb": ["plan"], "words": words})
        return {**head, "plan": None, "findings": [], "screen": shown["out"] + shown["err"]}
    return {**head, **plan_answer(plan)}


_COMPOSERS: list[Composer] = []


def _composer() -> Composer:
    """Returns one composer for all questions, because the presets do not change while the page is open."""
    if not _COMPOSERS:
        _COMPOSERS.append(Composer(_own()))
    return _COMPOSERS[0]


def _own() -> list[str]:
    return [OWN_FOLDER] if Path(OWN_FOLDER).is_dir() else []


def plan_answer(plan: Plan) -> JsonDict:
    """Returns a plan for the page: its record, and the parts of its screen as text."""
    launch, why = plan.verdict
    short = next((item.message for item in plan.findings if item.about == "no_room"), None)
    constant = constant_fields(plan)
    entries = zip(plan.resolution.ledger, _cells(changed_rows(plan)), strict=True)
    return {
        "plan": plan.to_json(),
        "launch": launch,
        "why": "its config.json is needed" if (hub := _hub_id(plan)) else why,
        "short": short,
        "hub": hub,
        "gpus": gpus_line(plan),
        "room": "unknown without its config.json" if hub else room_line(plan),
        "by": server_name(plan),
        "rules": rules_title(plan),
        "commands": command_cells(plan),
        "set": _cells(set_rows(plan)),
        "changed": [{"cells": cells, "constant": entry.field in constant} for entry, cells in entries],
        "memory": _cells(memory_rows(plan.fit)) if plan.fit is not None else [],
        "tiles": _tiles(plan),
        "limits": [[cell.strip() for cell in row] for row in _cells(limit_rows(plan))],
        "limit": _text(roofline_lines(plan)),
        "findings": [_finding(item, plan) for item in plan.findings if not (hub and item.about in _WITHOUT_CONFIG)],
    }


def _tiles(plan: Plan) -> list[dict[str, str]]:
    """Returns the key figures: requests at a time, memory left on a GPU, output of one GPU."""
    tiles, fit, forecast = [], plan.fit, plan.forecast
    if fit is not None and fit.kv is not None and fit.fits and (tokens := fit.kv_tokens) is not None:
        length = plan.nodes.fit.context or fit.kv.context
        held = fit.concurrent_requests(length)
        tiles.append(("requests at a time", f"{held:,}", f"of {length:,} tokens"))
        tiles.append(("KV cache", f"{tokens:,}", "tokens" + (" in each replica" if fit.replicas > 1 else "")))
    if fit is not None and fit.left is not None:
        within = "" if fit.error_gib is None else f", within {fit.error_gib:.1f}"
        label = "left on each GPU" if fit.left >= 0 else "missing on each GPU"
        tiles.append((label, f"{abs(fit.left) / 2**30:.1f} GiB", f"of {(fit.memory or 0) / 2**30:.1f}{within}"))
    if forecast and forecast["tokens_per_gpu"]:
        rate, load = forecast["tokens_per_gpu"], forecast["load"]
        tiles.append(("forecast for one GPU", f"{rate['value']:,.0f} tokens/s",
                      f"{rate['low']:,.0f} to {rate['high']:,.0f}, {load['concurrency']:,.0f} running"))  # fmt: skip
    about = "" if plan.is_exact else "about "
    return [{"label": label, "value": about + value, "note": note} for label, value, note in tiles]


_WITHOUT_CONFIG = ("no_config", "estimate")


def _hub_id(plan: Plan) -> str | None:
    """Returns the hub id of a model without known facts, so that the page can fetch its config.json; else None."""
    path = str(plan.intent.get("model_path") or "")
    is_id = re.fullmatch(r"[\w-][\w.-]{0,95}/[\w-][\w.-]{0,95}", path)
    return path if is_id and plan.model.config is None else None


def _finding(finding: Finding, plan: Plan | None = None) -> JsonDict:
    """Returns a finding with its remedies as words; each remedy has been planned."""
    remedies = [{"words": list(offer.words), "note": offer.note.strip()} for offer in finding.offers]
    return {**finding.to_json(), "remedies": remedies, "set_by": setters_of(finding, plan) if plan else []}


def _cells(rows: Sequence[Sequence[Span]]) -> list[list[str]]:
    return [[content for content, _ in row] for row in rows]


def _text(lines: Sequence[Line]) -> str:
    return "\n".join("".join(content for content, _ in line) for line in lines)
