"""Reads a plan back from its file: its intent and its recorded facts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.tables.order import same_release
from sglang_hydra.facts.declared import TORCH_CUDA
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.planning.plan import GPU_FACTS, READ, Recorded
from sglang_hydra.planning.plan import SCHEMA as PLAN_SCHEMA
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.errors import CarriedError
from sglang_hydra.text.file_text import read_text, reason_of
from sglang_hydra.text.json_types import NOT_FINITE, JsonDict, JsonObject, json_beside
from sglang_hydra.text.locations import shown_path
from sglang_hydra.text.record_shape import misfit

_KIND, _, _NUMBER = PLAN_SCHEMA.partition("/")


class NotAPlan(CarriedError):
    """A file that holds no plan. ``place`` names it, with line and column where known; the text is the reason."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(why)
        self.place = place


class OtherSchema(NotAPlan):
    """A JSON file of another kind, or of another version of the plan's schema."""


class SavedPlan(NamedTuple):
    """``name`` is the file's shown name, ``record`` its content, whose shape is checked."""

    name: str
    record: JsonObject

    @property
    def intent(self) -> JsonDict:
        return {name: number_again(name, value) for name, value in self.record["intent"].items()}

    @property
    def values(self) -> JsonObject:
        values: JsonObject = self.record["values"]
        return values

    @property
    def basis(self) -> str:
        """Returns the source of its values; the first schema has those of 0.5.2's rules for every release."""
        engine = self.record["engine"]
        is_own = engine["name"] != "sglang" or same_release(engine["version"], SPECIFIED_VERSION)
        return str(self.record.get("basis", "exact" if is_own else "rules"))

    @property
    def recorded(self) -> Recorded:
        """Returns its facts, and the seed if one was drawn."""
        model = self.record["model"]
        gpu, draft = dict(self.record["gpu"]), model.get("draft")
        capability = gpu.pop("compute_capability")
        return Recorded(
            gpu=GpuFacts(
                **gpu,
                compute_capability=tuple(capability) if capability else None,
                torch_cuda=gpu["vendor"] in TORCH_CUDA,
            ),
            model=ModelFacts(
                model["config"],
                gguf=bool(model["gguf"]),
                source=f"{model['source']} (as {self.name} has it)",
                revision=model["revision"],
                unknown=tuple(model["unknown"]),
                draft=draft
                and ModelFacts(draft["config"], source=str(draft["source"])).with_details(draft.get("details", {})),
            ).with_details(model.get("details", {})),
            seed=self.values["random_seed"] if self.record["seed_drawn"] else None,
            inherited=dict(self.record["inherited"]),
        )


def read_plan(path: Path) -> SavedPlan:
    """Reads the plan in a file. Raises NotAPlan or, for another kind, OtherSchema."""
    name = shown_path(str(path))
    try:
        content = read_text(path)
    except (OSError, ValueError) as failure:
        raise NotAPlan(name, reason_of(failure)) from failure
    return parse_plan(name, content)


def parse_plan(name: str, content: str) -> SavedPlan:
    """Reads the plan in a file's content. ``name`` is the file's shown name. Raises like ``read_plan``."""
    try:
        record = read_json(content, "record")
    except json.JSONDecodeError as failure:
        raise NotAPlan(f"{name}:{failure.lineno}:{failure.colno}", f"it is no JSON: {failure.msg}") from failure
    except (ValueError, RecursionError) as failure:
        raise NotAPlan(name, f"it is no JSON: {failure}") from failure
    schema = record.get("schema") if isinstance(record, dict) else None
    if schema not in READ:
        raise OtherSchema(name, _other_schema(schema))
    problem = _problem(record)
    if problem:
        raise NotAPlan(name, f"it is no whole plan: {problem}")
    return SavedPlan(name, _folded(record))


def _folded(record: JsonDict) -> JsonDict:
    """Merges the arguments that earlier schemas keep under ``extra`` into the others."""
    extra = record.pop("extra", {})
    settings = {key: item for key, item in record.get("settings", {}).items() if not key.startswith("extra.")}
    origins = {name: [record["settings"][f"extra.{name}"]] for name in extra if f"extra.{name}" in record["settings"]}
    intent = {**record["intent"], **extra}
    return {**record, "intent": intent, "origins": {**record["origins"], **origins}, "settings": settings}


def number_again(argument: str, value: object) -> object:
    """Converts a recorded number: JSON has no nan, so a plan holds its name."""
    is_float = argument in EVERY and EVERY[argument].kind == "float"
    return float(value) if is_float and value in NOT_FINITE else value


def _other_schema(schema: object) -> str:
    match = re.fullmatch(rf"{re.escape(_KIND)}/([0-9]+)", schema) if isinstance(schema, str) else None
    if match is not None:
        age = "a later" if (len(match[1]), match[1]) > (len(_NUMBER), _NUMBER) else "an earlier"
        return f"{age} sglang-hydra wrote it: its schema is {schema!r}, and this one reads {PLAN_SCHEMA!r}"
    if schema is None:
        return "it is no plan, as it names no schema; a model's folder is model=./folder"
    return f"its schema is {schema!r}, and only {PLAN_SCHEMA!r} can be"


_NEEDED = {**{at: keys.split() for at, keys in json_beside(__file__).items()}, "gpu": GPU_FACTS}
"""The keys that every reader of a plan needs."""


def _problem(record: JsonObject) -> str | None:
    """Returns what is missing or of a wrong type in a plan, or None."""
    if problem := misfit("plan", record, _NEEDED):
        return problem
    unknown = set(record["gpu"]) - {*GPU_FACTS, "device_name"}
    if unknown:
        return f"gpu.{min(unknown)} is unknown"
    is_own = record["schema"] == READ[0] or same_release(record["engine"]["version"], SPECIFIED_VERSION)
    expected = set(FIELDS) if is_own else {"model_path", "random_seed", "tp_size"}
    missing = sorted(expected - set(record["values"]))
    if missing:
        return f"values.{missing[0]} is missing"
    foreign = sorted((set(record["values"]) if is_own else set()) - set(FIELDS) | set(record["intent"]) - set(EVERY))
    if foreign:
        return f"{foreign[0]} is no argument of SGLang"
    seed = record["values"]["random_seed"]
    return None if seed is None or type(seed) is int else "values.random_seed is no number"
