"""Finds the advice of the log itself: sentences near the deciding line that ask for a flag, a variable or a command."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sglang_hydra.arguments.secrets import without_secrets
from sglang_hydra.arguments.tables.table import Argument, known_versions, release
from sglang_hydra.text.json_types import Json, JsonObject

SAID = "the log advises: "
_BEFORE, _AFTER = 1, 15
_MOST, _LONGEST = 3, 240
_ASKS = re.compile(
    r"(?i)\b(?:please|try|use|set|setting|add|pass|enabl\w+|disabl\w+|specify|raise|increas\w+|reduc\w+|lower|decreas\w+"
    r"|re-?install|upgrade|downgrade|run|rerun|consider|export|switch|choose)\b"
)
# Advice beside every error of its kind: conditions that no log shows, and switches that only log more.
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
# Words after a flag that are not its value.
_WORDS = re.compile(r"to|and|or|if|is|in|on|for|with|when|as|a|the|by|of|at|flag|option|instead|should|must")


class Advice(NamedTuple):
    """A sentence of the log. ``changes`` maps the arguments that it gives a value to that value, by the release's
    names; ``names`` lists all arguments that it mentions."""

    text: str
    changes: JsonObject
    names: tuple[str, ...] = ()


def may_advise(text: str) -> bool:
    """Returns whether a line may give advice; a cheap test for every line of a log."""
    return any(mark in text for mark in _MAY) and _ASKS.search(text) is not None and _names(text)


def _names(text: str) -> bool:
    return any(pattern.search(text) is not None for pattern in (_FLAG, _VARIABLE, _COMMAND))


def advice_near(
    number: int, lines: Sequence[tuple[int, str]], version: str | None, args: Mapping[str, object] | None
) -> list[Advice]:
    """Returns the advice in the lines around ``number``. Omits flags that the release lacks, and values already set."""
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
    return Advice(without_secrets(SAID + sentence[:_LONGEST]), changes, tuple(names))


def _value(value: str, argument: Argument) -> Json:
    """Returns the value that a sentence gives an argument, or None."""
    kind = argument.type.partition(" ")[0]
    if kind == "bool":
        return True
    if kind in ("int", "float"):
        try:
            return (int if kind == "int" else float)(value.rstrip("."))
        except ValueError:
            return None
    fits = value and not _WORDS.fullmatch(value) and (not argument.choices or value in argument.choices)
    return value if fits else None


_GB = r"(\d{1,6}(?:\.\d{1,4})?)"
# The pattern of each number in a log line; the last matching group is the number.
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
# The part of the free memory before loading that weights may take and still leave a useful KV cache.
_FOR_WEIGHTS = 0.75


@dataclass(slots=True)
class LogNumbers:
    """Memory of one rank in GB, None where the log gives no number: free before and after loading, weights, free after
    the KV cache was allocated, the failed allocation, free host memory. Also the tokens of the KV cache, the context
    length, and the context length from config.json."""

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
        """Reads the numbers in one line."""
        for name, pattern in _READS.items():
            if (found := pattern.search(text)) and not (name == "before_gb" and self.before_gb):
                value = float(found[found.lastindex or 0])
                mib = name == "asked_gb" and found[0].endswith("MiB")
                setattr(self, name, value / 1024 if mib else value if name.endswith("_gb") else int(value))

    @property
    def least_fraction(self) -> float | None:
        """Returns the mem_fraction_static at which the KV cache holds no token: SGLang keeps ``1 - fraction`` of the
        memory free before loading out of the memory free after it (profile_max_num_token). None without both."""
        if not self.before_gb or self.after_gb is None or self.after_gb > self.before_gb:
            return None
        return 1 - self.after_gb / self.before_gb

    def lower_fraction(self, had: float) -> float | None:
        """Returns a fraction below ``had`` that leaves memory for the failed allocation, or None when the weights need
        more."""
        least = self.least_fraction
        if least is None or not self.before_gb or not self.asked_gb:
            return None
        fraction = int((had - max(self.asked_gb / self.before_gb, 0.01) - 0.01) * 100) / 100
        return fraction if fraction >= least + _HEADROOM else None

    def possible(self, fraction: float) -> bool:
        """Returns whether the weights and some KV cache fit below this fraction, by the log; True without numbers."""
        return self.least_fraction is None or fraction >= self.least_fraction + _HEADROOM

    def tokens_at(self, had: float, fraction: float) -> int | None:
        """Returns the tokens of KV cache at ``fraction``, scaled from those at ``had``; None without numbers."""
        least = self.least_fraction
        if self.tokens is None or least is None or had <= least:
            return None
        return int(self.tokens * (fraction - least) / (had - least))

    def ranks_beyond(self, had: int) -> tuple[int, float] | None:
        """Returns the tensor parallel size, a doubling of ``had``, that leaves memory for a KV cache, and the GB of
        weights per rank at that size; None when the log does not give the weights."""
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
