"""Answers the questions of the web page: JSON in, JSON out. Every verdict is that of a verb or of a plan; the page
only shows it."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sglang_hydra.cli.completion import candidates
from sglang_hydra.cli.file_argument import read_file_argument
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.main import entry
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.nodes import has_several_servers
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.verdict import constant_fields
from sglang_hydra.show.findings import setters_of
from sglang_hydra.show.first_lines import gpus_line, room_line, server_name
from sglang_hydra.show.memory import memory_rows
from sglang_hydra.show.plan import changed_rows, command_line, rules_title, set_rows
from sglang_hydra.show.roofline import roofline_lines
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.errors import SglangHydraError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import Line, Span

VERBS = ("plan", "check", "explain", "diff", "upgrade", "fit", "suggest", "export", "import", "recipes", "diagnose")
"""The verbs that a page may ask: none starts, writes or fetches anything."""
OWN_FOLDER = "own"
"""The folder below the working directory that holds presets of the user, if any. Experiments lie beside it."""
CONFIG_FILE = "config.json"
"""The file below the working directory that holds a pasted config.json."""


def answer(question: str) -> str:
    """Answers one question; what it is about are ``words``, or the ``form`` of the page, or both, and ``config``, the
    text of a config.json.

    ``{"ask": "plan"}``: ``plan`` and its rows, or null and ``findings`` where none can be made. ``{"ask": "verb",
    "verb": ["explain", "tp_size"], "stdin": TEXT}``: ``code``, ``out`` and ``err`` of that command line. ``{"ask":
    "fill", "add": ["tp_size=8"]}``: the form with these words in place. ``{"ask": "paste", "text": TEXT}``: the
    results of ``import`` and ``diagnose``. ``{"ask": "complete", "line": TEXT}``: ``candidates``. ``{"ask":
    "options"}``: ``gpus`` and ``models``. Raises ValueError for a question of another kind, and for a line that no
    shell could read.
    """
    asked = read_json(question, "record")
    kinds: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]
    kinds = {"plan": _plan, "verb": _verb, "fill": _fill, "paste": _paste, "complete": _complete, "options": _options}
    if asked.get("ask") not in kinds:
        raise ValueError(f"ask={asked.get('ask')!r} is none of {', '.join(kinds)}")
    return json.dumps(kinds[asked["ask"]](asked))


def _complete(asked: Mapping[str, Any]) -> dict[str, Any]:
    flags = "".join(f"--config-dir {folder} " for folder in _own())
    return {"candidates": candidates(f"sglang-hydra plan {flags}{asked['line']}")}


_FIELDS = {"gpu": "gpu", "count": "tp_size", "release": "engine.version", "users": "bench.concurrency"}
"""The fields of the form and the key that each stands for; ``model`` is a preset or a checkpoint, ``more`` a line."""


def form_words(form: Mapping[str, str]) -> list[str]:
    """Returns the overrides that a form means. Raises ValueError for quotes that do not end."""
    words = [f"{key}={form[name]}" for name, key in _FIELDS.items() if form.get(name)]
    model = form.get("model")
    if model:
        words.append(f"{'model' if model in _composer().options('model') else 'model_path'}={model}")
    return [*words, *shlex.split(form.get("more") or "")]


def filled(form: Mapping[str, str], words: Sequence[str]) -> dict[str, str]:
    """Returns a form with ``words`` in place of what it has for the same keys."""
    form = dict(form)
    rest = shlex.split(form.get("more") or "")
    names = {**{key: name for name, key in _FIELDS.items()}, "model": "model", "model_path": "model"}
    for word in words:
        key, _, value = word.partition("=")
        rest = [other for other in rest if other.partition("=")[0] != key]
        if key in names:
            form[names[key]] = value
        else:
            rest.append(word)
    return {**form, "more": shlex.join(rest)} if rest or form.get("more") else form


def _fill(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"form": filled(asked.get("form") or {}, asked["add"])}


def _options(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the presets, those of the user included."""
    return {"gpus": _composer().options("gpu"), "models": _composer().options("model")}


