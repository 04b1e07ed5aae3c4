"""Judges one point after the other: composes and plans it, and refuses it with a reason before anything starts.

Consecutive points that differ only in their load share one plan."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sglang_hydra.compose.composer import Composer, Composition
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.nodes import has_several_servers
from sglang_hydra.facts.config_view import text_config, view_of
from sglang_hydra.measure.bench.checks import problems
from sglang_hydra.measure.bench.trace import read_trace
from sglang_hydra.measure.sweep.points import ServerGroup, workload_id_of
from sglang_hydra.measure.sweep.setters import SetBy, set_by, who_set
from sglang_hydra.measure.sweep.where import Uncomputable, Where, check_keys, read_where, value_of
from sglang_hydra.planning.making.make import plan_composed
from sglang_hydra.planning.making.replan import Replanner
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.verdict import Verdict, verdict_on
from sglang_hydra.rules.checks.model_config import derived_context_length
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonObject

_KEPT_BACK = 2
"""SGLang 0.5.2 writes fewer tokens than requested when prompt and answer leave less than this of the context or of the
KV cache (managers/tp_worker.py, ``max_req_len``; managers/scheduler.py, where ``max_new_tokens`` is cut)."""


class Room(NamedTuple):
    """The most tokens of one request, prompt and answer together; None if unknown. ``what`` sets this limit, ``hint``
    raises it; ``kept_back`` tokens stay unused."""

    tokens: int | None = None
    what: str = ""
    hint: str | None = None
    kept_back: int = 0


def room_of(plan: Plan) -> Room:
    """Returns the tightest limit of a request on this server: the planned context or the KV cache."""
    ours = plan.engine.name == "sglang"
    kept_back = _KEPT_BACK if ours else 0
    view = view_of(plan.model, plan.values["json_model_override_args"] if ours else "{}")
    longest = None if view is None else derived_context_length(text_config(view))
    asked = plan.values["context_length"] if ours else None
    rooms = []
    if asked is not None:
        more = f"context_length=N up to {longest}" if longest and longest > asked else None
        rooms.append(Room(int(asked) - kept_back, f"context_length={asked}", more, kept_back))
    elif longest is not None:
        rooms.append(Room(longest - kept_back, f"the model's context of {longest} tokens", None, kept_back))
    most = plan.values["max_total_tokens"] if ours else None
    if most is not None:
        rooms.append(Room(int(most) - kept_back, f"max_total_tokens={most}", "a larger max_total_tokens", kept_back))
    elif (fit := plan.fit) is not None and fit.kv is not None and fit.kv_tokens and fit.kv.bytes_per_token:
        # The estimate may be wrong, so only loads beyond the largest possible KV cache are refused.
        cache = int(fit.kv_tokens + (fit.error or 0.0) / float(fit.kv.bytes_per_token))
        hint = "a larger mem_fraction_static or tp_size"
        rooms.append(Room(cache - kept_back, f"a KV cache of at most {cache} tokens", hint, kept_back))
    return min(rooms, key=lambda room: room.tokens or 0, default=Room())


def load_problems(plan: Plan, room: Room, bench: Mapping[str, object]) -> Iterator[Finding]:
    """Yields every reason why this server cannot take this load; assumes a valid ``bench``."""
    yield from _too_long(room, bench)
    mode = plan.values["disaggregation_mode"]
    if plan.values["is_embedding"]:
        message = "is_embedding=true: the server makes embeddings, and bench measures answers"
        yield Finding("error", "BEN015", message, ("is_embedding",), "is_embedding=false")
    if mode != "null":
        message = f"disaggregation_mode={mode}: such a server answers only together with one of the other kind"
        yield Finding("error", "BEN015", message, ("disaggregation_mode",), "disaggregation_mode='null'")
    texts = {"dataset": bench["dataset"] == "file", "quality": bool(bench["quality"])}
    for name in (name for name, sends in texts.items() if sends and plan.values["skip_tokenizer_init"]):
        message = f"skip_tokenizer_init=true: the server takes token ids, and bench.{name}={bench[name]} sends text"
        fields = ("skip_tokenizer_init", f"bench.{name}")
        yield Finding("error", "BEN015", message, fields, "skip_tokenizer_init=false")


def _too_long(room: Room, bench: JsonObject) -> Iterator[Finding]:
    if bench["trace"] is not None:
        longest = read_trace(bench["trace"], bench["num_prompts"]).longest
        if room.tokens is not None and longest > room.tokens:
            message = f"bench.trace={bench['trace']} has a request of {longest} tokens; {room.what} is all there is"
            yield Finding("error", "BEN014", message, ("bench.trace", "context_length"), room.hint)
        return
    # Only the model's tokenizer knows the length of a file's prompts.
    input_len, output_len = (0 if bench["dataset"] == "file" else bench["input_len"]), bench["output_len"]
    if room.tokens is None or input_len + output_len <= room.tokens:
        return
    kept = f", of which SGLang leaves {room.kept_back} unused" if room.kept_back else ""
    asked = f"bench.input_len={input_len} and " * bool(input_len) + f"bench.output_len={output_len}"
    message = f"{asked} make requests of {input_len + output_len} tokens; {room.what} is all there is{kept}"
    hints = [room.hint]
    if input_len > 0 and output_len < room.tokens:
        hints.insert(0, f"bench.input_len={room.tokens - output_len}")
    elif input_len < room.tokens:
        hints.insert(0, f"bench.output_len={room.tokens - input_len}")
    fields = ("bench.input_len", "bench.output_len", "context_length", "max_total_tokens")
    yield Finding("error", "BEN014", message, fields, hints)


NODE_LAUNCHER = "submitit_slurm"
_CLIENT_NODES = ("bench", "sweep")


@dataclass(frozen=True)
class PlannedServer:
    """The plan for a point's server. ``gpus`` counts those of all its nodes, ``gpus_of_node`` those of the node with
    the most, ``errors`` are the reasons not to start it, ``verdict`` is the plan's; with several servers (``topology``)
    all count together."""

    plan: Plan
    server_id: str
    gpus: int
    nodes: int
    gpus_of_node: int
    errors: tuple[Finding, ...]
    verdict: Verdict
    room: Room = field(default_factory=Room)

    def group(self, requests: Sequence[Request]) -> ServerGroup:
        """Returns the server to start, without points."""
        return ServerGroup(self.server_id, tuple(requests), self.gpus, self.nodes, (), self.gpus_of_node)


@dataclass(frozen=True)
class Judged:
    """One combination of values. ``server`` and ``workload`` are None if composing failed. ``refused`` are the reasons
    against the point, the first to fix in front. ``set_by`` finds who set the keys other than arguments."""

    server: PlannedServer | None
    workload: JsonObject | None
    workload_id: str = ""
    refused: tuple[Finding, ...] = ()
    set_by: Callable[[], SetBy] = field(default=dict, repr=False)

    @property
    def verdict(self) -> Verdict:
        """Returns whether the point can be launched; a refusal by the sweep is a no, even without a plan."""
        if self.refused or self.server is None:
            return verdict_on(self.refused, ())
        return self.server.verdict

    @property
    def repeats(self) -> int:
        """Returns how often the point is measured; a refused combination counts as many points."""
        return max(1, int(self.workload["repeats"])) if self.workload else 1

    @property
    def who(self) -> str | None:
        """Returns who set the keys of the first refusal, or None."""
        if not self.refused or self.refused[0].about == "left_out":
            return None
        return who_set(self.refused[0], self.server.plan.origins if self.server else {}, self.set_by())


class Judge:
    """Judges the points of one sweep. All share ``common``. With ``measured`` they need a server that a sweep can start
    and a load that it can take; ``gives_nodes`` allows several nodes."""

    def __init__(
        self,
        composer: Composer,
        common: Sequence[Request],
        *,
        seed: int | None,
        where: str | None = None,
        env: Mapping[str, str] | None = None,
        measured: bool = True,
        gives_nodes: bool = False,
    ) -> None:
        self._measured, self._gives_nodes = measured, gives_nodes
        self._composer = composer
        self._common = tuple(common)
        self._seed = seed
        self._env = dict(os.environ if env is None else env)
        self._where: Where | None = read_where(where) if where else None
        self._last: tuple[Composition, PlannedServer] | None = None
        self._shown: set[str] = set()
        if self._where is not None:
            check_keys(self._where)

    def judge(self, requests: Sequence[Request]) -> Judged:
        """Judges the point of these overrides. Raises ConfigError for a word that no point can have."""
        words = [*self._common, *requests]
        self._composer.check(words)
        try:
            composition = self._composer.compose(words)
            server = self._server(composition, words)
        except ConfigError as failure:
            return Judged(None, None, refused=tuple(failure.findings))
        bench = composition.nodes.plain["bench"]
        errors = (*server.errors, *(finding for finding in problems(bench) if finding.level == "error"))
        if self._measured and not errors:
            errors = tuple(load_problems(server.plan, server.room, bench))
        refused = self._left_out(server.plan, bench, errors) or errors
        if refused:
            return Judged(server, bench, refused=refused, set_by=lambda: set_by(self._composer, composition))
        return Judged(server, bench, workload_id_of(bench))

    def _server(self, composition: Composition, words: Sequence[Request]) -> PlannedServer:
        if self._last is None or not _same_server(self._last[0], composition):
            self._last = composition, self._planned(composition, words)
        return self._last[1]

    def _planned(self, composition: Composition, words: Sequence[Request]) -> PlannedServer:
        plan = plan_composed(self._composer, words, composition, seed=self._seed, env=self._env, with_remedies=False)
        if has_several_servers(plan.nodes):
            return self._topology(plan, words)
        forced = plan.ok and bool(plan.nodes.launch.force)
        nodes = int(plan.values["nnodes"])
        errors: tuple[Finding, ...] = ()
        if not (self._measured and plan.nodes.bench.url):  # a running server is not judged
            errors = () if forced else self._with_offers(plan.errors, words)
            errors = (*errors, *self._carried(nodes, "nnodes"), *self._launched_otherwise(plan))
        gpus, room = gpus_of(plan), room_of(plan)
        return PlannedServer(plan, plan.server_id, gpus, nodes, gpus // nodes, errors, plan.verdict, room)

    def _with_offers(self, errors: Sequence[Finding], words: Sequence[Request]) -> tuple[Finding, ...]:
        """Adds planned remedies to ``errors``, only for the first point with each id."""
        new = {finding.id for finding in errors if finding.offers} - self._shown
        if not new:
            return tuple(errors)
        self._shown |= new
        return Replanner(self._composer, words, self._seed, self._env).with_helpful_offers(errors)

    def _launched_otherwise(self, plan: Plan) -> Iterator[Finding]:
        """Yields a finding for a ``launch`` that a sweep does not support: its servers end with their points."""
        launch = plan.nodes.launch
        if self._measured and launch.name != "local":
            message = f"launch={launch.name} starts one server; hydra/launcher runs a sweep elsewhere"
            hint = "launch=local hydra/launcher=submitit_slurm"
            yield Finding("error", "RNR003", message, ("launch.name",), hint)

    def _carried(self, nodes: int, key: str) -> Iterator[Finding]:
        """Yields a finding for several nodes without a launcher that provides them."""
        if self._measured and nodes > 1 and not self._gives_nodes:
            message = f"{nodes} nodes are planned, and this sweep starts its servers on one"
            yield Finding("error", "RNR003", message, (key,), f"hydra/launcher={NODE_LAUNCHER}")

    def _topology(self, common: Plan, words: Sequence[Request]) -> PlannedServer:
        """Plans several servers behind a router, each alone, and judges them together."""
        from sglang_hydra.planning.topology.plan import plan_topology

        topology = plan_topology(self._composer, words, common=common, seed=self._seed, env=self._env)
        errors = tuple(finding for finding in topology.findings if finding.level == "error")
        gpus = {(node, gpu) for server in topology.servers for node in server.nodes for gpu in server.gpus}
        errors = (*errors, *self._carried(topology.nodes, "topology.nodes"), *self._launched_otherwise(common))
        fullest = max(Counter(node for node, _ in gpus).values(), default=0)
        id, verdict = topology.topology_id, topology.verdict
        return PlannedServer(common, id, len(gpus), topology.nodes, fullest, errors, verdict)

    def _left_out(self, plan: Plan, bench: Mapping[str, object], errors: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """Returns why ``sweep.where`` leaves a point out, before its errors: a refused point may lack values."""
        where = self._where
        if where is None:
            return ()
        try:
            if where.holds(lambda key: value_of(key, plan, bench)):
                return ()
            known = {key: value_of(key, plan, bench) for key in where.keys}
            values = (f"{key} is {'not known' if value is None else value}" for key, value in known.items())
            why = f"sweep.where leaves it out: {', '.join(values)}"
        except Uncomputable as failure:
            if errors:
                return ()
            why = f"sweep.where cannot be computed: {failure}"
        return (Finding("error", "SWP006", why, tuple(where.keys)),)


def gpus_of(plan: Plan) -> int:
    """Returns the GPUs of a server on all its nodes together; 0 on a CPU."""
    if plan.gpu.device in (None, "cpu") or plan.values["device"] == "cpu":
        return 0
    return plan.layout.gpus


def _same_server(one: Composition, other: Composition) -> bool:
    """Returns whether all inputs of the plan are equal, so that the plans are too."""
    return (
        one.intent == other.intent
        and one.findings == other.findings
        and one.choices.get("recipe") == other.choices.get("recipe")
        and all(
            one.nodes.plain[name] == value for name, value in other.nodes.plain.items() if name not in _CLIENT_NODES
        )
    )
