"""What is known of a draft model: a published one by its name, any other by its own config.json."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from sglang_hydra.facts.hub import OWN, Access, cached_folder, read_model
from sglang_hydra.facts.machine_cache import once
from sglang_hydra.facts.model import KnownModels, ModelFacts
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.locations import conf_dir

_FIELD = "speculative_draft_model_path"
_HINT = f"{_FIELD}=<a folder with its config.json>; with sglang-hydra[hf] and without HF_HUB_OFFLINE the hub is asked"

_FOLDER = f"{_FIELD}=<a folder with its config.json>"


def with_draft(
    model: ModelFacts,
    intent: Mapping[str, Any],
    presets: KnownModels,
    env: Mapping[str, str],
    access: Access = OWN,
) -> tuple[ModelFacts, list[Finding]]:
    """Returns ``model`` with the facts of the draft that ``intent`` names, and the findings about it; unchanged
    where it names none, or the target itself. ``access`` is how the hub may be asked for it."""
    path = intent.get(_FIELD)
    if not isinstance(path, str) or not intent.get("speculative_algorithm") or path == intent.get("model_path"):
        return model, []
    known = None if os.path.exists(path) else known_draft(path, presets)
    if known is not None:
        return replace(model, draft=known), []
    revision = intent.get("speculative_draft_model_revision")
    why = _published().get(path, {}).get("unknown")
    folder = cached_folder(path, revision, env)
    cached = os.path.exists(path) or (folder is not None and os.path.isfile(os.path.join(folder, "config.json")))
    if why is not None and not cached:
        # The catalog's recipes are planned without a network.
        hint = _FOLDER, f"hf download {path} config.json"
        message = f"the draft model: nothing is known of {path}'s config.json: {why}, and it is not in the local cache"
        return model, [Finding("warning", "HUB004", message, (_FIELD,), hint)]
    facts, findings = once(
        ("model", path, revision, access), lambda: read_model(path, revision=revision, env=env, access=access)
    )
    of_draft = [_about_draft(finding) for finding in findings if finding.level != "info"]
    return replace(model, draft=facts if facts.known else None), of_draft


def known_draft(path: str, presets: KnownModels) -> ModelFacts | None:
    """Returns the facts of a published draft, or of a model of the catalog that drafts on its own."""
    entry = _published().get(path)
    if entry is None:
        return presets.facts_of(path)
    if "unknown" in entry:
        return None
    if "layers_of" in entry:
        target = presets.facts_of(entry["layers_of"])
        return None if target is None else replace(target, source=f"{target.source}; {entry['source']}")
    shapes = _published()[entry["like"]] if "like" in entry else entry
    source = f"{entry['source']}; {shapes['source']}" if "like" in entry else entry["source"]
    return ModelFacts(shapes["config"], source=source, extra={"published": True})


@lru_cache(maxsize=1)
def _published() -> Mapping[str, Mapping[str, Any]]:
    drafts: dict[str, Mapping[str, Any]] = json.loads((conf_dir() / "drafts.json").read_text("utf-8"))["drafts"]
    return drafts


def _about_draft(finding: Finding) -> Finding:
    """Returns a finding on a model as one on the draft model."""
    hint = _HINT if finding.id == "HUB004" else None
    message = f"the draft model: {finding.message}"
    return replace(finding, message=message, fields=(_FIELD,), stage="plan").said(hint)
