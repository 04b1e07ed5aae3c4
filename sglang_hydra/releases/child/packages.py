"""Decides which packages are real, inert or absent in the child, and the versions that they report."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from .inert import InertLoader, InertModule, inert_name
from .questions import Asked, asking_package, refuse
from .sealed import Sealed

INERT_PARTS = ("sglang.srt.layers", "sglang.srt.distributed")
"""Kernels and process groups, which the argument code mentions. Parts that it calls are a release's real parts."""

_TABLE: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
BY_DEVICE: Mapping[str, str] = _TABLE["by_device"]
"""Packages that only the images for one kind of accelerator have."""
ABSENT = frozenset(_TABLE["absent"].split())
"""Packages that no published image for NVIDIA or AMD has."""
LIBRARIES = frozenset(_TABLE["libraries"].split())
"""Requirements of transformers and huggingface_hub: they count as installed, and are inert."""

_STRUCTURE = ("transformers.utils.import_utils", "define_import_structure")
"""The function that searches transformers' files for its names."""

_NEEDS_TORCH = ("modeling_", "modular_", "image_processing_", "processing_", "video_processing_", "tokenization_")
"""Modules of transformers that are not unpacked, and that count as absent from an installed one too."""
_NOT_ASKED = ("multimodal_gen", "benchmark")
"""Parts of SGLang that are treated alike."""

_REMOVED = ("transformers.models.llama.modeling_llama.LlamaFlashAttention2",)
"""Names that no pinned transformers has: this one was removed in 4.48."""
_INTEL_KERNEL = "torch.ops.sgl_kernel.convert_weight_packed"
"""Registered by the kernels for the CPU."""
_PRESENT = frozenset({"transformers.models.llama.modeling_llama.LlamaAttention", _INTEL_KERNEL})
"""Names that certainly exist in inert or unfetched modules."""

