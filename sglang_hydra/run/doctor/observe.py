"""Looks at this machine once, from every side that a check wants."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from functools import partial

from sglang_hydra.facts.hub import cache_root
from sglang_hydra.planning.engines.machine import free_memory_bytes
from sglang_hydra.run.doctor import interpreter, model_files, system
from sglang_hydra.run.doctor.machine_state import Request, Space, World
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
        free_memory=free_memory_bytes(),
        container=system.container(env),
        job=system.job(env),
        interpreter=interpreter.read_interpreter(request.python),
        tools=system.tools(env),
        weights=system.space(request.download_dir or cache_root(env)),
        caches=_caches(env),
        model=model_files.look_for_model(
            model, env, request.download_dir, ask=partial(model_files.ask_hub, access=request.access)
        )
        if model
        else None,
        obstacle=port_obstacle(request.host, request.port),
    )


def _caches(env: Mapping[str, str]) -> tuple[Space, ...]:
    """The folders that a server writes to besides the weights': compiled kernels, sockets and temporary files.

    Triton's cache is TRITON_CACHE_DIR, else ~/.triton; FlashInfer's is below FLASHINFER_WORKSPACE_BASE, else below
    the home folder; DeepGEMM's is SGL_DG_CACHE_DIR in SGLang 0.5.2, else ~/.cache/deep_gemm.
    """
    home = env.get("HOME") or "~"
    wanted = [
        env.get("TRITON_CACHE_DIR") or os.path.join(env.get("TRITON_HOME") or home, ".triton", "cache"),
        os.path.join(env.get("FLASHINFER_WORKSPACE_BASE") or home, ".cache", "flashinfer"),
        env.get("SGL_DG_CACHE_DIR") or os.path.join(home, ".cache", "deep_gemm"),
        env.get("TMPDIR") or tempfile.gettempdir(),
    ]
    return tuple(system.space(path) for path in wanted)
