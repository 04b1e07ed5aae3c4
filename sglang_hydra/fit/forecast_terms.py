"""Computes the terms of a forecast: seconds of a decode step and of a prompt, each to be multiplied by a coefficient.

Memory and arithmetic come from the hardware's limit. The other terms are missing there: kernel starts in each layer,
waiting for other GPUs, activations read and written between matrices."""

from __future__ import annotations

from math import log2
from typing import NamedTuple

from sglang_hydra.fit.forecast_server import ForecastServer
from sglang_hydra.fit.roofline import COMPUTE
from sglang_hydra.text.json_types import json_beside

MEMORY_TERMS, OVERHEAD, EXCHANGE, PROMPT = "memory", "overhead", "exchange", "prompt"


class Term(NamedTuple):
    """A term: the group of its factor, the unit of its coefficient, and in words what takes the time."""

    group: str
    unit: str
    what: str


TERMS = {name: Term(**row) for name, row in json_beside(__file__).items()}
"""Each coefficient, in the order of its file."""

PROMPT_TERMS = tuple(name for name, term in TERMS.items() if term.group == PROMPT)
STEP_TERMS = tuple(name for name in TERMS if name not in PROMPT_TERMS)

# Assumed, not fitted: no measurement includes them.
PCIE = 25e9  # bytes/s of a GPU in one direction, PCIe 4.0 x16, where the preset states no faster link
NETWORK = 25e9  # bytes/s of a GPU to other nodes, where the preset states none: 200 Gbit/s
_TO_EXPERTS = 3.0  # bytes of an element sent to an expert in 8 bits and back in 16 bits (DeepEP)
_EAGER = 40e-6  # seconds more a layer without CUDA graphs
_FAR = 30e-6  # seconds more for each exchange between nodes
_MICROSECOND, _MILLISECOND = 1e-6, 1e-3


def step_terms(server: ForecastServer, running: float, context: float) -> dict[str, float]:
    """Returns the seconds of a decode step with ``running`` requests on the whole server, ``context`` tokens each."""
    roofline, layers = server.roofline, server.layers
    step = roofline.step(running, context)
    band = roofline.bandwidth
    tokens = max(1.0, running / roofline.copies) * roofline.verified
    several = roofline.gpus > 1
    sent = tokens * _sent(server) if several else 0.0
    latent, sparse = _attention(server)
    width = tokens * server.hidden / band
    small = layers * _MICROSECOND
    routed = server.expert_layers * _MICROSECOND
    return {
        "weights": step.bytes["weights"] / band * roofline.stages,
        "experts": step.bytes["experts"] / band * roofline.stages,
        "cache": step.bytes["KV cache"] / band * roofline.stages,
        "states": step.bytes["states"] / band * roofline.stages,
        "arithmetic": step.seconds[COMPUTE],
        "exchange": sent,
        "activations": width * layers / server.dp,
        "expert activations": width * server.expert_layers * roofline.expert_chosen,
        "layer": small,
        "layer, several GPUs": small * several,
        "layer, log2 of GPUs": small * log2(roofline.gpus),
        "expert layer": routed,
        "expert layer, log2 of batch": routed * log2(1 + tokens),
        "expert layer, EP": routed * (server.ep > 1),
        "layer, DP attention": small * (server.dp > 1),
        "linear layer": server.linear_layers * _MICROSECOND,
        "latent layer": small * latent,
        "sparse layer": small * sparse,
        "expert layer, 8 bits": routed * server.eight,
        "layer, 8 bits": small * server.eight,
        "step": _MILLISECOND * roofline.stages,
        "request": running / roofline.copies * _MICROSECOND,
    }


def prompt_terms(server: ForecastServer, tokens: float) -> dict[str, float]:
    """Returns the seconds of a prompt with ``tokens`` uncached tokens, while other prompts keep the GPUs busy."""
    roofline, band = server.roofline, server.roofline.bandwidth
    latent, sparse = _attention(server)
    width = tokens * server.hidden * server.layers / band
    most = max((work.weights for work in roofline.work if not work.sampled), default=0.0)
    bits = {"prompt, 16 bits": 0.0, "prompt, 8 bits": 0.0, "prompt, 4 bits": 0.0, "prompt, experts of 8 bits": 0.0}
    for work in roofline.work:
        name = "prompt, 16 bits" if "16" in work.format else "prompt, 4 bits" if "fp4" in work.format else ""
        experts = bool(server.expert_layers) and work.weights == most and not work.sampled
        name = name or ("prompt, experts of 8 bits" if experts else "prompt, 8 bits")
        bits[name] += 2 * work.weights * (1 if work.sampled else tokens) / work.peak / roofline.gpus
    looking = sum(cache.flops * cache.pairs(tokens) for cache in roofline.caches)
    spread = tokens * server.hidden * server.expert_layers / band
    return {
        **bits,
        "prompt, attention": looking / roofline.peak / roofline.gpus if roofline.peak else 0.0,
        "prompt, exchange": tokens * _sent(server) if roofline.gpus > 1 else 0.0,
        "prompt, activations": width / server.dp,
        "prompt, expert activations": spread * roofline.expert_chosen,
        "prompt, latent": width * latent,
        "prompt, sparse": width * sparse,
        "prompt, EP": spread * (server.ep > 1),
        "prompt, layer": server.layers * _MICROSECOND,
    }


def assumed(server: ForecastServer, running: float) -> float:
    """Returns the unmeasured seconds of a decode step: kernels without CUDA graphs, exchanges between nodes."""
    batch = running / server.roofline.copies / server.dp
    eager = _EAGER * server.layers if batch > server.graphs else 0.0
    far = 2 * _FAR * server.layers if crosses(server) else 0.0
    return eager + far


def crosses(server: ForecastServer) -> bool:
    """Returns whether one copy of the model uses more GPUs than the fast link connects."""
    return server.roofline.gpus > server.domain > 0


def _sent(server: ForecastServer) -> float:
    """Returns the seconds to exchange one token's hidden states, in 16 bits, twice a layer; between nodes the share of
    one GPU. With an all-to-all backend a GPU sends its part of the token, and only to the chosen experts."""
    gpus, all_bytes, chosen_bytes = server.roofline.gpus, 4.0 * server.layers * server.hidden, 0.0
    if server.all_to_all:
        attention = server.layers / server.dp if server.tp > 1 else 0.0
        all_bytes = 2.0 * server.hidden * (attention + server.layers - server.expert_layers)
        chosen_bytes = _TO_EXPERTS * server.hidden * server.expert_layers * server.roofline.expert_chosen / gpus
    near = (all_bytes + chosen_bytes) / (server.roofline.link or PCIE)
    if not crosses(server):
        return near
    far = all_bytes / server.domain + chosen_bytes * (1 - server.domain / gpus)
    return near + far / (server.node_link or NETWORK)


def _attention(server: ForecastServer) -> tuple[bool, bool]:
    """Returns whether attention makes keys and values from latent ones, and whether an indexer selects tokens."""
    kinds = [cache.kind for cache in server.roofline.caches]
    return "latent" in kinds, "index keys" in kinds
