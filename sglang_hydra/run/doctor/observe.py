"""Looks at this machine once, from every side that a check wants."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from sglang_hydra.facts.hub import cache_root
from sglang_hydra.run.doctor import model_files, system
from sglang_hydra.run.doctor.machine_state import Interpreter, Request, World
from sglang_hydra.run.doctor.nvml import survey_nvidia
from sglang_hydra.run.launch.port import port_obstacle


def observe(env: Mapping[str, str], request: Request) -> World:
    """The machine as a server with the environment ``env`` would find it."""
    from sglang_hydra.facts.probe import probe_gpu

    nvidia = survey_nvidia()
    # Only where there is no NVIDIA GPU to ask: the other vendors' tools are programs to run.
    other = None if nvidia.gpus else probe_gpu(env, python=request.python)
    model = request.model_path
    return World(
        env=env,
        request=request,
        nvidia=nvidia,
        other=other,
        shm=system.shared_memory(),
        container=system.container(env),
        job=system.job(env),
        interpreter=read_interpreter(request.python),
        weights=system.space(request.download_dir or cache_root(env)),
        model=model_files.look_for_model(
            model, env, request.download_dir, ask=partial(model_files.ask_hub, access=request.access)
        )
        if model
        else None,
        obstacle=port_obstacle(request.host, request.port),
    )


def read_interpreter(python: str | None) -> Interpreter:
    """The environment of ``python`` (None: ours)."""
    from sglang_hydra.facts.environments import find_python
    from sglang_hydra.facts.installed import installed, interpreter_paths, torch_build

    packages = installed(python)
    build = None if packages.problem else torch_build(interpreter_paths(python))
    return Interpreter(find_python(python), packages.versions, build, packages.problem)
