"""Libraries that the argument code computes with: transformers without torch, and small stand-ins that answer."""

from __future__ import annotations

import importlib
import json
import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

from .inert import inert_name
from .questions import asking_package


def install(is_amd: bool) -> None:
    """Before the release is imported. Triton compiles for AMD or for CUDA."""
    sys.modules["regex"] = re
    orjson: Any = importlib.import_module("orjson")
    orjson.loads, orjson.JSONDecodeError = json.loads, json.JSONDecodeError
    orjson.dumps = lambda value, *_, **__: json.dumps(value, separators=(",", ":")).encode()
    dill: Any = importlib.import_module("dill")
    dill.dumps = lambda *_, **__: b""  # of a class of the release, for requests: no argument has it
    triton: Any = importlib.import_module("triton.runtime.driver")
    triton.active = SimpleNamespace(get_current_target=lambda: SimpleNamespace(backend="hip" if is_amd else "cuda"))
    runtime: Any = importlib.import_module("triton.runtime")
    runtime.driver = triton
    kernels: Any = importlib.import_module("sgl_kernel.scalar_type")
    kernels.scalar_types = _Distinct()
    _soften_transformers()


class _Distinct:
    """Constants that are only compared with each other: each name is one object."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = object()
        setattr(self, name, value)
        return value


def _soften_transformers() -> None:
    """Makes the names of transformers that need torch inert. Its config classes are real."""
    transformers = importlib.import_module("transformers")
    kind: Any = type(transformers)
    if kind is ModuleType:
        return
    real = kind.__getattr__

    def attribute(module: Any, name: str) -> Any:
        try:
            value = real(module, name)
            if type(value).__name__ != "DummyObject":
                return value
        except (ImportError, RuntimeError, TypeError, AttributeError):
            pass
        # Its config classes are all real: it looks for them in several modules, and must not find one where it is not.
        if name.startswith("__") or (name.endswith("Config") and asking_package() == "transformers"):
            raise AttributeError(name)
        value = inert_name(f"{module.__name__}.{name}")
        setattr(module, name, value)
        return value

    kind.__getattr__ = attribute
