"""Reads a model's config.json: from a folder, the local Hugging Face cache, a file that the user names, or the hub.

At most one short network request is made for a model, and only where huggingface_hub is installed and not offline. An
unreadable config stays unknown, with a sentence for each way that was tried."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from sglang_hydra.facts.defaults import completed, left_out, made_by
from sglang_hydra.facts.model import QUANTIZATION, ModelFacts
from sglang_hydra.facts.weights import is_gguf_file
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import read_text
from sglang_hydra.text.findings import Finding, Level, Stage

_HUB_TIMEOUT_S = 5.0
_REPOSITORY = re.compile(r"(?:[\w.-]+/)?[\w.-]{1,96}")
_OWN_CODE = "no known config class reads it, so the values of omitted fields are unknown"
_NOTHING = "nothing is known about it"
_TELLING = (
    *("architectures", "model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"),
    *("max_position_embeddings", "torch_dtype", "dtype", "text_config", "vision_config", "quantization_config"),
)
"""Every config.json of a model has one of these keys."""


class Access(NamedTuple):
    """The allowed access to the hub for a model: with the user's token, anonymously, or none, for the reason ``why``.
    ``note`` names the setting that decided."""

    token: bool = True
    fetch: bool = True
    why: str = ""
    note: str = ""


OWN = Access()
"""The access for a model that the user named."""


class Reading(NamedTuple):
    """The facts of a model, and the findings about them."""

    facts: ModelFacts
    findings: list[Finding]


class _Asked(NamedTuple):
    """The arguments of ``read_model``."""

    path: str
    revision: str | None
    trusted: bool
    facts_from: str | None
    env: Mapping[str, str]
    access: Access


def read_model(
    model_path: str,
    *,
    revision: str | None = None,
    trust_remote_code: bool = False,
    facts_from: str | None = None,
    env: Mapping[str, str] = os.environ,
    access: Access = OWN,
) -> Reading:
    """Returns the facts of ``model_path``: a folder, a GGUF file, a remote URL or a hub id, in SGLang's order of tests.

    A folder's config.json and the local cache come first, then ``facts_from`` (a config.json or its folder), then the
    hub. Where nothing is found, ``config`` is None and ``extra["tried"]`` lists the attempts; ``extra["note"]`` always
    says how far the facts reach. Raises nothing: errors are findings with unknown facts (HUB001 an unusable
    config.json, HUB002 a local path without one, HUB003 a missing ``facts_from``), unknown facts are a warning
    (HUB004), omitted fields an info, for the vision tower a warning (HUB005)."""
    try:
        facts = _find(_Asked(model_path, revision, trust_remote_code, facts_from, env, access))
    except ConfigError as refused:
        facts = ModelFacts(config=None, source=_NOTHING, extra={"tried": [str(refused)], "note": _NOTHING})
        return Reading(facts, list(refused.findings))
    return Reading(facts, _field_findings(facts, model_path))


def _find(asked: _Asked) -> ModelFacts:
    model_path = asked.path
    if is_remote_url(model_path):
        tried = ["a remote URL is read by SGLang when the server starts"]
        return _given(asked, tried) or _unknown(tried)
    if is_gguf_file(model_path):
        return _gguf(asked)
    if os.path.isdir(model_path):
        path = os.path.join(model_path, "config.json")
        if os.path.isfile(path):
            facts = _with_format_beside(_facts(read_config(path), path, asked), path)
            return replace(facts, extra={**facts.extra, "folder": model_path})
        given = _given(asked, [f"{path} is not there"])
        if given is None:
            raise _refusal("HUB002", f"{model_path} is a folder without config.json", "model_path")
        return given
    if os.path.exists(model_path):
        message = f"{model_path} is a file, but no GGUF file; SGLang takes a folder or a GGUF file"
        raise _refusal("HUB002", message, "model_path")
    return _from_hub(asked)


def is_remote_url(path: str) -> bool:
    """Returns whether SGLang would treat ``path`` as a remote store (``s3://...``, ``redis://...``)."""
    return re.match(r".+://", path) is not None


def read_config(path: str) -> dict[str, object]:
    """Reads a config.json as a mapping. Raises ConfigError (HUB001) that names file, line and column."""
    import json

    try:
        config = read_json(read_text(path), "record")
    except json.JSONDecodeError as wrong:
        place = f"{path}:{wrong.lineno}:{wrong.colno}"
        raise _refusal("HUB001", f"{place}: this is no JSON: {wrong.msg.removesuffix(' at')}", "model_path") from None
    except (OSError, ValueError, RecursionError) as wrong:
        raise _refusal("HUB001", f"{path} cannot be read: {wrong}", "model_path") from None
    if not isinstance(config, dict):
        raise _refusal("HUB001", f"{path} holds a JSON {type(config).__name__}, not an object", "model_path")
    if config and not any(name in config for name in _TELLING):
        # A path may name any JSON (~/.docker/config.json): a plan must not repeat its content.
        raise _refusal("HUB001", f"{path} holds none of the fields that a model's config.json has", "model_path")
    return _with_torch_dtype(config)


def cached_folder(model_path: str, revision: str | None = None, env: Mapping[str, str] = os.environ) -> str | None:
    """Returns the snapshot folder of a hub id in the local cache, or None without that revision (default: main)."""
    base = os.path.join(cache_root(env), "models--" + model_path.replace("/", "--"))
    wanted = revision or "main"
    with contextlib.suppress(OSError, ValueError):  # a commit hash has no ref
        wanted = read_text(os.path.join(base, "refs", wanted)).strip()
    folder = os.path.join(base, "snapshots", wanted)
    return folder if os.path.isdir(folder) else None


def cache_root(env: Mapping[str, str] = os.environ) -> str:
    """Returns huggingface_hub's repository cache under the environment ``env``."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if env.get(name):
            return os.path.expandvars(os.path.expanduser(env[name]))
    home = env.get("HF_HOME") or os.path.join(env.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return os.path.join(os.path.expandvars(os.path.expanduser(home)), "hub")


def _field_findings(facts: ModelFacts, model_path: str) -> list[Finding]:
    if facts.config is None:
        tried = "; ".join(facts.extra["tried"])
        message = f"{model_path}: its config.json is unknown, so the values that depend on it are not planned ({tried})"
        hint = "model.facts_from=<its config.json>; with sglang-hydra[hf] and without HF_HUB_OFFLINE the hub is asked"
        return [Finding("warning", "HUB004", message, ("model_path",), hint)]
    if facts.unknown and facts.refused is None:
        message = f"{facts.source} states no {', '.join(facts.unknown)}; {facts.extra['note']}"
        # The fit names missing sizes of the text model; those of the vision tower change mem_fraction_static.
        level: Level = "warning" if any("vision" in name for name in facts.unknown) else "info"
        return [Finding(level, "HUB005", message, ("model_path",))]
    assumed = facts.extra.get("assumed")
    if assumed:
        message = f"{facts.source} states no {', '.join(assumed)}: {facts.extra['note']} hold"
        return [Finding("info", "HUB006", message, ("model_path",))]
    return []


def _from_hub(asked: _Asked) -> ModelFacts:
    model_path, revision, env, access = asked.path, asked.revision, asked.env, asked.access
    if model_path.startswith((".", "/", "~")) or "\\" in model_path or _REPOSITORY.fullmatch(model_path) is None:
        tried = [f"{model_path} is not on this machine"]
        return _given(asked, tried) or _unknown(tried)
    wanted = f"{model_path}@{revision}" if revision else model_path
    folder = cached_folder(model_path, revision, env)
    path = os.path.join(folder, "config.json") if folder else ""
    where = "in the local cache"
    if not os.path.isfile(path):
        tried = [f"the local cache {cache_root(env)} has no config.json of {wanted}"]
        given = _given(asked, tried)
        if given is not None:
            return given
        path, where = _download(asked, tried) or "", f"on the hub{access.note}"
        if not path:
            return _unknown(tried)
    commit = os.path.basename(os.path.dirname(path))
    source = f"{model_path} {where}, revision {commit[:12]}"
    return _with_format_beside(_facts(read_config(path), source, asked, commit), path)


def _download(asked: _Asked, tried: list[str]) -> str | None:
    """Downloads the config.json from the hub once. Returns its path; else None, and adds a sentence to ``tried``."""
    model_path, revision, env, access = asked.path, asked.revision, asked.env, asked.access
    if _is_true(env.get("HF_HUB_OFFLINE") or env.get("TRANSFORMERS_OFFLINE")):
        tried.append("the hub was not asked: HF_HUB_OFFLINE is set")
        return None
    if not access.fetch:
        tried.append(f"the hub was not asked: {access.why}")
        return None
    if _is_true(env.get("SGLANG_USE_MODELSCOPE")):
        tried.append("the hub was not asked: SGLANG_USE_MODELSCOPE names another one")
        return None
    try:
        import huggingface_hub
    except ImportError:
        tried.append("the hub was not asked: huggingface_hub is not installed (sglang-hydra[hf] brings it)")
        return None
    try:
        # The download retries for half a minute when the hub is unreachable; this request does not.
        _reach(huggingface_hub.hf_hub_url(model_path, "config.json", revision=revision))
        return str(
            huggingface_hub.hf_hub_download(
                model_path,
                "config.json",
                revision=revision,
                etag_timeout=_HUB_TIMEOUT_S,
                token=None if access.token else False,
            )
        )
    except Exception as failure:  # noqa: BLE001 - every HTTP library underneath has its own; the user gets the text
        reason = (str(failure).strip() or type(failure).__name__).splitlines()[0]
        tried.append(f"the hub gave no config.json of {model_path} ({type(failure).__name__}: {reason})")
        return None


def _reach(url: str) -> None:
    """Sends one request without a token. Raises OSError where no server answers, or for HTTP 429 and 5xx."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    try:
        with urlopen(Request(url, method="HEAD"), timeout=_HUB_TIMEOUT_S):
            return
    except HTTPError as answer:
        # The download explains other errors: a required token, a missing file.
        if answer.code == 429 or answer.code >= 500:
            raise


def _gguf(asked: _Asked) -> ModelFacts:
    """Returns the facts in a GGUF file's header; else those of a config.json beside it or of ``facts_from``."""
    from sglang_hydra.facts.gguf import UnreadableGguf, bits_by_name, config_of, read_header

    model_path = asked.path
    try:
        config = config_of(read_header(model_path))
        broken = "its header is of a kind that is not read here"
    except (UnreadableGguf, OSError) as failure:
        config, broken = None, str(failure)
    if config is not None:
        source = f"the header of {model_path}"
        return ModelFacts(config, gguf=True, source=source, unknown=left_out(config), extra={"note": source})
    sibling = os.path.join(os.path.dirname(model_path), "config.json")
    if os.path.isfile(sibling):
        stated: Mapping[str, object] | None = completed(read_config(sibling), model_path).config
        source = sibling
        note = f"the config.json beside the GGUF file ({broken}); SGLang reads the GGUF header instead"
    else:
        given = _given(asked._replace(trusted=False), [])
        stated = given.config if given else None
        source = given.source if given else _NOTHING
        note = f"SGLang reads a GGUF file's header, and here {broken}"
    bits = bits_by_name(model_path)
    if stated is not None and bits is not None:
        stated = {**stated, "quantization_config": {"quant_method": "gguf", "bits": {"all": bits}}}
        note += "; the format of all tensors is the one that the file's name says"
    tried = [f"{model_path}: {broken}", f"{sibling} is not there"] if stated is None else []
    return ModelFacts(
        config=stated,
        gguf=True,
        source=source,
        unknown=left_out(stated) if stated else (),
        extra={"note": note, "tried": tried},
    )


def _given(asked: _Asked, tried: list[str]) -> ModelFacts | None:
    """Returns the facts in the file that the user named, or None without one."""
    facts_from = asked.facts_from
    if facts_from is None:
        return None
    path = os.path.expanduser(facts_from)
    path = os.path.join(path, "config.json") if os.path.isdir(path) else path
    if not os.path.isfile(path):
        raise _refusal("HUB003", f"model.facts_from={facts_from}: there is no such file or preset", "model.facts_from")
    source = f"model.facts_from={facts_from}"
    facts = _with_format_beside(_facts(read_config(path), source, asked), path)
    # The server will read another file, so it is unknown whether SGLang 0.5.2 refuses that one.
    return replace(facts, refused=None, extra={**facts.extra, "note": "; ".join((*tried, str(facts.extra["note"])))})


def _with_format_beside(facts: ModelFacts, path: str) -> ModelFacts:
    """Returns ``facts`` with the format in hf_quant_config.json beside ``path`` where config.json states none, as
    SGLang reads it (configs/model_config.py 0.5.2 410-449, 0.5.23 _parse_quant_hf_config)."""
    import json

    beside = os.path.join(os.path.dirname(path), QUANTIZATION)
    config = facts.config
    if config is None or {"quantization_config", "compression_config"} & set(config) or not os.path.isfile(beside):
        return facts
    try:
        text = read_text(beside)
        stated = read_json(text, "record")["quantization"]
        format = {"quant_method": "modelopt", **stated}
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as wrong:
        raise _refusal("HUB001", f"{beside} cannot be read: {wrong}", "model_path") from None
    files = {"config.json": json.dumps(facts.extra["stated"]), QUANTIZATION: text}
    return replace(facts, config={**config, "quantization_config": format}, extra={**facts.extra, "files": files})


def _facts(config: dict[str, object], source: str, asked: _Asked, revision: str | None = None) -> ModelFacts:
    """Returns the facts in the content of a config.json, with its class's defaults."""
    made = completed(config, asked.path, trust_remote_code=asked.trusted)
    extra: dict[str, object] = {
        "stated": config,
        "note": _OWN_CODE if made.class_name is None else f"the defaults of {made_by(made.class_name)}",
    }
    if made.assumed:
        extra["assumed"] = made.assumed
    return ModelFacts(
        made.config,
        source=source,
        revision=revision,
        unknown=made.unknown,
        extra=extra,
        config_class=made.class_name,
        refused=made.refused,
    )


def _unknown(tried: list[str]) -> ModelFacts:
    return ModelFacts(config=None, source=_NOTHING, extra={"tried": tried, "note": _NOTHING})


def _with_torch_dtype(config: dict[str, object]) -> dict[str, object]:
    """Copies ``dtype`` of a newer transformers to ``torch_dtype``, as SGLang does."""
    parts = {key: _renamed(value) for key, value in config.items() if isinstance(value, dict)}
    return _renamed({**config, **parts})


def _renamed(part: dict[str, object]) -> dict[str, object]:
    named = isinstance(part.get("dtype"), str) and "torch_dtype" not in part
    return {**part, "torch_dtype": part["dtype"]} if named else part


def _is_true(value: str | None) -> bool:
    return (value or "").upper() in ("1", "ON", "YES", "TRUE")


def _refusal(id: str, message: str, field: str) -> ConfigError:
    hint = "model.facts_from=<a config.json> plans without it" if id == "HUB002" else None
    # SGLang reads the same file while it resolves, and fails there.
    stage: Stage = "plan" if id == "HUB003" else "post_init"
    return ConfigError(Finding("error", id, message, (field,), hint, stage))


def offline() -> dict[str, str]:
    """Returns the environment without the variables of this machine's servers, and without the hub: nothing is
    downloaded to read a file of others."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SGLANG_")}
    return {**kept, "HF_HUB_OFFLINE": "1"}
