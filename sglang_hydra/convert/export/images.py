"""Finds the container image of an SGLang release for a kind of hardware, in a table with sources."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache

from sglang_hydra.arguments.tables.order import same_release
from sglang_hydra.planning.passing.passed import IMAGE_VARIABLE
from sglang_hydra.planning.plan import Plan
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding, Remedy
from sglang_hydra.text.locations import conf_dir

LAUNCH_SERVER = ("python3", "-m", "sglang.launch_server")
"""Starts the server in every release from 0.4 to 0.5.23."""

# The grammar of distribution/reference: [registry[:port]/]path[:tag][@digest].
_REFERENCE = re.compile(
    r"(?:[a-zA-Z0-9.-]+(?::\d+)?/)?[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"(?::\w[\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
# Boards with Arm (Grace) hosts, as in conf/gpu/gb200.yaml and gb300.yaml.
_ARM_BOARDS = ("GB200", "GB300")


@dataclass(frozen=True)
class Image:
    """One row of the table, or the image of ``launch.image`` (without a source).

    ``toolkit`` is the version of CUDA or ROCm. ``driver`` is the oldest host driver with all of its features, None if
    none is needed or known. ``entry`` starts the server inside."""

    version: str
    vendor: str
    toolkit: str | None
    capabilities: tuple[str, ...] | None
    arch: tuple[str, ...]
    image: str
    entry: tuple[str, ...]
    driver: str | None
    source: str


@cache
def images() -> tuple[Image, ...]:
    """Returns the table conf/images.json; of several rows for the same hardware the first one counts."""
    content = json.loads((conf_dir() / "images.json").read_text(encoding="utf-8"))
    lists = ("capabilities", "arch", "entry")
    return tuple(
        Image(**{**row, **{name: row[name] and tuple(row[name]) for name in lists}}) for row in content["images"]
    )


def image_of(plan: Plan) -> Image | None:
    """Returns the image for a plan's release and hardware: ``launch.image`` if set, else the table's, or None.

    Raises ConfigError for an invalid ``launch.image`` (EXP003) and for one of another release (IMP019)."""
    wanted = plan.nodes.launch.image
    known = _in_table(plan.engine.version, plan.gpu.vendor, _capability(plan), _arch(plan))
    if wanted is None:
        return known
    if not _REFERENCE.fullmatch(wanted):
        message = f"launch.image={wanted!r} is no image reference"
        example = known.image if known is not None else images()[0].image
        hint = f"launch.image={example}, or with @sha256:... for one build"
        raise ConfigError(Finding("error", "EXP003", message, ("launch.image",), hint))
    from sglang_hydra.convert.importing.reading import version_in

    is_tag = re.fullmatch(r"v?\d+\.\d+\.\d+[\w.-]*", wanted) is not None
    whole = f"{(known or images()[0]).image.partition(':')[0]}:{wanted}" if is_tag else wanted
    holds = version_in([whole])
    is_other = holds is not None and not same_release(holds, plan.engine.version)
    meant = f"launch.image={whole} engine.version={holds}" if is_other else f"launch.image={whole}"
    if is_tag:
        message = f"launch.image={wanted} is a tag, without its repository"
        raise ConfigError.of("EXP003", message, "launch.image", fix=meant)
    if is_other:
        message = f"launch.image={wanted} holds SGLang {holds}, and the plan is for {plan.engine.version}"
        fix = Remedy.fixed(meant, f"engine.version={holds}")
        raise ConfigError.of("IMP019", message, "launch.image", fix=fix)
    # A user's own image starts the server as the release does everywhere.
    entry = known.entry if known and without_digest(wanted) == without_digest(known.image) else LAUNCH_SERVER
    return Image(plan.engine.version, plan.gpu.vendor, None, None, (), wanted, entry, None, "launch.image")


def without_digest(image: str) -> str:
    """Returns a reference without its ``@sha256:...``; the table may have images with and without one."""
    return image.partition("@")[0]


def missing_image(plan: Plan) -> Finding:
    """Returns the warning for a plan without an image in the table; offers the newest release with one."""
    capability, arch = _capability(plan), _arch(plan)
    versions = {row.version for row in images() if _in_table(row.version, plan.gpu.vendor, capability, arch)}
    ordered = sorted(versions, key=lambda version: [int(part) for part in re.findall(r"\d+", version)])
    newest = [f"engine.version={version}" for version in ordered[-1:]]
    message = f"no published image of SGLang {plan.engine.version} is known for {hardware(plan)}"
    hint = f"launch.image=REPOSITORY:TAG, or {IMAGE_VARIABLE}=REPOSITORY:TAG where a script or Compose file is used"
    return Finding("warning", "EXP002", message, ("launch.image",), (*newest, hint))


def hardware(plan: Plan) -> str:
    if plan.gpu.vendor == "none":
        return "the CPU engine"
    capability, arch = _capability(plan), _arch(plan)
    kind = "gfx" if plan.gpu.vendor == "amd" else "compute capability "
    shown = {"9.4": "942", "9.5": "950"}.get(capability or "", capability) if kind == "gfx" else capability
    return f"{plan.gpu.name} ({plan.gpu.vendor}, {kind}{shown or 'unknown'}, {arch} host)"


def _in_table(version: str, vendor: str, capability: str | None, arch: str) -> Image | None:
    for row in images():
        fits = row.capabilities is None or capability in row.capabilities
        if row.version == version and row.vendor == vendor and fits and arch in row.arch:
            return row
    return None


def _capability(plan: Plan) -> str | None:
    return ".".join(map(str, plan.gpu.compute_capability)) if plan.gpu.compute_capability else None


def _arch(plan: Plan) -> str:
    """Returns the host architecture of the plan: arm64 for boards with an Arm processor, else amd64."""
    named = " ".join([plan.gpu.name, *plan.nodes.gpu.device_names]).upper()
    return "arm64" if any(board in named for board in _ARM_BOARDS) else "amd64"
