"""Translates vLLM's flags to arguments of SGLang; ``vllm.json`` has the counterpart of each, or why there is none."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.text.findings import Finding, Level
from sglang_hydra.text.json_types import json_beside
from sglang_hydra.text.words import nearest, short, size_of


class Counterpart(NamedTuple):
    """The counterpart of a vLLM flag. ``argument`` is ours (``!``: the opposite), or None with the reason ``why``.
    ``value`` is the value of the flag alone, ``values`` maps vLLM's words to ours, ``copied`` names the argument whose
    value it takes. ``is_default`` marks SGLang's default behaviour, ``is_lost`` a flag whose removal changes the
    server."""

    argument: str | None = None
    value: object = None
    values: Mapping[str, str] = {}
    copied: str | None = None
    is_default: bool = False
    note: str | None = None
    why: str | None = None
    is_lost: bool = False


@functools.lru_cache(maxsize=1)
def counterparts() -> Mapping[str, Counterpart]:
    made = {}
    for flag, row in json_beside(__file__)["flags"].items():
        row = {
            {"as": "copied", "default": "is_default", "lost": "is_lost"}.get(name, name): value
            for name, value in row.items()
        }
        short = row.pop("short", None)
        made[flag] = Counterpart(**row)
        if short:
            made[short] = made[flag]
    return made


def counterpart(flag: str) -> Counterpart | None:
    """Returns the counterpart of a vLLM flag, in its long or short form or as a part (``--hf-overrides.a``); None for a
    flag that vLLM does not have."""
    name, _, part = flag.partition("=")[0].replace("_", "-").partition(".")
    found = counterparts().get(name)
    if found is None or not part:
        return found
    return Counterpart(why=found.why or f"{found.argument} takes the whole object as JSON", is_lost=True)


def in_sglangs_words(flag: str, values: Sequence[str], tp_size: str = "1") -> tuple[list[str] | None, str]:
    """Returns the words of SGLang's command line for a vLLM option with its values, and a note. The words are None
    without a counterpart. Raises KeyError for a flag that vLLM does not have."""
    found = counterpart(flag)
    if found is None:
        raise KeyError(flag)
    if found.argument is None:
        return None, found.why or ""
    field = FIELDS[found.argument.lstrip("!")]
    if found.is_default:
        return [], f"SGLang does this unless {field.name} changes it"
    value = " ".join(values) if found.value is None else found.value
    value = tp_size if found.copied else found.values.get(str(value), value)
    if field.is_flag:
        return [field.flag], found.note or ""
    if field.kind == "int" and (size := _size(str(value))) is not None:
        value = size
    return [field.flag, *(values if field.arg.nargs in ("*", "+") else [str(value)])], found.note or ""


def _size(text: str) -> int | None:
    """Reads vLLM's ``32k`` (32,000) and ``32K`` (32,768): vllm/engine/arg_utils.py, human_readable_int."""
    return size_of(f"{text}i") if text[-1:].isupper() else size_of(text.replace("m", "M").replace("g", "G"))


def translated(words: Sequence[str]) -> tuple[list[str], list[Finding]]:
    """Translates the words after ``vllm serve`` to SGLang's flags, with findings for flags without a counterpart."""
    argv, findings = [], []
    options = _options(words)
    sizes = [values[0] for flag, values in options if flag in ("--tensor-parallel-size", "-tp") and values]
    for flag, values in options:
        typed = " ".join([flag, *values])
        if counterpart(flag) is None:
            near = nearest(flag, counterparts())
            hint = f"{near}?" if near else None
            findings.append(
                Finding("error", "IMP003", f"{short(typed)}: vLLM has no such flag that is known here", (), hint)
            )
            continue
        taken, note = in_sglangs_words(flag, values, *sizes[:1])
        argv += taken or []
        if taken is None or note:
            level: Level = "warning" if taken is None else "info"
            message = f"{typed} has no counterpart in SGLang" if taken is None else f"{typed}: {' '.join(taken)}"
            findings.append(Finding(level, "IMP018", f"{message.rstrip(': ')}: {note}"))
    return argv, findings


def _options(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Groups the words into options with their values; a leading word alone is the model."""
    options: list[tuple[str, list[str]]] = []
    for word in words:
        flag, equals, value = word.partition("=")
        if word.startswith("-") and not word.lstrip("-").isdigit():
            options.append((flag.replace("_", "-"), [value] if equals else []))
        elif not options:
            options.append(("--model", [word]))
        else:
            options[-1][1].append(word)
    return options
