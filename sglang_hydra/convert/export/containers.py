"""Comments and refusals that all container formats share."""

from __future__ import annotations

from sglang_hydra.convert.export.images import Image
from sglang_hydra.convert.export.job import Job
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding

_VENDORS = ("nvidia", "amd")


def require_container_vendor(job: Job) -> None:
    """Raises ConfigError (EXP010) for GPUs whose use in containers is not known here."""
    vendor = job.plan.gpu.vendor
    if job.gpus and vendor not in _VENDORS:
        message = f"how a container gets the accelerators of {vendor} is not known here; of {', '.join(_VENDORS)} it is"
        hint = "export shell or slurm, which need no container"
        raise ConfigError(Finding("error", "EXP010", message, ("gpu",), hint))


def listening_lines(job: Job, published: str) -> list[str]:
    """Explains that the server listens on every address inside, and how it is reached from outside."""
    lines = ["Inside the container the server listens on every address (0.0.0.0)."]
    if job.nodes > 1:
        return [*lines, "The containers use the network of their hosts: who can reach a host reaches the server."]
    if not job.is_public:
        lines.append(f"It is published on {published.rpartition(':')[0]} of the host alone; host=0.0.0.0 opens it.")
    return lines


def driver_lines(image: Image | None) -> list[str]:
    """Explains what the image contains, and which driver it needs on its host."""
    if image is None or image.toolkit is None:
        return []
    needs = f"; the host needs driver {image.driver} or newer" if image.driver else ""
    return [f"The image holds {image.toolkit}{needs}. Source: {image.source}."]
