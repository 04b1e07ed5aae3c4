"""Completes a config.json as SGLang 0.5.2 does: its keys, and the config classes' defaults for missing ones.

``tools/record_config_defaults.py`` makes the table from the classes: those of the transformers that 0.5.2 pins, and
SGLang's own. No class is imported here, so a plan is the same with and without transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.facts.config_view import TEXT_PARTS, is_own_text, takes_media
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.text.json_types import Json, JsonDict, JsonObject

_TABLE = Path(__file__).with_name("config_defaults.json")
_TEXT_FIELDS = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "max_position_embeddings")
_VISION_FIELDS = ("num_hidden_layers", "hidden_size")
_COPIED_UP = ("quantization_config", "compression_config", "dual_chunk_attention_config", "num_nextn_predict_layers")
"""The keys that get_config copies from the language model's part and SGLang reads outside it."""


class Completed(NamedTuple):
    """A config as its class makes it, and how far that is known.

    ``class_name`` is None for an unknown class: ``config`` is then the stated one. ``refused`` says why SGLang cannot
    read it at all. ``assumed`` lists keys that plans read, the file omits and the class fills in; ``unknown`` lists
    keys without a known value."""

    config: JsonObject
    class_name: str | None = None
    refused: str | None = None
    assumed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class _Unreadable(Exception):
    """A part of a config is of a kind that its class does not accept. The text says which."""


def completed(stated: JsonObject, name: str, *, trust_remote_code: bool = False) -> Completed:
    """Returns ``stated``, the content of a config.json, with the defaults of its class.

    ``name`` is the model's path: a config without ``model_type`` is read by the type that the path contains. With
    ``trust_remote_code`` SGLang runs the checkpoint's own code; the defaults of that code are unknown."""
    table = _table()
    kind, code = stated.get("model_type"), stated.get("auto_map")
    own_code = isinstance(code, Mapping) and "AutoConfig" in code
    if own_code and trust_remote_code and kind not in table["sglang_types"]:
        return Completed(stated, unknown=left_out(stated))
    known = isinstance(kind, str) and kind in table["types"]
    if "model_type" not in stated and not own_code:
        kind = next((each for each in sorted(table["types"], key=len, reverse=True) if each in name), None)
        known = kind is not None
    if not known:
        return Completed(stated, refused=_why_refused(stated, own_code), unknown=left_out(stated))
    class_name = table["types"][kind]
    if class_name is None:
        return Completed(stated, unknown=left_out(stated))
    try:
        filled = _with_copied(_filled(class_name, stated), copies=kind not in table["sglang_types"])
    except _Unreadable as refusal:
        return Completed(stated, refused=str(refusal), unknown=left_out(stated))
    still = left_out(filled)
    return Completed(filled, class_name, assumed=tuple(each for each in left_out(stated) if each not in still))


def as_read(facts: ModelFacts, name: str, *, trust_remote_code: bool = False) -> ModelFacts:
    """Returns ``facts`` as SGLang reads them from a file, with its class's defaults. A preset's excerpt stays as it is:
    its omissions mean nothing. A file counts as whole if it is marked so or names the transformers version that wrote
    it."""
    if facts.config is None or "stated" in facts.extra:
        return facts
    if "transformers_version" not in facts.config and not facts.extra.get("whole"):
        return facts
    made = completed(facts.config, name, trust_remote_code=trust_remote_code)
    extra = {**facts.extra, "stated": facts.config}
    return replace(facts, config=made.config, config_class=made.class_name, refused=made.refused, extra=extra)


def made_by(class_name: str) -> str:
    """Names a class for a sentence: ``LlavaConfig of transformers 4.56.1``."""
    return f"{class_name.rstrip('_')} of {_reader()}"