_EXTRAS = frozenset({"http2", "fastokens", "instanttensor"})
"""Extras that the argument code asks for: an installation without extras lacks their requirements."""
_RUNTIME = "runtime-common"
_EXTRA = re.compile(r"extra == ['\"]([\w-]+)")
_REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?\s*\(?\s*(?:.*?(?:>=|==)\s*([\w.]+))?")


class Packages(MetaPathFinder):
    """Finds the release, its libraries and the standard library in their folders, and inert modules for the rest.
    ``release`` is the folder of SGLang, ``folders`` are those of ``libraries`` by name; other packages in these folders
    are not found. ``real_parts`` are the modules below inert parts that must be real. ``machine`` says which optional
    packages exist, and is read each time. ``sealed`` reads unpacked wheels; the folders of an environment have none."""

    def __init__(
        self,
        release: str,
        folders: Sequence[str],
        libraries: Sequence[str],
        real_parts: Sequence[str],
        machine: Mapping[str, Any],
        sealed: Sealed | None = None,
    ) -> None:
        self.release, self.sealed, self.standard = release, sealed, list(sys.path)
        self.folders = list(dict.fromkeys((release, *folders)))
        self.real = {"sglang", *libraries}
        self.real_parts = frozenset(real_parts)
        self.machine = machine
        self.required = self._requirements(["sglang"])
        self.needed = self._requirements(libraries)
        self.extras = self._requirements(["sglang"], _EXTRAS).keys() - self.required.keys()

    def places(self, names: Collection[str]) -> list[str]:
        """Returns the modules and metadata in the folders of these packages."""
        return [
            os.path.join(folder, entry)
            for folder in self.folders
            for entry in os.listdir(folder)
            if re.split("[.-]", entry)[0] in names
        ]

    def install(self) -> None:
        """Makes this the only way to find a module outside of the interpreter."""
        sys.path += self.folders  # after the standard library, which no environment replaces
        sys.meta_path[:] = [BuiltinImporter, FrozenImporter, self]
        InertModule.absent = staticmethod(self._is_absent_attribute)
        InertModule.present = _PRESENT
        InertModule.version_of = staticmethod(lambda top: self.version(top) or "99.0.0")
        InertModule.submodule = staticmethod(self._real_submodule)
        _hide_from_transformers(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = fullname.partition(".")[0]
        if top in self.real:
            return self._inert(fullname) if self._is_inert_part(fullname) else self._real(fullname, path, target)
        if top in sys.stdlib_module_names:
            return PathFinder.find_spec(fullname, path or self.standard, target)
        # vLLM exists for AMD, without the parts that SGLang tries first.
        is_there = self.is_present(top) and not fullname.startswith("vllm.model_executor")
        return self._inert(fullname) if is_there else None

    def is_present(self, top: str) -> bool:
        """Returns whether the asking code can import the package ``top``. Transformers sees only its own requirements:
        its config classes need no torch."""
        if asking_package() in ("transformers", "huggingface_hub"):
            return top in LIBRARIES
        declared = self.machine.get("packages", {})
        if top in declared:
            return bool(declared[top] is not None)
        if top in ("flashinfer", "triton_kernels"):
            return bool(self.machine[top])
        if top in BY_DEVICE:
            return bool(BY_DEVICE[top] == self.machine["device"])
        if top in self.extras:
            Asked.assumed[f"package {top}"] = None
        return top not in ABSENT and top not in self.extras

    def is_known_absent(self, top: str) -> bool:
        """Returns whether a release that imports ``top`` fails on this machine as on the real one."""
        declared = self.machine.get("packages", {})
        device = self.machine["device"]
        is_declared = top in declared and declared[top] is None
        return is_declared or top in self.extras or top in ABSENT or BY_DEVICE.get(top, device) != device

    def version(self, name: str) -> str | None:
        """Returns the version of a stand-in for a distribution; None if it is not installed."""
        key = name.lower().replace("-", "_").replace(".", "_")
        declared = self.machine.get("packages", {})
        if key in declared:
            return None if declared[key] is None else str(declared[key])
        if asking_package() in ("transformers", "huggingface_hub"):
            return self.needed.get(key, "99.0") if key in LIBRARIES else None
        if key in ("flashinfer", "flashinfer_python"):
            return self.required.get("flashinfer_python", "0.6.0") if self.machine["flashinfer"] else None
        return self.required.get(key)

    def find_distributions(self, context: Any = None) -> Iterator[importlib.metadata.Distribution]:
        finder = importlib.metadata.MetadataPathFinder
        if context is None or context.name is None:
            return iter(())  # SGLang looks for plugins, and there are none
        at = importlib.metadata.DistributionFinder.Context(name=context.name, path=self.folders)
        found = list(finder.find_distributions(at))
        if found and context.name.lower().replace("-", "_") in self.real:
            return iter(found)
        version = self.version(context.name)
        return iter(() if version is None else (_Declared(context.name, version),))

    def _requirements(self, names: Collection[str], extras: frozenset[str] = frozenset()) -> dict[str, str]:
        """Returns the core requirements in the metadata of packages, each with its named version, else "99.0.0"; with
        ``extras`` only those of these extras."""
        found: dict[str, str] = {}
        for place in (place for place in self.places(names) if place.endswith(".dist-info")):
            for line in self._read(os.path.join(place, "METADATA")).partition("\n\n")[0].splitlines():
                extra = _EXTRA.search(line)
                wanted = extra is not None and extra[1] in extras if extras else not extra or extra[1] == _RUNTIME
                if not line.startswith("Requires-Dist: ") or not wanted:
                    continue
                match = _REQUIREMENT.match(line.removeprefix("Requires-Dist: "))
                if match:
                    found.setdefault(match[1].lower().replace("-", "_").replace(".", "_"), match[2] or "99.0.0")
        return found

    def _read(self, path: str) -> str:
        if self.sealed is not None:
            folder, entry, name = path.rsplit(os.sep, 2)
            return self.sealed.read(os.path.join(os.path.realpath(folder), entry, name)).decode("utf-8")
        with open(path, encoding="utf-8") as file:
            return file.read()

    def _is_inert_part(self, name: str) -> bool:
        if any(name == part or name.startswith(f"{part}.") for part in self.real_parts):
            return False
        return any(name == part or name.startswith(f"{part}.") for part in INERT_PARTS)

    def _inert(self, name: str) -> ModuleSpec:
        return ModuleSpec(name, InertLoader(), is_package=True)

    def _real(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        parts = name.split(".")
        if parts[0] == "sglang" and parts[1:2] and parts[1] in _NOT_ASKED:
            return None
        if self.sealed is not None:
            spec = self.sealed.find(name)
        else:
            spec = PathFinder.find_spec(name, path or None, target)
            if spec is None and len(parts) > 1:  # a real part below an inert one
                folder = os.path.join(self.release, *parts[:-1])
                spec = PathFinder.find_spec(name, [folder], target)
        if parts[0] == "sglang" and spec is not None and str(spec.origin).endswith(".so"):
            return None
        if parts[:2] == ["transformers", "models"] and parts[2:3] != ["auto"] and parts[-1].startswith(_NEEDS_TORCH):
            spec = None
        if name.startswith("transformers."):
            if spec is None and name.rpartition(".")[2].startswith(_NEEDS_TORCH) and asking_package() == "sglang":
                return self._inert(name)
            if spec is not None and spec.loader is not None:
                _complete(spec.loader, self.sealed)
        return spec

    def _real_submodule(self, name: str) -> Any:
        is_real = any(part == name or part.startswith(f"{name}.") for part in self.real_parts)
        return importlib.import_module(name) if is_real else None

    def _is_absent_attribute(self, name: str) -> bool:
        if name in _REMOVED:
            return True
        if name == _INTEL_KERNEL:
            return bool(self.machine["device"] != "cpu")
        module, _, attribute = name.rpartition(".")
        kinds = ("npu", "hpu", "musa", "xpu", "mps")
        return module == "torch" and attribute in kinds and attribute != self.machine["device"]


class _Declared(importlib.metadata.Distribution):
    """A distribution of which only name and version are known."""

    def __init__(self, name: str, version: str) -> None:
        self.text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename: str) -> str | None:
        return self.text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        raise refuse(f"the file {path} of a package that is not here")


def _complete(loader: Any, sealed: Sealed | None) -> None:
    """Gives SGLang inert names for definitions that exist only with torch. The places of these names are kept with the
    byte code, because finding them reads a thousand files."""
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        run(module)
        if sealed is not None and module.__name__ == _STRUCTURE[0] and hasattr(module, _STRUCTURE[1]):
            setattr(module, _STRUCTURE[1], sealed.kept(getattr(module, _STRUCTURE[1])))
        if type(module) is not ModuleType or "__getattr__" in vars(module):
            return

        def missing(name: str) -> Any:
            if name.startswith("__") or asking_package() != "sglang":
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            value = inert_name(f"{module.__name__}.{name}")
            setattr(module, name, value)
            return value

        vars(module)["__getattr__"] = missing

    loader.exec_module = exec_module


def _hide_from_transformers(packages: Packages) -> None:
    """Hides packages from transformers, whose ``find_spec`` also finds what SGLang has imported."""
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        top = name.partition(".")[0]
        known = not top or top in packages.real or top in sys.stdlib_module_names
        return real(name, package) if known or packages.is_present(top) else None

    importlib.util.find_spec = find_spec
