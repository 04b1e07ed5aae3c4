"""The keys that a constraint may name, and their values at one point: what was planned, and not what was typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.compose.schema import NODES
from sglang_hydra.fit.result import Fit, gib
from sglang_hydra.measure.sweep.where import Where
from sglang_hydra.planning.plan import Plan
from sglang_hydra.show.key_help import key_of, keys
from sglang_hydra.text.json_types import value_at
from sglang_hydra.text.words import nearest

_FIT: Mapping[str, Callable[[Fit], Any]] = {
    "fits": lambda fit: fit.fits,
    "tight": lambda fit: fit.tight,
    "gpus": lambda fit: fit.gpus,
    "replicas": lambda fit: fit.replicas,
    "kv_tokens": lambda fit: fit.kv_tokens,
    "running": lambda fit: fit.running,
    "weights_gib": lambda fit: gib(fit.weights.total),
    "left_gib": lambda fit: gib(fit.left),
    "error_gib": lambda fit: fit.error_gib,
    "bytes_per_token": lambda fit: None if fit.kv is None else fit.kv.bytes_per_token,
    "mem_fraction_low": lambda fit: None if fit.interval is None else fit.interval.low,
    "mem_fraction_high": lambda fit: None if fit.interval is None else fit.interval.high,
}
"""What the memory fit says of one GPU, beside the settings of the ``fit`` node."""


def check_keys(where: Where) -> None:
    """Raises ConfigError for a key that no plan has."""
    for key in where.keys:
        problem = _problem(key)
        if problem:
            raise where.refusal(key, *problem)


def value_of(key: str, plan: Plan, bench: Mapping[str, Any]) -> Any:
    """The value of a key that ``check_keys`` has passed; None where it is not set, or not known."""
    if key in EVERY:
        return plan.values[key]
    node, *rest = key.split(".")
    if node == "fit" and rest[0] in _FIT:
        return None if plan.fit is None else _FIT[rest[0]](plan.fit)
    if node == "gpu":
        return _of_gpu(rest[0], plan)
    if node == "model" and rest[0] == "config":
        return value_at({"model": {"config": plan.model.config}}, key)
    return value_at({**plan.nodes.plain, "bench": bench}, key)


def _of_gpu(name: str, plan: Plan) -> Any:
    if name == "compute_capability":
        capability = plan.gpu.compute_capability
        return float(f"{capability[0]}.{capability[1]}") if capability else None
    if hasattr(plan.gpu, name):
        return getattr(plan.gpu, name)
    return plan.gpu.extra.get(name, getattr(plan.nodes.gpu, name, None))


def _problem(key: str) -> tuple[str, str | None] | None:
    """Why no plan has this key, and what to type."""
    if key in EVERY:
        return None
    node, *rest = key.split(".")
    if node in EVERY or (rest and node in keys()):
        return f"{node} is one value, and has no key {rest[0]}", node
    if node in ("sweep", "ignore"):
        return f"{node} says how all points are planned, and nothing of one of them", None
    if node not in NODES:
        near = nearest(node, [*EVERY, *NODES])
        hint = f"did you mean {near}?" if near else f"'{key}' in quotes is a text"
        return f"{node} is neither an argument of SGLang nor a key of a plan", hint
    if (node == "fit" and rest and rest[0] in _FIT) or key_of(key) is not None:
        return None
    inside = [name for name in keys() if name.startswith(f"{key}.")]
    if inside:
        return f"{key} has keys and no value of its own", inside[0]
    path = key.rpartition(".")[0]
    while not (beside := [known[len(path) + 1 :] for known in keys() if known.startswith(f"{path}.")]):
        path = path.rpartition(".")[0]
    name = key[len(path) + 1 :]
    near = nearest(name, [*beside, *(_FIT if node == "fit" else ())])
    return f"{path} has no key {name}", f"did you mean {path}.{near}?" if near else f"{path}: {', '.join(beside)}"
