"""The engine's environment: what is installed in it, and what compiles kernels for it at run time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from sglang_hydra.releases.records import default_release
from sglang_hydra.run.doctor.examination import Verdict, check
from sglang_hydra.run.doctor.machine_state import Interpreter, World
from sglang_hydra.run.doctor.phrases import dotted
from sglang_hydra.text.words import plural

# The packages whose versions people are asked for first.
_SHOWN = ("sglang", "torch", "transformers", "flashinfer-python", "sgl-kernel", "sglang-kernel", "triton")
# SGLang 0.5.2 compares these at the start and stops (entrypoints/engine.py:672-687).
_KERNELS = ("sgl-kernel", "sglang-kernel", "flashinfer-python")
_EXTRAS = {"cuda": "srt", "hip": "srt-hip", "xpu": "srt-xpu"}


class Mismatch(NamedTuple):
    """A package, or Python itself, that is not what SGLang's metadata asks for; ``here`` is None for what is not
    installed."""

    name: str
    wanted: str
    here: str | None

    @property
    def message(self) -> str:
        return f"{self.name} {self.here or 'is not installed'}, wanted {self.wanted or 'in any version'}"


@check("DOC016", "installed packages")
def check_packages(world: World) -> Verdict:
    """
    What: what the engine's environment has installed, against the versions that its SGLang asks for.
    Why: SGLang is released against exact versions of torch, transformers and its kernels; kernels that are missing or
        older stop it at the start. pip refuses SGLang for another Python. Inferred: with another version it often
        starts and then fails on an import or a changed function.
    Source: Requires-Dist and Requires-Python in the metadata of the installed SGLang, for the kind of torch that is
        there.
    Example: torch 2.9.1 beside SGLang 0.5.2, which asks for ==2.8.0 -> warning
    """
    one = world.interpreter
    versions = {name: one.versions[name] for name in _SHOWN if name in one.versions}
    if one.problem:
        return Verdict("error", one.problem, "engine.python=an interpreter that runs here")
    shown = ", ".join(f"{name} {version}" for name, version in versions.items())
    if "sglang" not in versions:
        fix = (
            f'engine.python=an interpreter that has it, or {one.path} -m pip install "sglang[all]=={default_release()}"'
        )
        return Verdict(
            "warning", f"SGLang is not installed here ({shown or 'nor is torch'})", fix, values={"versions": versions}
        )
    if not one.requires:
        return Verdict("unknown", f"{shown}; SGLang's metadata states no requirements", values={"versions": versions})
    extra = _extra(one)
    wrong = mismatches(one, extra)
    values = {"versions": versions, "mismatches": [item._asdict() for item in wrong]}
    verdict = partial(Verdict, values=values)
    details = tuple(item.message for item in wrong)
    if not wrong:
        return verdict("ok", f"{shown}; all as SGLang asks", details=details)
    named = f'{one.path} -m pip install "sglang{f"[{extra}]" if extra else ""}=={versions["sglang"]}"'
    fatal = [item for item in wrong if item.name in _KERNELS and _too_old(item)]
    if fatal and (one.torch_build or {}).get("cuda"):
        return verdict("error", f"{shown}; SGLang stops at the start: {fatal[0].message}", named, details)
    return verdict("warning", f"{shown}; {plural(len(wrong), 'package')} not as SGLang asks", named, details)


def mismatches(one: Interpreter, extra: str | None) -> list[Mismatch]:
    """Every requirement of SGLang, with the extra that fits this torch, that its environment does not meet."""
    from packaging.utils import canonicalize_name

    found: dict[str, Mismatch] = {}
    if one.version and one.requires_python and not _satisfies(dotted(one.version), one.requires_python):
        found["python"] = Mismatch("Python", one.requires_python, dotted(one.version))
    for name, wanted in _requirements(one, extra):
        here = one.versions.get(canonicalize_name(name))
        if here is None or not _satisfies(here, wanted):
            found.setdefault(canonicalize_name(name), Mismatch(canonicalize_name(name), wanted, here))
    return sorted(found.values())


def _requirements(one: Interpreter, extra: str | None) -> Iterator[tuple[str, str]]:
    """(name, version specifier) of what applies here; extras that name extras of SGLang itself are followed."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    parsed = []
    for line in one.requires:
        try:
            parsed.append(Requirement(line))
        except InvalidRequirement:
            continue
    version = one.version or (3, 10, 0)
    python = {"python_version": dotted(version[:2]), "python_full_version": dotted(version)}
    extras, seen = ["", *([extra] if extra else [])], set[str]()
    while extras:
        chosen = extras.pop()
        seen.add(chosen)
        for requirement in parsed:
            marker = requirement.marker
            about_extra = marker is not None and "extra" in str(marker)
            # The empty extra gives what is always needed; an extra only what it adds.
            if about_extra != bool(chosen) or (marker is not None and not marker.evaluate({**python, "extra": chosen})):
                continue
            if canonicalize_name(requirement.name) == "sglang":
                extras += [name for item in requirement.extras if (name := canonicalize_name(item)) not in seen]
            else:
                yield requirement.name, str(requirement.specifier)


