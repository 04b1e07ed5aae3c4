"""What a log itself advises: sentences near the line that decides that ask for a flag, a variable or a command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sglang_hydra.arguments.tables.table import Argument, known_versions, release
from sglang_hydra.text.json_types import Json, JsonObject

SAID = "the log advises: "
_BEFORE, _AFTER = 1, 15
_MOST, _LONGEST = 3, 240
_ASKS = re.compile(
    r"(?i)\b(?:please|try|use|set|setting|add|pass|enabl\w+|disabl\w+|specify|raise|increas\w+|reduc\w+|lower|decreas\w+"
    r"|re-?install|upgrade|downgrade|run|rerun|consider|export|switch|choose)\b"
)
# Said beside every error of its kind: conditions that nobody can judge from a log, and switches that only say more.
_STOCK = re.compile(
    r"reserved but unallocated|CUDA_LAUNCH_BLOCKING|TORCH_USE_CUDA_DSA|NCCL_DEBUG|DYNAMO_VERBOSE|TORCH_LOGS"
)
_NOT = re.compile(r"(?i)\b(?:cannot|can't|must not|not|don't|without|incompatible|ignored?|unrecognized)\b")
_FLAG = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]{2,60})(?:(?:=| to | )['\"`]?(\d[\w.]*|[a-z][a-z0-9_]*)(?![\w-]))?")
_VARIABLE = re.compile(
    r"\b((?:SGLANG|SGL|NCCL|MC|CUDA|PYTORCH|TORCH|HF|FLASHINFER|TRITON|TVM|NVSHMEM|UCX|GLOO|OMP|NIXL|MOONCAKE|HSA|AITER)"
    r"_[A-Z0-9_]{2,60})\b"
)
_COMMAND = re.compile(r"\bpip install \S+|\buv pip install \S+|`[a-z][\w-]* [^`]{2,80}`")
_SENTENCE = re.compile(r"(?<=[.;!])\s+(?=\S)")
_MAY = ("--", "_", "pip install", "`")
# Words after a flag that are no value of it.
_WORDS = re.compile(r"to|and|or|if|is|in|on|for|with|when|as|a|the|by|of|at|flag|option|instead|should|must")


class Advice(NamedTuple):
    """A sentence of the log. ``changes`` are the arguments that it gives a value, by the release's names, ``names`` all
    that it names."""

    text: str
    changes: JsonObject
    names: tuple[str, ...] = ()


def may_advise(text: str) -> bool:
    """Returns whether a line may ask for something; cheap, for every line of a log."""
    return any(mark in text for mark in _MAY) and _ASKS.search(text) is not None and _names(text)


def _names(text: str) -> bool:
    return any(pattern.search(text) is not None for pattern in (_FLAG, _VARIABLE, _COMMAND))


def advice_near(
    number: int, lines: Sequence[tuple[int, str]], version: str | None, args: Mapping[str, object] | None
) -> list[Advice]:
    """Returns the advice of the lines around ``number``: what the release has, and what is not set yet."""
    found: list[Advice] = []
    for at, line in lines:
        if not number - _BEFORE <= at <= number + _AFTER:
            continue
        for sentence in _SENTENCE.split(line):
            advice = _of(sentence.strip(), version, args or {})
            if advice is not None and advice not in found:
                found.append(advice)
    return found[:_MOST]


def _of(sentence: str, version: str | None, args: Mapping[str, object]) -> Advice | None:
    asks = _ASKS.search(sentence)
    if asks is None or not _names(sentence) or _STOCK.search(sentence) or "python -m sglang" in sentence:
        return None
    table = release(version).arguments if version in known_versions() else None
    changes: dict[str, object] = {}
    names: list[str] = []
    for flag, value in _FLAG.findall(sentence):
        argument = next((one for one in (table or {}).values() if flag in one.flags), None)
        if table is not None and argument is None:
            return None  # no flag of this release
        names.append(argument.name if argument is not None else flag[2:].replace("-", "_"))
        if argument is None or _NOT.search(sentence):
            continue
        wanted = _value(value, argument)
        if wanted is None:
            continue
        if args.get(argument.name) == wanted:
            return None
        changes[argument.name] = wanted
    return Advice(SAID + sentence[:_LONGEST], changes, tuple(names))


def _value(value: str, argument: Argument) -> Json:
    """Returns the value that a sentence gives an argument; None where it gives none."""
    kind = argument.type.partition(" ")[0]
    if kind == "bool":
        return True
    if kind in ("int", "float"):
        try:
            return (int if kind == "int" else float)(value.rstrip("."))
        except ValueError:
            return None
    return (
        value if value and not _WORDS.fullmatch(value) and (not argument.choices or value in argument.choices) else None
    )


def changes_of(advice: Sequence[Advice]) -> Iterator[Mapping[str, object]]:
    """Yields the changes that sentences ask for, each on its own."""
    for one in advice:
        yield from ({name: value} for name, value in one.changes.items())


_GB = r"(\d{1,6}(?:\.\d{1,4})?)"
# What a line says of each number; the group that matched counts.
_READS = {
    "before_gb": re.compile(rf"Load weight begin\. avail mem={_GB} GB"),
    "after_gb": re.compile(rf"Load weight end\..{{0,400}}?avail mem={_GB} GB"),
    "weights_gb": re.compile(rf"Load weight end\..{{0,400}}?avail mem=[\d.]{{1,11}} GB, mem usage={_GB} GB"),
    "left_gb": re.compile(rf"Memory pool end\. avail mem={_GB} GB"),
    "tokens": re.compile(r"#tokens: (\d{1,12})|max_total_num_tokens=(\d{1,12})"),
    "context": re.compile(r"context_len=(\d{1,9})"),
    "asked_gb": re.compile(rf"[Tt]ried to allocate {_GB} ?(?:GiB|MiB)"),
    "derived": re.compile(r"derived context_length \((\d{1,9})\)"),
    "host_free_gb": re.compile(rf"only have {_GB} GB free"),
}
_HEADROOM = 0.02
# Of what is free before loading, the part that weights may take and leave a useful KV cache.
_FOR_WEIGHTS = 0.75


@dataclass(slots=True)
class LogNumbers:
    """GB of one rank, None where the log does not say: free before and after the weights were loaded, what they took,
    free once the KV cache was there; its tokens, the context, what was asked for in vain, what the host had free, and
    the context that config.json gives."""

    before_gb: float | None = None
    after_gb: float | None = None
    weights_gb: float | None = None
    left_gb: float | None = None
    tokens: int | None = None
    context: int | None = None
    asked_gb: float | None = None
    host_free_gb: float | None = None
    derived: int | None = None

    def read(self, text: str) -> None:
        """Takes note of the numbers in one line."""
        for name, pattern in _READS.items():
            if (found := pattern.search(text)) and not (name == "before_gb" and self.before_gb):
                value = float(found[found.lastindex or 0])
                mib = name == "asked_gb" and found[0].endswith("MiB")
                setattr(self, name, value / 1024 if mib else value if name.endswith("_gb") else int(value))

    @property
    def least_fraction(self) -> float | None:
        """Returns the mem_fraction_static at which no token of KV cache is left: SGLang keeps ``1 - fraction`` of what
        was free before loading out of what is free after it (profile_max_num_token)."""
        if not self.before_gb or self.after_gb is None or self.after_gb > self.before_gb:
            return None
        return 1 - self.after_gb / self.before_gb

    def lower_fraction(self, had: float) -> float | None:
        """Returns a fraction below ``had`` that leaves memory for what was asked for in vain, None where none is above
        the weights."""
        least = self.least_fraction
        if least is None or not self.before_gb or not self.asked_gb:
            return None
        fraction = int((had - max(self.asked_gb / self.before_gb, 0.01) - 0.01) * 100) / 100
        return fraction if fraction >= least + _HEADROOM else None

    def possible(self, fraction: float) -> bool:
        """Returns whether the log allows this fraction: the weights and some KV cache are below it."""
        return self.least_fraction is None or fraction >= self.least_fraction + _HEADROOM

    def tokens_at(self, had: float, fraction: float) -> int | None:
        """Returns the tokens of KV cache at another fraction than ``had``."""
        least = self.least_fraction
        if self.tokens is None or least is None or had <= least:
            return None
        return int(self.tokens * (fraction - least) / (had - least))

    def ranks_beyond(self, had: int) -> tuple[int, float] | None:
        """Returns a tensor parallel size above ``had``, by doubling it, that leaves memory for a KV cache, and the GB
        of weights of each rank then; None where the log does not say what they took."""
        if not self.weights_gb or not self.before_gb:
            return None
        size = 2 * had
        while self.weights_gb * had / size > _FOR_WEIGHTS * self.before_gb:
            size *= 2
        return size, self.weights_gb * had / size

    def __str__(self) -> str:
        numbers = (
            (self.before_gb, "{:.1f} GB free before loading"),
            (self.weights_gb, "weights {:.1f} GB"),
            (self.tokens, "KV cache of {:,} tokens"),
            (self.left_gb, "{:.1f} GB left after it"),
            (self.context, "context {:,}"),
        )
        return ", ".join(words.format(value) for value, words in numbers if value is not None)
