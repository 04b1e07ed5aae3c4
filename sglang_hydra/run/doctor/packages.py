"""The engine's environment: what is installed in it."""

from __future__ import annotations

from sglang_hydra.releases.records import default_release
from sglang_hydra.run.doctor.examination import Verdict, check
from sglang_hydra.run.doctor.machine_state import World

# The packages whose versions people are asked for first.
_SHOWN = ("sglang", "torch", "transformers", "flashinfer-python", "sgl-kernel", "sglang-kernel", "triton")


@check("DOC016", "installed packages")
def check_packages(world: World) -> Verdict:
    """
    What: the interpreter of the engine, and the versions of SGLang and of what it is built on in its environment.
    Why: without SGLang nothing is served. SGLang is released against exact versions of torch, transformers and its
        kernels; pip compares what is installed with them.
    Source: the metadata of the installed packages, read from disk.
    Example: no SGLang beside torch 2.8.0 -> warning, pip install "sglang[all]==0.5.2"
    """
    one = world.interpreter
    if one.problem:
        return Verdict("error", one.problem, "engine.python=an interpreter that runs here")
    versions = {name: one.versions[name] for name in _SHOWN if name in one.versions}
    shown = ", ".join(f"{name} {version}" for name, version in versions.items())
    if "sglang" in versions:
        found = f"{shown}; {one.path} -m pip check compares them with what SGLang asks for"
        return Verdict("ok", found, values={"versions": versions})
    install = f'{one.path} -m pip install "sglang[all]=={default_release()}"'
    found = f"SGLang is not installed here ({shown or 'nor is torch'})"
    fix = f"engine.python=an interpreter that has it, or {install}"
    return Verdict("warning", found, fix, values={"versions": versions})
