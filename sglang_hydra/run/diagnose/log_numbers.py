"""The numbers of memory that a log writes down: what a remedy is worked out from where the model is not known."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
