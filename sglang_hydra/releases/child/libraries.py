"""Provides libraries for the argument code: transformers without torch, and small stand-ins that answer."""

from __future__ import annotations

import builtins
import functools
import importlib
import json
import re
import sys
import typing
from collections.abc import Collection
from types import ModuleType, SimpleNamespace
from typing import Any

from .inert import inert_name
from .questions import asking_package, is_importing
from .why import unwatched


def install(device: str, libraries: Collection[str]) -> None:
    """Installs the stand-ins before the release is imported. Triton compiles for CUDA, AMD and Intel GPUs, and has no
    driver for others."""
    sys.modules["regex"] = re
    orjson: Any = importlib.import_module("orjson")
    orjson.loads, orjson.JSONDecodeError = json.loads, json.JSONDecodeError
    orjson.dumps = lambda value, *_, **__: json.dumps(value, separators=(",", ":")).encode()
    dill: Any = importlib.import_module("dill")
    dill.dumps = lambda *_, **__: b""  # pickles a class for requests: no argument holds it
    triton: Any = importlib.import_module("triton.runtime.driver")
    triton.active = SimpleNamespace(get_current_target=functools.partial(_triton_target, device))
    runtime: Any = importlib.import_module("triton.runtime")
    runtime.driver = triton
    kernels: Any = importlib.import_module("sgl_kernel.scalar_type")
    kernels.scalar_types = _Distinct()
    _soften_transformers()
    if "msgspec" in libraries:
        structs: Any = importlib.import_module("msgspec.structs")
        structs.fields = functools.cache(structs.fields)
    _remember_hints()
    builtins.__import__ = unwatched(builtins.__import__)


def _remember_hints() -> None:
    """Caches type hints: a release asks for those of its 500 arguments several times a case, and they do not change."""
    real = typing.get_type_hints

    @functools.cache
    def hints(kind: type, options: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
        return real(kind, **dict(options))

    def remembered(kind: Any, *names: Any, **options: Any) -> dict[str, object]:
        if names or is_importing() or set(options) - {"include_extras"} or not isinstance(kind, type):
            return real(kind, *names, **options)
        return dict(hints(kind, tuple(options.items())))

    typing.get_type_hints = remembered  # type: ignore[assignment]


def _triton_target(device: str) -> SimpleNamespace:
    if device not in ("cuda", "hip", "xpu"):
        raise RuntimeError("0 active drivers ([]). There should only be one.")
    return SimpleNamespace(backend=device)


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
    asked: set[str] = set()

    def attribute(module: Any, name: str) -> object:
        full = f"{module.__name__}.{name}"
        if full in asked:  # for a tokenizer it asks for the slow one, which asks for the fast one
            raise AttributeError(name)
        asked.add(full)
        try:
            value = real(module, name)
            if name == "AutoConfig":
                value.from_pretrained = unwatched(value.from_pretrained)
            if type(value).__name__ != "DummyObject":
                return value
        except (ImportError, RuntimeError, TypeError, AttributeError):
            pass
        finally:
            asked.discard(full)
        # Its config classes are all real: it looks for them in several modules, and must not find one where it is not.
        if name.startswith("__") or (name.endswith("Config") and asking_package() == "transformers"):
            raise AttributeError(name)
        value = inert_name(full)
        setattr(module, name, value)
        return value

    kind.__getattr__ = attribute
