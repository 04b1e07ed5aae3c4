"""Converts composed nodes to facts: those that a preset declares, or those read in its place."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from sglang_hydra.facts.defaults import as_read
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.hub import OWN, Access, cached_folder, read_model
from sglang_hydra.facts.machine_cache import once
from sglang_hydra.facts.model import KnownModels, ModelFacts
from sglang_hydra.facts.stated_config import preset_facts
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonObject
from sglang_hydra.text.locations import conf_dir
from sglang_hydra.text.origins import Origin
from sglang_hydra.text.words import nearest

VENDORS = ("nvidia", "amd", "intel", "habana", "huawei", "none")
DEVICES = ("cuda", "cpu", "hpu", "npu", "xpu")
TORCH_CUDA = ("nvidia", "amd")
"""Vendors whose GPUs are torch.cuda devices; torch for other vendors is built without it."""

_MORE = ("memory_bandwidth_gbps", "dense_tflops", "scale_up_gbps", "host_memory_gib", "unverified", "source")
"""Facts that the rules do not read."""
_LEAST_MIB, _MOST_MIB = 512, 2**30  # 1 PiB: a larger number has the wrong unit
_MOST_GPUS = 2**20
_CAPABILITY = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3})?")


class Composed(Protocol):
    """The parts of a composed configuration that facts need."""

    @property
    def intent(self) -> JsonObject: ...
    @property
    def settings(self) -> JsonObject: ...
    @property
    def origins(self) -> Mapping[str, Sequence[Origin]]: ...
    @property
    def of_app(self) -> bool: ...


def gpu_facts(node: JsonObject, probed: JsonObject) -> GpuFacts:
    """Returns the facts of the ``gpu`` node; ``probed`` values replace its own where ``gpu=auto`` probed the machine.

    Raises ConfigError, with all findings, for impossible facts."""
    facts = {**node, **probed}
    findings = list(_impossible(facts))
    if findings:
        raise ConfigError(*findings)
    major, _, minor = (facts["compute_capability"] or "").partition(".")
    return GpuFacts(
        name=facts["name"],
        vendor=facts["vendor"],
        device=facts["device"],
        memory_mib=facts["memory_mib"],
        compute_capability=(int(major), int(minor or 0)) if major else None,
        count=facts["count"],
        flashinfer=facts["flashinfer"],
        triton_kernels=facts["triton_kernels"],
        torch_cuda=facts["vendor"] in TORCH_CUDA,
        device_name=next(iter(facts.get("device_names") or ()), None),
        extra={name: facts[name] for name in _MORE if facts.get(name)},
    )


def model_facts(
    node: JsonObject, composition: Composed, env: Mapping[str, str], presets: KnownModels
) -> tuple[ModelFacts, list[Finding]]:
    """Returns the preset's facts where ``model_path`` is still the preset's; else the facts of its own config.json.

    A preset's facts never describe another checkpoint: a changed path is a warning, and unreadable facts are unknown. A
    hub id without its preset gets the facts of that preset among ``presets``, so that nothing is downloaded.
    ``model.config=null`` turns the preset's facts off; ``model.facts_from=NAME``, a preset's name or its checkpoint,
    selects that preset's facts."""
    path = composition.intent.get("model_path")
    if path is None:
        return ModelFacts(None, source="no model was named"), []
    own = node["config"] is None and "model.config" in composition.settings
    usual = "model.config, as it was set" if node["model_path"] is None else f"preset {node['name']}"
    variant = None if node["variant"] is None else presets.facts_of(str(node["model_path"]))
    stated = None if own else variant or preset_facts(node, usual)
    trusted = bool(composition.intent.get("trust_remote_code"))
    if stated is not None and node["model_path"] in (path, None) and node["facts_from"] is None:
        return as_read(stated, str(path), trust_remote_code=trusted), []
    if node["facts_from"] is None and not own and not os.path.exists(str(path)):
        known = presets.facts_of(str(path))
        if known is not None:
            known = as_read(known, str(path), trust_remote_code=trusted)
            same = stated is None or presets.same_weights(str(path), str(node["model_path"]))
            return known, [] if same else [_another_model(node, path, known)]
    from sglang_hydra.facts.hub import cached_folder, read_model
    from sglang_hydra.facts.trust import hub_access

    access = hub_access((composition.origins.get("model_path") or (None,))[-1], of_app=composition.of_app)
    revision = composition.intent.get("revision") or node["revision"]
    given = node["facts_from"]
    files = (str(path), os.path.join(str(path), "config.json"))
    is_read = any(map(os.path.isfile, files)) or cached_folder(str(path), revision, env) is not None
    if given is not None and not is_read and not os.path.exists(given):
        alike = presets.facts_named(given)
        if alike is not None:
            alike = replace(alike, source=f"model.facts_from={given}", revision=None)
            return as_read(alike, str(path), trust_remote_code=trusted), []
    facts, findings = once(
        ("model", str(path), revision, trusted, given, access),
        lambda: read_model(
            str(path), revision=revision, trust_remote_code=trusted, facts_from=given, env=env, access=access
        ),
    )
    wrong = [finding for finding in findings if finding.level == "error" and finding.ours]
    if wrong:
        raise ConfigError(*wrong)
    if facts.config is None and given is None:
        findings = [_with_what_is_known(finding, str(path), presets) for finding in findings]
    if stated is None or path == node["model_path"]:
        return facts, findings
    return facts, [_another_model(node, path, facts), *findings]


