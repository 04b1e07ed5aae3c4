"""Builds the config.json of a model preset: one of our whole files, with the preset's own fields over it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

from sglang_hydra.facts.model import QUANTIZATION, ModelFacts
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict, JsonObject
from sglang_hydra.text.locations import conf_dir

_MIXED = "MIXED_PRECISION"
FOLDER = "configs"
"""The folder in conf/ with the whole files, named ORG--NAME.json after the checkpoint; ORG--NAME.hf_quant_config.json
is beside it where only that file states the checkpoint's format."""


def preset_facts(node: JsonObject, source: str) -> ModelFacts | None:
    """Returns the facts of a ``model`` node: the file in ``config_file`` with ``config`` over it, also inside nested
    configs. None if the node has neither. ``source`` is shown where the node names none.

    The format in hf_quant_config.json becomes a ``quantization_config``, as SGLang reads it (configs/model_config.py
    0.5.2, _parse_quant_hf_config). ``quantization_config: null`` removes the format, since no config.json has a null
    there. Raises ConfigError for a ``config_file`` that is none of ours."""
    own, name = node["config"], node["config_file"]
    if own is None and name is None:
        return None
    stated = laid_over(_whole(name) if name is not None else {}, own or {})
    if stated.get("quantization_config", stated) is None:
        del stated["quantization_config"]
    extra: JsonDict = {}
    format_file = f"{(name or '')[:-5]}.{QUANTIZATION}"
    format = _whole(format_file) if name and (conf_dir() / FOLDER / format_file).is_file() else None
    if format is not None and "quantization_config" not in stated:
        quantization = {"quant_method": "modelopt", **format["quantization"]}
        # SGLang reads the layers of a mixed format from config.json, as ModelOpt writes it (nemotron_h.py 0.5.23).
        own_format = {"quantization_config": quantization} if quantization["quant_algo"] == _MIXED else {}
        extra["files"] = {"config.json": json.dumps({**stated, **own_format}), QUANTIZATION: json.dumps(format)}
        stated["quantization_config"] = quantization
    # A preset's excerpt remains its server's identity, as in plans from before it named a whole file.
    excerpt = own if own and "architectures" in own else stated
    extra |= {} if name is None else {"whole": True, "identity": excerpt}
    return ModelFacts(stated, source=node["source"] or source, extra=extra)


@lru_cache(maxsize=256)
def _whole(name: str) -> JsonObject:
    folder = conf_dir() / FOLDER
    path = folder / name
    if path.parent != folder or not path.is_file():
        finding = Finding(
            "error",
            "FCT004",
            f"model.config_file={name} is not one of the files in {folder}",
            ("model.config_file",),
            "model.config_file=null model.facts_from=<its config.json>",
        )
        raise ConfigError(finding)
    config: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return config


def laid_over(below: Mapping[str, object], above: Mapping[str, object]) -> JsonDict:
    """Merges ``above`` over ``below``, key by key, also inside mappings that both have."""
    both = dict(below)
    for key, value in above.items():
        inner = both.get(key)
        both[key] = laid_over(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
    return both