def _extra(one: Interpreter) -> str | None:
    """The extra of this SGLang that its torch belongs to; None where it has none, as its later releases."""
    build = one.torch_build or {}
    wanted = next((extra for kind, extra in _EXTRAS.items() if build.get(kind)), "srt-cpu")
    named = " ".join(one.requires).replace("_", "-")
    return wanted if f'extra == "{wanted}"' in named or f"extra == '{wanted}'" in named else None


def _too_old(item: Mismatch) -> bool:
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    if item.here is None:
        return True
    try:
        return any(
            Version(item.here) < Version(one.version)
            for one in SpecifierSet(item.wanted)
            if one.operator in ("==", ">=", "~=")
        )
    except InvalidVersion:
        return False


def _satisfies(version: str, wanted: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version) in SpecifierSet(wanted, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return True  # what cannot be compared is no mismatch


@check("DOC018", "compilers")
def check_compilers(world: World) -> Verdict:
    """
    What: a C compiler, Python's headers and nvcc, where an NVIDIA GPU is here.
    Why: Triton compiles a small C file at the first start of every kernel and fails without a compiler or Python.h.
        FlashInfer and DeepGEMM compile CUDA code with nvcc for what their wheels do not bring.
    Source: Triton's and FlashInfer's own build steps; sgl-project/sglang issues 1067, 1117 and 5002.
    Example: no gcc in a slim image -> error, sudo apt-get install build-essential
    """
    one, tools = world.interpreter, world.tools
    values = {**tools, "python_headers": one.headers}
    verdict = partial(Verdict, values=values)
    if not world.visible:
        return verdict("ok", "no NVIDIA GPU is visible, so nothing is compiled for one")
    if tools.get("cc") is None:
        found = "no C compiler on PATH: Triton cannot start a kernel"
        return verdict("error", found, "sudo apt-get install build-essential (or export CC=COMPILER)")
    if one.headers is False:
        version = dotted(one.version[:2]) if one.version else "3"
        return verdict(
            "error",
            f"{one.path} has no Python.h: Triton cannot start a kernel",
            f"sudo apt-get install python{version}-dev",
        )
    if tools.get("nvcc") is None and not _brings_kernels(one.versions):
        found = "no nvcc: FlashInfer and DeepGEMM fail where their wheels lack a kernel"
        fix = "install the CUDA toolkit and export CUDA_HOME=/usr/local/cuda, or attention_backend=triton"
        return verdict("warning", found, fix)
    return verdict("ok", ", ".join(filter(None, tools.values())))


def _brings_kernels(versions: Mapping[str, str]) -> bool:
    """Whether FlashInfer's compiled kernels are installed beside it."""
    return any(name in versions for name in ("flashinfer-jit-cache", "flashinfer-cubin"))