def _words(asked: Mapping[str, Any]) -> list[str]:
    """Returns the words of the question; a pasted config.json is written where the planner finds it."""
    words = [*asked.get("words", ()), *form_words(asked.get("form") or {})]
    config = asked.get("config")
    if not config:
        return words
    Path(CONFIG_FILE).write_text(config, encoding="utf-8")
    named = any(word.startswith("model_path=") for word in words)
    return [*words, *([] if named else ["model_path=pasted"]), f"model.facts_from={CONFIG_FILE}"]


def _verb(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a command line prints, and its exit code."""
    words = [*asked["verb"], *_words(asked), *(word for folder in _own() for word in ("--config-dir", folder))]
    if words[:1] == [] or words[0] not in VERBS:
        raise ValueError(f"{words[:1]} is none of {', '.join(VERBS)}")
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO((asked.get("stdin") or "").encode()), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = entry(words)
    finally:
        sys.stdin = before
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


def _paste(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the servers that a text starts, each with its form; the diagnosis of a log, or without a server."""
    imported, diagnosed = (
        _verb({"verb": [verb, "-", "--json"], "stdin": asked["text"]}) for verb in ("import", "diagnose")
    )
    record = read_json(imported["out"], "record")
    servers = record.get("servers", [])
    for server in servers:
        words = shlex.split(server["command"] or "")[1:]
        server["form"] = filled({}, words)
    is_log = diagnosed["code"] == 0 or not servers or any(server["kind"] == "log" for server in servers)
    return {
        "servers": servers,
        "findings": record.get("findings", []),
        "diagnosis": read_json(diagnosed["out"], "record")["results"][0] if is_log else None,
    }


def _plan(asked: Mapping[str, Any]) -> dict[str, Any]:
    words = _words(asked)
    head = {"words": words, "typed": shlex.join(["sglang-hydra", "plan", *words])}
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
    """Returns one composer for all questions: nothing below the page changes its presets."""
    if not _COMPOSERS:
        _COMPOSERS.append(Composer(_own()))
    return _COMPOSERS[0]


def _own() -> list[str]:
    return [OWN_FOLDER] if Path(OWN_FOLDER).is_dir() else []


def plan_answer(plan: Plan) -> dict[str, Any]:
    """Returns a plan as a page shows it: the record, and the parts of its screen as text."""
    launch, why = plan.verdict
    constant = constant_fields(plan)
    entries = zip(plan.resolution.ledger, _cells(changed_rows(plan)), strict=True)
    return {
        "plan": plan.to_json(),
        "launch": launch,
        "why": why,
        "gpus": gpus_line(plan),
        "room": room_line(plan),
        "by": server_name(plan),
        "rules": rules_title(plan),
        "command": command_line(plan) if plan.launchable is not False else None,
        "set": _cells(set_rows(plan)),
        "changed": [{"cells": cells, "constant": entry.field in constant} for entry, cells in entries],
        "memory": _cells(memory_rows(plan.fit)) if plan.fit is not None else [],
        "limit": _text(roofline_lines(plan)),
        "findings": [_finding(item, plan) for item in plan.findings],
    }


def _finding(finding: Finding, plan: Plan | None = None) -> dict[str, Any]:
    """Returns a finding with its remedies as words, each planned before it is named."""
    remedies = [{"words": list(offer.words), "note": offer.note.strip()} for offer in finding.offers]
    return {**finding.to_json(), "remedies": remedies, "set_by": setters_of(finding, plan) if plan else []}


def _cells(rows: Sequence[Sequence[Span]]) -> list[list[str]]:
    return [[content for content, _ in row] for row in rows]


def _text(lines: Sequence[Line]) -> str:
    return "\n".join("".join(content for content, _ in line) for line in lines)
