"""Adds resolvers for YAML files: ``${probe:memory_mib}`` and others read this machine, which is probed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang_hydra.text.words import nearest

_KEYS = ("memory_mib", "count", "name", "compute_capability", "device", "vendor")


def register_resolvers() -> None:
    """Registers ``${probe:memory_mib}`` and ``${tiny_path:}`` in OmegaConf. Repeated calls change nothing."""
    from omegaconf import OmegaConf

    if not OmegaConf.has_resolver("tiny_path"):
        from sglang_hydra.facts.tiny import tiny_path

        register_resolver("tiny_path", lambda: str(tiny_path()))
        register_resolver("probe", probed)


def register_resolver(name: str, resolver: Callable[..., Any]) -> None:
    """Registers an OmegaConf resolver and replaces an older one of this name. Works under both names of the function:
    ``register_resolver`` was another function before 2.4."""
    import omegaconf

    old = omegaconf.__version__.startswith("2.3.")
    register: Any = omegaconf.OmegaConf.register_new_resolver if old else omegaconf.OmegaConf.register_resolver
    register(name, resolver, replace=True)


def probed(key: str) -> str | int | float | None:
    """Returns one value of this machine's probe, by its key in conf/gpu; None where it is unknown.

    Raises ValueError for any other key."""
    if key not in _KEYS:
        near = nearest(key, _KEYS)
        advice = f"; did you mean {near}?" if near else ""
        raise ValueError(f"${{probe:{key}}}: the probe knows {', '.join(_KEYS)}{advice}")
    from sglang_hydra.facts.probe import machine

    found = machine()
    if key == "compute_capability":
        capability = found.compute_capability
        return f"{capability[0]}.{capability[1]}" if capability else None
    value: str | int | float | None = getattr(found, key)
    return value
