"""Record what a missing key of a config.json becomes: the config classes that SGLang 0.5.2 reads model folders with.

    VENV/bin/python tools/record_config_defaults.py [--check] [--out FILE]

VENV holds the real SGLang 0.5.2 and the transformers that it pins (``tests/real/install.sh 0.5.2 VENV``). Each config
class is built with nothing, with null, with parts left out or empty, and with one key changed: what comes out is
written to ``sglang_hydra/facts/config_defaults.json``, for every key that the rules, the checks and the fit name.
``sglang_hydra/facts/defaults.py`` reads it and says what its entries mean. Nothing is copied from any class.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the interpreter is another one's

from sglang_hydra.architecture.reading_layers import KNOWN  # noqa: E402

OUT = ROOT / "sglang_hydra" / "facts" / "config_defaults.json"
ROOMS = ("fit", "rules", "checks", "facts")
NOT_SHAPES = frozenset(("architectures", "dtype", "torch_dtype", "model_type", "id", "type"))
KINDS = ("clip_vision_model", "siglip_vision_model", "pixtral", "llama", "qwen2", "mistral")
"""Model types by which a class may choose the class of a part."""


def names_read() -> frozenset[str]:
    """Every name that the readers of configs spell, wherever they spell it."""
    found = set()
    for room in ROOMS:
        for file in (ROOT / "sglang_hydra" / room).glob("*.py"):
            nodes = ast.walk(ast.parse(file.read_text("utf-8")))
            found |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return frozenset(name for name in found if name.isidentifier() and name not in NOT_SHAPES)


class Recorder:
    """The config classes of one environment, each recorded when it is first met."""

    def __init__(self) -> None:
        utils = importlib.import_module("sglang.srt.hf_transformers_utils")
        self.base: Any = importlib.import_module("transformers").PretrainedConfig
        self.mapping: Any = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
        self.registry: Mapping[str, Any] = utils._CONFIG_REGISTRY
        self.names = names_read()
        self.generic = {name for name in vars(self.base()) if name != "tie_word_embeddings"}
        self.classes: dict[str, Any] = {}
        self.recorded: dict[str, dict[str, Any]] = {}

    def of_type(self, kind: str) -> str | None:
        """The name of the class that reads ``kind`` in the end; None where it cannot be built from nothing."""
        made: Any = self.registry.get(kind)
        return self.met(made if made is not None else self.mapping[kind])

    def met(self, made: Any) -> str | None:
        name = made.__name__
        while name in self.classes and self.classes[name] is not made:
            name += "_"  # two packages have a class of this name
        if name not in self.classes:
            self.classes[name] = made
            try:
                made()
            except Exception:  # noqa: BLE001 - some classes are made of others and refuse to be empty
                return None
            self.recorded[name] = {}
            self.recorded[name] = self.record(made)
        return name if name in self.recorded else None

    def record(self, made: Any) -> dict[str, Any]:
        empty = made()
        values = {name: value for name, value in vars(empty).items() if name in self.names and name not in self.generic}
        strict = built(made, a_name_of_no_class=1) is None
        if strict:
            values.pop("tie_word_embeddings", None)
        else:
            values["tie_word_embeddings"] = empty.tie_word_embeddings
        parts = {name: value for name, value in values.items() if isinstance(value, self.base) or is_part(name)}
        plain = {name: value for name, value in values.items() if name not in parts}
        derived = {**dict(self.derived(made, plain)), **dict(self.from_parts(made, plain, parts))}
        named = getattr(built(made, architectures=["Another"]), "architectures", None)
        record: dict[str, Any] = {
            "architectures": named if named != ["Another"] else None,
            "values": {name: value for name, value in plain.items() if name not in derived and value is not None},
            "derived": {name: rule for name, rule in derived.items() if rule},
            "null": dict(self.of_null(made, plain, derived)),
            "no_null": {
                name: self.helpers(made, name, plain) for name in values if built(made, **{name: None}) is None
            },
            "aliases": dict(self.aliases(made)),
            "strict": sorted(self.taken(made)) if strict else None,
            "parts": {name: part for name in parts if (part := self.part(made, name)) is not None},
        }
        return {key: value for key, value in record.items() if value}

    def derived(self, made: Any, plain: Mapping[str, Any]) -> Iterator[tuple[str, list[Any] | None]]:
        """The names that follow others, with the rule; None where it is none of the rules that there are."""
        follows: dict[str, list[str]] = {}
        for name, value in plain.items():
            other = built(made, **{name: changed(value)})
            if other is None or vars(other).get(name) != changed(value):
                continue
            for each in plain:
                if each != name and vars(other).get(each) != plain[each]:
                    follows.setdefault(each, []).append(name)
        for name, sources in follows.items():
            yield name, self.rule(made, name, sources)

    def from_parts(
        self, made: Any, plain: Mapping[str, Any], parts: Mapping[str, Any]
    ) -> Iterator[tuple[str, list[Any]]]:
        """The names that the class takes from a nested config: ["part", its name, whether a stated
        value is heard]."""
        for part, value in parts.items():
            for name in plain if isinstance(value, self.base) else ():
                config = built(made, **{part: {**value.to_dict(), name: 96}})
                if config is not None and vars(config).get(name) == 96:
                    own = built(made, **{part: {**value.to_dict(), name: 96}, name: 48})
                    yield name, ["part", part, own is not None and vars(own).get(name) == 48]

    def rule(self, made: Any, name: str, sources: list[str]) -> list[Any] | None:
        """["copy", other] or ["divide", one, other], where that is what the class does."""
        candidates = [["copy", source] for source in sources]
        candidates += [["divide", one, other] for one in sources for other in sources if one != other]
        trials = [{}, *({source: 7680 // (number + 1) for number, source in enumerate(order)} for order in
                        (sources, sources[::-1]))]  # fmt: skip
        for candidate in candidates:
            if all(self.agrees(made, name, candidate, trial) for trial in trials):
                return candidate
        return None

    @staticmethod
    def agrees(made: Any, name: str, candidate: list[Any], trial: dict[str, int]) -> bool:
        config = built(made, **trial)
        if config is None:
            return False
        operands = [getattr(config, operand, None) for operand in candidate[1:]]
        if candidate[0] == "copy":
            return bool(getattr(config, name) == operands[0])
        return all(isinstance(item, int) and item for item in operands) and getattr(config, name) == (
            operands[0] // operands[1]
        )

    def of_null(
        self, made: Any, plain: Mapping[str, Any], derived: Mapping[str, list[Any] | None]
    ) -> Iterator[tuple[str, Any]]:
        """What null becomes, where that is something: a value, or as the rule says which missing keys follow."""
        for name in plain:
            config = built(made, **{name: None})
            if config is None or vars(config).get(name) is None:
                continue
            sources = [other for other in plain if other != name and self.moves(made, name, other)]
            rule = self.rule_of_null(made, name, sources) if sources else None
            if rule is not None or not sources:
                yield name, rule or {"value": vars(config)[name]}

    @staticmethod
    def moves(made: Any, name: str, other: str) -> bool:
        first, second = built(made, **{name: None}), None
        if first is not None:
            second = built(made, **{name: None, other: changed(vars(first).get(other))})
        return second is not None and vars(second).get(name) != vars(first).get(name)

    def rule_of_null(self, made: Any, name: str, sources: list[str]) -> list[Any] | None:
        class Nulled:
            __name__ = made.__name__

            def __call__(self, **values: Any) -> Any:
                return made(**{name: None, **values})

        return self.rule(Nulled(), name, sources)

    def taken(self, made: Any) -> Iterator[str]:
        """The names that a class takes which refuses any other."""
        usual = vars(made())
        for name in {*self.names, *self.generic, *usual, "dtype", "model_type", "torch_dtype", "transformers_version"}:
            if built(made, **{name: usual.get(name)}) is not None:
                yield name

    @staticmethod
    def helpers(made: Any, name: str, plain: Mapping[str, Any]) -> list[str]:
        """The names that a file may state for null to be taken."""
        return [
            other
            for other, value in plain.items()
            if other != name and built(made, **{name: None, other: 8 if value is None else value}) is not None
        ]

    def aliases(self, made: Any) -> Iterator[tuple[str, list[Any]]]:
        """Names that stand for others: [the other, whether a file that states this name is heard]."""
        for name, other in (getattr(made, "attribute_map", None) or {}).items():
            if name not in self.names:
                continue
            config = built(made, **{name: 24})
            yield name, [other, config is not None and getattr(config, name, None) == 24]

    def part(self, made: Any, name: str) -> dict[str, Any] | None:
        """The class of a nested config: of one that is missing or null, and of one that is stated."""
        missing, null = getattr(built(made), name, None), getattr(built(made, **{name: None}), name, None)
        record: dict[str, Any] = {
            "missing": self.described(missing),
            "null": self.described(null),
            "flat": self.is_flat(made, name),
        }
        if record["null"] == record["missing"]:
            record["null"] = True
        stated = getattr(built(made, **{name: {"hidden_size": 96}}) or built(made, **{name: {}}), name, None)
        record["stated"] = self.class_of(stated)
        for key, choices in (("model_type", KINDS), ("architectures", tuple(KNOWN))):
            by = {}
            for choice in choices:
                value = [choice] if key == "architectures" else choice
                found = getattr(built(made, **{name: {key: value}}), name, None)
                if isinstance(found, self.base):
                    by[choice] = self.class_of(found)
            if len(set(by.values())) > 1:
                record["by"] = key
                if key == "architectures":
                    record["classes"] = by
        return {key: value for key, value in record.items() if value} or None

    def described(self, part: Any) -> Any:
        """The class of a part, and where the part is not as that class makes it, what is otherwise."""
        name = self.class_of(part)
        if name is None or name == "dict":
            return name
        empty = vars(type(part)())
        own = {
            key: value
            for key, value in vars(part).items()
            if key in self.names and key not in self.generic and not isinstance(value, self.base)
            and value != empty.get(key)
        }  # fmt: skip
        return [name, own] if own else name

    def class_of(self, part: Any) -> str | None:
        if isinstance(part, dict):
            return "dict"
        return self.met(type(part)) if isinstance(part, self.base) else None

    def is_flat(self, made: Any, name: str) -> bool:
        config = built(made, hidden_size=96, num_attention_heads=12, num_hidden_layers=3)
        return getattr(getattr(config, name, None), "num_hidden_layers", None) == 3


def built(made: Any, **values: Any) -> Any:
    """The config that the class makes of ``values``; None where it refuses them."""
    try:
        return made(**values)
    except Exception:  # noqa: BLE001 - whatever a class raises is its refusal
        return None


def is_part(name: str) -> bool:
    return name.endswith("_config")


def changed(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value * 2 or 2
    return 6 if value is None else value


def record() -> dict[str, Any]:
    recorder = Recorder()
    versions = {name: importlib.import_module(name).__version__ for name in ("sglang", "transformers")}
    types = {kind: recorder.of_type(kind) for kind in recorder.mapping.keys()}  # noqa: SIM118 - it is no dict
    return {
        "versions": versions,
        "sglang_types": list(recorder.registry),
        "types": types,
        "classes": dict(sorted(recorder.recorded.items())),
    }


def as_text(record: Mapping[str, Any]) -> str:
    """One class a line, so that a difference between two releases can be read."""
    lines = [f' "{key}": {compact(value)},' for key, value in record.items() if key != "classes"]
    classes = ",\n".join(f'  "{name}": {compact(value)}' for name, value in record["classes"].items())
    return "\n".join(("{", *lines, ' "classes": {', classes, " }", "}")) + "\n"


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--check", action="store_true", help="only compare with the file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    text = as_text(record())
    if options.check:
        same = options.out.is_file() and options.out.read_text("utf-8") == text
        print(f"{options.out}: {'as recorded' if same else 'differs from what these packages do'}")
        return int(not same)
    options.out.write_text(text, encoding="utf-8")
    print(f"{options.out}: {len(text)} characters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
