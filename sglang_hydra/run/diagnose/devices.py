"""Which GPUs a log speaks of: names, and how much memory one has."""

from __future__ import annotations

import re
from collections import Counter

_NAMES = (
    re.compile(r"device_name=((?:NVIDIA|AMD|Tesla)[\w.-]{1,60})"),
    re.compile(r"\bGPU [\d,]{1,40}: ((?:NVIDIA|AMD|Tesla) [\w .-]{2,48}?)(?: \(UUID|\s*$|,|;)"),
    re.compile(r"\|\s{1,4}\d{1,2}\s{1,4}(NVIDIA [\w .-]{2,40}?)\s{2,}(?:On|Off)\b"),
)
_CAPACITY = re.compile(r"total capacity of (\d{1,7}(?:\.\d{1,4})?) (GiB|MiB)")
_MOST = 64


class Devices:
    """Counts what lines say of GPUs. ``name`` and ``capacity_mib`` are what most of them say, None where none does."""

    def __init__(self) -> None:
        self._names: Counter[str] = Counter()
        self._capacities: Counter[float] = Counter()

    def read(self, text: str) -> None:
        if "NVIDIA" in text or "AMD" in text or "Tesla" in text:
            for pattern in _NAMES:
                found = pattern.search(text[:4000])
                if found and (len(self._names) < _MOST or found[1] in self._names):
                    self._names[found[1].replace("_", " ").strip()] += 1
        if "total capacity of" in text:
            found = _CAPACITY.search(text)
            if found and len(self._capacities) < _MOST:
                self._capacities[float(found[1]) * (1024 if found[2] == "GiB" else 1)] += 1

    @property
    def name(self) -> str | None:
        return self._names.most_common(1)[0][0] if self._names else None

    @property
    def capacity_mib(self) -> float | None:
        """What torch sees as the GPU's memory: some 0.6 to 1.2 % below the class's."""
        return self._capacities.most_common(1)[0][0] if self._capacities else None