def left_out(config: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the fields that plans read and ``config`` omits, for which its class's defaults apply."""
    nested = next((key for key in TEXT_PARTS if key in config and not is_own_text(config)), None)
    text = config.get(nested) if nested else config
    prefix = f"{nested}." if nested else ""
    missing = [
        f"{prefix}{name}"
        for name in _TEXT_FIELDS
        if not isinstance(text, Mapping) or (name not in text and name not in config)
    ]
    named, vision = config.get("architectures"), config.get("vision_config")
    if vision is None and isinstance(named, Sequence) and takes_media(named):
        missing.append("vision_config")
    elif isinstance(vision, Mapping):
        missing += [f"vision_config.{name}" for name in _VISION_FIELDS if name not in vision]
    return tuple(missing)


@lru_cache(maxsize=1)
def _table() -> JsonObject:
    import json

    table: dict[str, object] = json.loads(_TABLE.read_text("utf-8"))
    return table


def _reader() -> str:
    return f"transformers {_table()['versions']['transformers']}"


def _why_refused(stated: Mapping[str, object], own_code: bool) -> str:
    kind = stated.get("model_type")
    reader = _reader()
    if own_code:
        return f"its model_type {kind!r} is read by the checkpoint's own code alone, without which {reader} refuses it"
    if "model_type" in stated:
        return f"{reader} knows no model_type {kind!r}"
    return f"it states no model_type, and the model's path holds none that {reader} knows"


def _filled(class_name: str, stated: JsonObject) -> JsonDict:
    """Returns ``stated`` with its class's changes applied. Raises _Unreadable."""
    record = _table()["classes"][class_name]
    other = next((name for name in stated if name not in record.get("strict", stated)), None)
    if other is not None:
        raise _Unreadable(f"its {made_by(class_name)} takes no {other}")
    for name, helpers in record.get("no_null", {}).items():
        if name in stated and stated[name] is None and all(stated.get(other) is None for other in helpers):
            raise _Unreadable(f"its {made_by(class_name)} takes no null for {name}")
    aliases = record.get("aliases", {})
    config = dict(stated)
    for name, (other, heard) in aliases.items():
        if heard and name in stated:
            config[other] = stated[name]
    for name, value in record.get("values", {}).items():
        config.setdefault(name, value)
    nulls = record.get("null", {})
    for name, part in record.get("parts", {}).items():
        outside = {key: value for key, value in stated.items() if key not in record["parts"]}
        _fill_part(config, name, part, outside if part.get("flat") else {})
    if "architectures" in record:
        config["architectures"] = record["architectures"]
    for name, rule in record.get("derived", {}).items():
        if name not in config or rule[-1] is False:
            _follow(config, name, rule)
    for name, rule in nulls.items():
        if name in stated and stated[name] is None:
            _follow(config, name, rule)
    for name, (other, _) in aliases.items():
        if other in config:
            config[name] = config[other]
    return config


def _follow(config: JsonDict, name: str, rule: Json) -> None:
    """Sets ``name`` by its rule where the sources are known: {"value": v}, ["copy", other], ["divide", one, other], or
    ["part", the nested config that has it, whether a value stated beside it wins]."""
    if isinstance(rule, Mapping):
        config[name] = rule["value"]
        return
    kind, *others = rule
    if kind == "part":
        part = config.get(others[0])
        config[name] = part.get(name) if isinstance(part, Mapping) else None
        return
    if kind == "copy":
        value = config.get(others[0])
    else:
        one, other = (config.get(each) for each in others)
        value = one // other if isinstance(one, int) and isinstance(other, int) and other else None
    if value is not None:
        config[name] = value


def _fill_part(config: JsonDict, name: str, part: JsonObject, outside: JsonObject) -> None:
    """Builds the nested config ``name`` with its class, whether it is stated, missing or null. ``outside`` holds the
    outer fields that the class uses where the part is not stated."""
    value = config.get(name)
    if isinstance(value, Mapping):
        class_name = _class_of_part(name, part, value)
        if class_name not in (None, "dict"):
            config[name] = _filled(class_name, value)
        return
    made = part.get("missing") if name not in config or part.get("null") is True else part.get("null")
    if value is not None or made is None or made == "dict":
        return
    class_name, own = (made, {}) if isinstance(made, str) else made
    config[name] = _filled(class_name, {**own, **outside})


def _class_of_part(name: str, part: JsonObject, value: JsonObject) -> Json:
    """Returns the class that reads a nested config. Raises _Unreadable for an unknown kind."""
    chooser = part.get("by")
    if chooser == "model_type" and "model_type" in value:
        kind = value["model_type"]
        if not isinstance(kind, str) or kind not in _table()["types"]:
            raise _Unreadable(f"{_reader()} knows no {name}.model_type {kind!r}")
        return _table()["types"][kind]
    if chooser == "architectures":
        named = value.get("architectures")
        first = named[0] if isinstance(named, list) and named else None
        if first not in part["classes"]:
            raise _Unreadable(f"SGLang 0.5.2 reads no {name} whose first architecture is {first!r}")
        return part["classes"][first]
    return part.get("stated")


def _with_copied(config: dict[str, object], *, copies: bool) -> dict[str, object]:
    """Returns ``config`` with the keys SGLang copies from the language model (hf_transformers_utils.get_config)."""
    parts = (config.get(name) for name in TEXT_PARTS[:2])
    text = next((part for part in parts if isinstance(part, Mapping)), None)
    if text is not None and copies:
        config |= {name: text[name] for name in _COPIED_UP if text.get(name) is not None and name not in config}
    return config
