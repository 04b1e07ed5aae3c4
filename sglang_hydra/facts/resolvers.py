"""``${probe:memory_mib}`` and its kin: what this machine has, in a YAML file. Reading one asks the machine, once."""

from __future__ import annotations

from sglang_hydra.text.words import nearest

_KEYS = ("memory_mib", "count", "name", "compute_capability", "device", "vendor")


def register_resolvers() -> None:
    """Makes ``${probe:memory_mib}`` and its kin work in OmegaConf. Calling it again changes nothing."""
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("probe", probed, replace=True)


def probed(key: str) -> str | int | float | None:
    """One value of this machine's probe, by its key in conf/gpu; None where it is unknown.

    Raises ValueError for any other key.
    """
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