def _with_what_is_known(finding: Finding, path: str, presets: KnownModels) -> Finding:
    """Adds to HUB004 why a known name cannot be sized, or the preset that the checkpoint resembles."""
    unsized, known = presets.unsized(path), presets.resembling(path)
    if finding.about == "no_config" and unsized is not None:
        message = f"{path}: the name is known: {unsized}; {finding.message.partition(': ')[2]}"
        return replace(finding, message=message).said(f"model=<its folder>; else {finding.hint}")
    if known is None or finding.about != "no_config":
        return finding
    if re.sub(r"\W|_", "", known.lower()) == re.sub(r"\W|_", "", finding.message.partition(": ")[0].lower()):
        return finding.said(f"model={known}, as the hub spells it")
    return finding.said(f"model.facts_from={known} if it has that one's shapes and format; else {finding.hint}")


def _another_model(node: Mapping[str, object], path: object, facts: ModelFacts) -> Finding:
    return Finding(
        "warning",
        "FCT001",
        f"model_path={path} is not the checkpoint of model={node['name']} ({node['model_path']}): "
        f"the preset's facts are not used; {facts.source}",
        ("model_path",),
        f"model.facts_from={node['name']} if it has that one's shapes and format; else <its config.json>",
    )


def _impossible(facts: JsonObject) -> Iterator[Finding]:
    """Yields a finding for each impossible fact of a GPU, from any source."""

    def refused(key: str, why: str, hint: str) -> Finding:
        return Finding("error", "FCT002", f"gpu.{key}={facts[key]!r} {why}", (f"gpu.{key}",), fix=f"gpu.{key}={hint}")

    for key, known in (("vendor", VENDORS), ("device", DEVICES)):
        if facts[key] is not None and facts[key] not in known:
            yield refused(key, f"is not one of {', '.join(known)}", nearest(facts[key], known) or known[0])
    memory, count, capability = facts["memory_mib"], facts["count"], facts["compute_capability"]
    if memory is not None and not _LEAST_MIB <= memory < _MOST_MIB:
        in_gib = 4 <= memory < _LEAST_MIB
        yield refused(
            "memory_mib", "is no size of a GPU's memory in MiB", f"{memory * 1024:.0f}" if in_gib else "81559"
        )
    if count is not None and not 0 <= count < _MOST_GPUS:
        yield refused("count", "is no number of GPUs", "8")
    if capability is not None and not _CAPABILITY.fullmatch(capability):
        yield refused("compute_capability", "is not MAJOR.MINOR", "9.0")


_FIELD = "speculative_draft_model_path"
_FOLDER = f"{_FIELD}=<a folder with its config.json>"
_HINT = f"{_FOLDER}; with sglang-hydra[hf] and without HF_HUB_OFFLINE the hub is asked"


def with_draft(
    model: ModelFacts, intent: JsonObject, presets: KnownModels, env: Mapping[str, str], access: Access = OWN
) -> tuple[ModelFacts, list[Finding]]:
    """Returns ``model`` with the facts of the draft model in ``intent``, and the findings about it; unchanged without a
    draft or where the draft is the target. ``access`` is the allowed access to the hub."""
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
        # Recipes of the catalog must be plannable without a network.
        hint = _FOLDER, f"hf download {path} config.json"
        message = f"the draft model: the config.json of {path} is unknown: {why}, and it is not in the local cache"
        return model, [Finding("warning", "HUB004", message, (_FIELD,), hint)]
    facts, findings = once(
        ("model", path, revision, access), lambda: read_model(path, revision=revision, env=env, access=access)
    )
    of_draft = [
        replace(finding, message=f"the draft model: {finding.message}", fields=(_FIELD,), stage="plan").said(
            _HINT if finding.about == "no_config" else None
        )
        for finding in findings
        if finding.level != "info"
    ]
    return replace(model, draft=facts if facts.known else None), of_draft


def known_draft(path: str, presets: KnownModels) -> ModelFacts | None:
    """Returns the facts of a published draft, or of a catalog model that drafts on its own; None for an unknown one."""
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
def _published() -> Mapping[str, JsonObject]:
    drafts: dict[str, JsonObject] = json.loads((conf_dir() / "drafts.json").read_text("utf-8"))["drafts"]
    return drafts
