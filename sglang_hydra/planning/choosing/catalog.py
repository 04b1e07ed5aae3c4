"""Reads the catalog: the GPU classes and models of an app's presets, its own folders included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sglang_hydra.architecture.known import text_part
from sglang_hydra.architecture.understanding import config_fields, context_length
from sglang_hydra.arguments.fields import fresh_defaults
from sglang_hydra.compose.grammar import has_interpolation
from sglang_hydra.facts.declared import gpu_facts
from sglang_hydra.facts.gpu import GpuClass, GpuFacts
from sglang_hydra.facts.stated_config import preset_facts
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import by_identity

if TYPE_CHECKING:
    from sglang_hydra.compose.composer import Composer
    from sglang_hydra.compose.overrides import Request
    from sglang_hydra.compose.presets import Preset
    from sglang_hydra.facts.model import ModelFacts


class Model(NamedTuple):
    """A model of the catalog: its option (``model=name``), its checkpoint, its facts and its arguments. Pair files know
    it by ``pair_name``."""

    name: str
    path: str
    facts: ModelFacts
    args: Mapping[str, object]
    pair_name: str

    @property
    def weights_gib(self) -> float | None:
        """Returns the size of the checkpoint's files in GiB by its config.json; None if unknown."""
        from sglang_hydra.planning.making.memory import checkpoint_bytes

        files = {"moe_runner_backend": "triton_kernel"}  # keeps MXFP4 packed
        values = {**fresh_defaults(), **files, "model_path": self.path, **self.args}
        size = checkpoint_bytes(values, GpuFacts("h200", "nvidia", "cuda"), self.facts)
        return None if size is None else round(size / 2**30, 1)

    @property
    def variants(self) -> str | None:
        """Returns the formats that ``model.variant`` takes, sorted; None without one."""
        from sglang_hydra.architecture.published_checkpoints import variants

        return " ".join(sorted(variants(self.path))) or None

    @property
    def context(self) -> int | None:
        """Returns the longest context in tokens as SGLang derives it from the config.json; None without one."""
        config = config_fields(self.facts, "{}")
        return None if config is None else context_length(text_part(config))


def gpu_classes(composer: Composer, requests: Sequence[Request] = (), *, strict: bool = False) -> list[GpuClass]:
    """Returns the classes with a known memory.

    Leaves out presets that are broken or depend on the rest of the configuration; with ``strict`` a broken one raises
    ConfigError."""
    found: list[GpuClass] = []
    findings: list[Finding] = []
    for preset in composer.presets("gpu", requests, strict=strict):
        if preset.node["memory_mib"] is None or has_interpolation(dict(preset.node)):
            continue
        try:
            found.append(GpuClass(preset.name, gpu_facts(preset.node, {}), preset.node["args"]))
        except ConfigError as failure:
            findings += (replace(item, message=f"gpu={preset.name}: {item.message}") for item in failure.findings)
    if strict and findings:
        raise ConfigError(*findings)
    return found


def models(composer: Composer, requests: Sequence[Request] = (), *, strict: bool = False) -> list[Model]:
    """Returns the models with facts and a checkpoint of their own. ConfigError for a broken one if ``strict``."""
    return _models_of(composer.presets("model", requests, strict=strict))


@by_identity
def _models_of(presets: Sequence[Preset]) -> list[Model]:
    """Returns the models of a list of presets, which a composer makes once."""
    return [
        Model(
            preset.name,
            preset.node["model_path"],
            facts,
            {name: value for name, value in preset.node["args"].items() if name != "served_model_name"},
            str(preset.node["name"]),
        )
        for preset in presets
        for facts in [preset_facts(preset.node, f"preset {preset.name}")]
        if facts is not None and preset.node["model_path"] is not None
    ]
