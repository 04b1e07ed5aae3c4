"""Computes the layout of a server, the groups of its GPUs, once from a release's values, for all readers.

layout.json lists the arguments for each meaning, the release that introduced each, and the place in SGLang's code
(below sglang/srt; in the wheel of ``since`` unless another release is named). An argument without a row means the same
in all releases."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

from sglang_hydra.arguments.tables.order import FIRST_NUMBERED, at_least, release_key
from sglang_hydra.text.json_types import Json, JsonDict, JsonObject, json_beside

# Backends that send tokens to experts and divide the experts over all GPUs (0.5.23 arg_groups: moe_a2a_backend).
_ALL_TO_ALL = ("deepep", "mooncake", "nixl", "mori", "flashinfer", "megamoe", "ascend_fuseep")
_DISABLED = "disabled"
_MOST_RANKS = 4096  # above the GPUs of any machine: no list of ranks is made


class Row(NamedTuple):
    """One spelling of a meaning: ``argument`` holds it since the release ``since``, below ``keys`` where its value is a
    mapping, and only if the switch ``where`` is on. ``typed`` is the argument to type, if it is another one."""

    argument: str
    since: str
    source: str
    keys: tuple[str, ...] = ()
    where: str | None = None
    typed: str | None = None


class Drafting(NamedTuple):
    """Speculative decoding: ``steps`` of the draft, ``width`` (top-k) of each, ``tokens`` that the target verifies; 0
    where unknown. ``algorithm`` is None without speculative decoding, ``model`` where the target drafts for itself."""

    algorithm: str | None = None
    model: str | None = None
    steps: int = 0
    width: int = 0
    tokens: int = 0


class Graphs(NamedTuple):
    """CUDA graphs of decode: whether any are ``made``, the batch ``sizes`` (empty: the release's usual ones) and the
    ``largest`` (0: no known limit)."""

    made: bool = True
    sizes: tuple[int, ...] = ()
    largest: int = 0


class Layout(NamedTuple):
    """The groups of a server, as numbers of GPUs or of groups.

    ``tp`` GPUs hold one of ``stages`` pipeline stages; ``copies`` of this server run side by side (plain data
    parallelism). Within a stage, ``attention_groups`` (DP attention) have requests of their own, ``attention_contexts``
    GPUs share a prompt's tokens, and ``decode_contexts`` hold other tokens of each request's KV cache. Experts are
    divided over ``experts`` GPUs in each of ``expert_groups``; with ``all_to_all`` over every GPU. ``redundant``
    experts have a second copy. ``dense`` divides dense MLPs (None: over all of ``tp``), ``divided_head`` divides
    lm_head by attention group. Each of ``nodes`` takes GPUs from ``first_gpu`` on, ``gpu_step`` apart. ``possible``: no
    size is below 1."""

    tp: int = 1
    stages: int = 1
    copies: int = 1
    attention_groups: int = 1
    attention_contexts: int = 1
    decode_contexts: int = 1
    experts: int = 1
    expert_groups: int = 1
    all_to_all: bool = False
    redundant: int = 0
    dense: int | None = None
    divided_head: bool = False
    nodes: int = 1
    first_gpu: int = 0
    gpu_step: int = 1
    drafting: Drafting = Drafting()
    graphs: Graphs = Graphs()
    possible: bool = True

    @property
    def gpus(self) -> int:
        """Returns the number of GPUs of the whole server, over all of its nodes."""
        return self.tp * self.stages * self.copies

    @property
    def replicas(self) -> int:
        """Returns the number of parts of the server with requests and a KV cache of their own."""
        return self.copies * self.attention_groups

    @property
    def attention(self) -> int:
        """Returns the number of GPUs that divide the heads of an attention layer."""
        return max(1, self.tp // self.attention_groups // self.attention_contexts)

    @property
    def expert_slices(self) -> int:
        """Returns the number of GPUs that divide each expert."""
        return max(1, self.tp // self.expert_groups // self.experts)

    @property
    def head_ports(self) -> int:
        """Returns the number of consecutive ports of node 0, from that of dist_init_addr: 1, or with DP attention the
        rendezvous port, tokenizer, detokenizer, RPC, metrics and scheduler, and one for each group (0.5.2
        server_args.py:2636-2653; later releases take one more, and none for a group)."""
        return 6 + self.attention_groups if self.attention_groups > 1 else 1

    @property
    def node_share(self) -> tuple[int, int, int]:
        """Returns the ranks of a stage and the stages that each node starts, and the nodes of a stage (0.5.2
        entrypoints/engine.py 753-765; 0.5.23 the same, 2063-2077)."""
        nodes_per_stage = max(self.nodes // self.stages, 1)
        return self.tp // nodes_per_stage, max(self.stages // self.nodes, 1), nodes_per_stage

    def gpu_numbers(self) -> list[int]:
        """Returns the GPU of each rank of a node, in starting order; a repeated number is a GPU that two ranks share.
        Empty for more ranks than a node can have.

        The arithmetic is SGLang's: 0.5.2 entrypoints/engine.py:770-774 and managers/data_parallel_controller.py:156,
        0.5.23 the same at 936-938 and 445-448: a copy begins tp x step GPUs after the previous one."""
        ranks, stages, _ = self.node_share
        if not 0 < self.copies * stages * ranks <= _MOST_RANKS:
            return []
        return [
            self.first_gpu + copy * self.tp * self.gpu_step + stage * ranks + rank * self.gpu_step
            for copy in range(self.copies)
            for stage in range(stages)
            for rank in range(ranks)
        ]


def layout_of(values: JsonObject, release: str) -> Layout:
    """Returns the layout of a server of ``release`` with these resolved ``values``, under that release's names."""

    def read(meaning: str) -> Json:
        return _value(meaning, values, release)[0]

    def size(meaning: str) -> int:
        return _size(read(meaning), 1)

    tp, copies, expert_groups = size("tp"), size("copies"), size("expert_groups")
    groups, row = _value("attention_groups", values, release)
    sharing = max(1, tp // expert_groups)
    all_to_all = str(read("all_to_all") or "none") in _ALL_TO_ALL
    return Layout(
        tp=tp,
        stages=size("stages"),
        copies=1 if row is not None and row.argument == _ROWS["copies"][0].argument else copies,
        attention_groups=_size(groups, 1),
        attention_contexts=size("attention_contexts"),
        decode_contexts=size("decode_contexts"),
        experts=sharing if all_to_all else min(sharing, size("experts")),
        expert_groups=expert_groups,
        all_to_all=all_to_all,
        redundant=_size(read("redundant"), 0),
        dense=read("dense") or None,
        divided_head=bool(read("divided_head")),
        nodes=size("nodes"),
        first_gpu=_size(read("first_gpu"), 0),
        gpu_step=size("gpu_step"),
        drafting=Drafting(
            algorithm=read("algorithm"),
            model=read("draft"),
            steps=_size(read("steps"), 0),
            width=_size(read("width"), 0),
            tokens=_size(read("drafted"), 0),
        ),
        graphs=Graphs(
            made=read("graph_backend") != _DISABLED and not read("no_graphs"),
            sizes=tuple(read("graph_sizes") or ()),
            largest=_size(read("largest_graph"), 0),
        ),
        possible=all(_at_least_one(read(meaning)) for meaning in _SIZES),
    )


_SIZES = ("tp", "stages", "copies", "attention_groups", "nodes", "gpu_step")


def arguments_saying(release: str, typed: Collection[str] = (), **meanings: object) -> JsonDict:
    """Returns the arguments of ``release`` to type for these fields of ``Layout``: ``attention_groups=8`` is
    attn_dp_size=8; before 0.5.22, or where that switch is among ``typed``, it is dp_size=8 enable_dp_attention=true.
    Raises KeyError for a field that no argument of the release sets."""
    words: dict[str, object] = {}
    for meaning, value in meanings.items():
        rows = _rows(meaning, release)
        if not rows:
            raise KeyError(meaning)
        row = next((row for row in rows if row.where in typed), rows[0])
        words[row.typed or row.argument] = value
        if row.where is not None:
            words[row.where] = True
    return words


def names_of(meaning: str) -> tuple[str, ...]:
    """Returns every argument with this meaning in any release, the newest first."""
    rows = _ROWS[meaning]
    return tuple(dict.fromkeys(name for row in rows for name in (row.argument, row.where) if name))


def _value(meaning: str, values: Mapping[str, object], release: str) -> tuple[Json, Row | None]:
    """Returns the value of the newest set spelling, and its row. A size of 1 counts as unset: an older spelling that
    the release still accepts may be beside it."""
    found = None
    for row in _rows(meaning, release):
        value = values.get(row.argument)
        for key in row.keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is None or (row.where is not None and not values.get(row.where)):
            continue
        if value != 1:
            return value, row
        found = value
    return found, None


@lru_cache(maxsize=1024)
def _rows(meaning: str, release: str) -> tuple[Row, ...]:
    """Returns the spellings that ``release`` accepts; a custom build (0.0.0.dev1) accepts those of the newest."""
    own_build = (release_key(release) or FIRST_NUMBERED) < FIRST_NUMBERED
    return tuple(row for row in _ROWS[meaning] if own_build or at_least(release, row.since))


def _size(value: object, least: int) -> int:
    return max(least, value) if isinstance(value, int) else least


def _at_least_one(value: object) -> bool:
    return value is None or (isinstance(value, int) and value >= 1)


_ROWS: Mapping[str, tuple[Row, ...]] = {
    meaning: tuple(Row(**{**row, "keys": tuple(row.get("keys", ()))}) for row in rows)
    for meaning, rows in json_beside(__file__).items()
}

_OF_GROUPS = (*_SIZES[:-1], "attention_contexts", "decode_contexts", "experts", "expert_groups")
SIZES = frozenset(name for meaning in _OF_GROUPS for name in names_of(meaning))
"""The arguments of any release that set the numbers of GPUs, nodes and groups of a server."""
