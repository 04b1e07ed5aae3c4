"""Describes a server for a forecast: the terms of its limit, and the numbers of its layout that a limit omits."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.architecture.decoder import LINEAR
from sglang_hydra.architecture.known import Missing
from sglang_hydra.architecture.understanding import understand
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.fit.result import Fit
from sglang_hydra.fit.roofline import Roofline
from sglang_hydra.fit.roofline_terms import roofline_of
from sglang_hydra.text.json_types import Json, JsonObject, json_beside

_GIGA = 1e9
_GRAPHS = 160  # SGLang 0.5.2's largest captured batch, where no argument sets it


class ForecastServer(NamedTuple):
    """A server of ``engine`` and ``release`` ("": unnamed), on GPUs of ``roofline.gpu``.

    ``tp`` GPUs share each request's attention, ``dp`` groups of them divide the requests (DP attention), ``ep`` GPUs
    divide the experts. ``layers`` counts all layers, ``expert_layers`` those with routed experts, ``linear_layers``
    those with a state of fixed size; ``hidden`` is the width of a token. ``eight``: most weights are multiplied in 8
    bits, so that activations are quantized first. ``held`` tokens fit into the KV cache of one copy or DP attention
    group and ``running`` requests into its tables (None: unknown). ``graphs`` is the largest batch that runs as a CUDA
    graph (0: none). ``domain`` GPUs share the fast link, ``node_link`` is the bytes/s of a GPU beyond it (0: unknown).
    ``all_to_all``: tokens are sent only to the GPUs of their experts."""

    roofline: Roofline
    engine: str
    release: str
    vendor: str
    architecture: str
    layers: int
    expert_layers: int
    linear_layers: int
    hidden: int
    tp: int
    dp: int
    ep: int
    eight: bool
    held: int | None
    running: int | None
    graphs: int
    domain: int
    node_link: float
    all_to_all: bool = False

    @property
    def gpus(self) -> int:
        """Returns the number of GPUs of all copies."""
        return self.roofline.gpus * self.roofline.copies

    @property
    def shape(self) -> str:
        """Returns a name for the family of the model, whatever the format of its weights."""
        return f"{self.architecture} {self.layers} x {self.hidden}"

    def most(self, context: float) -> float | None:
        """Returns the requests of ``context`` tokens that run at a time on the whole server; None where that is
        unknown. At least one request counts, because the rest of the forecast is for a server that starts."""
        limits = [self.running] if self.running else []
        if self.held:
            limits.append(max(1, int(self.held / max(1.0, context))))
        return float(min(limits) * self.dp * self.roofline.copies) if limits else None


def server_of(
    values: JsonObject,
    gpu: GpuFacts,
    model: ModelFacts,
    fit: Fit | None,
    engine: str,
    release: str = "",
    *,
    resolved_by: str | None = None,
) -> ForecastServer:
    """Describes the server of arguments that ``resolved_by`` resolved (None: 0.5.2); ``release`` is the release that
    the user named. Raises Missing with the names of missing facts, ConfigError (FIT010) for a config field that cannot
    be a size."""
    roofline = roofline_of(values, gpu, model, resolved_by)
    known = understand(values, gpu, model, resolved_by)
    decoder, ranks = known.decoder, known.ranks
    if decoder is None:
        raise Missing(*known.unknown)
    most = max((work for work in roofline.work if not work.sampled), key=lambda work: work.weights, default=None)
    graphs = known.layout.graphs
    network = _networks().get(gpu.name, {})
    return ForecastServer(
        roofline=roofline,
        engine=engine,
        release=release,
        vendor=gpu.vendor or "",
        architecture=decoder.architecture,
        layers=len(decoder.layers) * decoder.blocks,
        expert_layers=sum(layer.experts for layer in decoder.layers),
        linear_layers=sum(layer.mixer == LINEAR for layer in decoder.layers),
        hidden=decoder.hidden,
        tp=ranks.attention,
        dp=max(1, ranks.tp // ranks.attention),
        ep=ranks.experts if decoder.experts else 1,
        eight=most is not None and ("fp8" in most.format or "int8" in most.format),
        held=fit.kv_tokens if fit is not None else None,
        running=fit.kv.slots if fit is not None and fit.kv is not None else None,
        graphs=(graphs.largest or _GRAPHS) if graphs.made else 0,
        domain=int(network.get("domain") or gpu.count or -(-roofline.gpus // known.layout.nodes)),
        node_link=float(network.get("out_gbps") or 0) * _GIGA,
        all_to_all=known.layout.all_to_all and decoder.experts is not None,
    )


@cache
def _networks() -> Json:
    """Returns by GPU class the GPUs on the fast link, its GB/s of a GPU in one direction, and the source."""
    return json_beside(str(Path(__file__).with_name("forecast_networks")))
