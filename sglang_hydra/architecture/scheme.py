"""The storage formats of one model: which one each matrix has, module by module and layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sglang_hydra.architecture.formats import Stored, plain
from sglang_hydra.architecture.skips import Skips

UNPACKED = "mxfp4 unpacked to 16 bit"


class Group(NamedTuple):
    """The formats of the modules that ``targets`` name."""

    targets: Skips
    linear: Stored
    experts: Stored


class Scheme(NamedTuple):
    """The formats of one model. ``online``: the weights arrive in full precision and are quantized on the GPU after all
    of them are there. ``element`` is what a weight takes that is not quantized, in bytes. ``groups`` are modules with
    formats of their own; ``linear`` and ``experts`` are those of all others. ``embedding`` is None where it is not
    quantized."""

    name: str
    element: int
    linear: Stored
    experts: Stored
    head: Stored
    vision: Stored
    online: bool
    skips: Skips
    groups: tuple[Group, ...] = ()
    embedding: Stored | None = None

    def formats(self, kind: str, module: str, layers: Sequence[int]) -> list[tuple[Stored, int]]:
        """Returns the format of a module (``self_attn.o_proj``) with the number of ``layers`` that have it so. ``kind``
        says which of a group's formats it takes: ``linear``, ``experts``, or any other for what is never quantized."""
        if kind not in ("linear", "experts"):
            return [(self.plain, len(layers))]
        usual = self.linear if kind == "linear" else self.experts
        if usual == self.plain and not self.groups:
            return [(usual, len(layers))]
        left = self.skips.skipped(module, layers)
        found = [(self.plain, len(left))] if left else []
        rest = [number for number in layers if number not in left]
        for group in self.groups:
            mine = group.targets.skipped(module, rest)
            if mine:
                found.append((group.linear if kind == "linear" else group.experts, len(mine)))
                rest = [number for number in rest if number not in mine]
        return [*found, (usual, len(rest))] if rest else found

    @property
    def as_stored(self) -> bool:
        """Returns whether the GPU holds the formats of the checkpoint."""
        return not self.online and self.experts.name != UNPACKED

    @property
    def plain(self) -> Stored:
        return plain(self.element)
