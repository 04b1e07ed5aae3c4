"""The answers of a later release: its own argument code with its own libraries, on a machine that is stood in for.

Reads from stdin and writes to stdout, one JSON object a line. The first line is the kind of machine (``device``,
``capability``, ``flashinfer``, ``triton_kernels``, ``cuda``, ``environment``): it cannot change afterwards, because the
package looks at it while it is imported. Each further line is a case: ``machine`` (``memory_mib``, ``count``,
``name``), ``argv``, and ``models``, a config.json for each model path among them that is not read where it lies; with
``whole`` the models have no other file. The first answer is ``{version}`` or ``{refused}``; each further one
``{ok, values}`` with every field, ``{ok, stage, error}`` of a refusal, or ``{refused}`` where something was asked that
nothing here answers.

torch says that the machine is there and of what kind; the vendors' tools report its memory. The compiled kernels are
inert: importing them works, deciding by them does not. Nothing is loaded, downloaded or started.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import io
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from .inert import InertLoader, Unfaked
from .world import no_cuda

KERNELS = frozenset(
    (
        "aiter", "cutlass", "deep_ep", "deep_gemm", "flash_mla", "fused_linear_cross_entropy",
        "humming", "mooncake", "nixl", "quack", "sgl_flash_mla", "sgl_kernel", "tilelang", "torch_npu", "vllm",
    )
)  # fmt: skip
"""Packages that are compiled for a GPU, or useless without one."""

PRESENT_BY_FACT = ("flashinfer", "triton_kernels")
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
_GFX = {(9, 4): "gfx942", (9, 5): "gfx950", (9, 0): "gfx90a"}
_HOME = "sglang.srt.server_args"


def main() -> int:
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as lines:
        os.dup2(2, 1)  # nothing that the package prints may get between the answers

        def answer(record: dict[str, Any]) -> None:
            lines.write(json.dumps(record) + "\n")
            lines.flush()

        machine = json.loads(sys.stdin.readline())
        sys.argv = ["sglang"]
        try:
            home = _load(machine)
            answer({"version": version("sglang")})
        except PackageNotFoundError:
            answer({"refused": "there is no sglang in this environment"})
            return 1
        except (Exception, Unfaked) as error:  # noqa: BLE001 - whatever an unknown release raises while it is imported
            answer({"refused": f"it cannot be imported here: {_said(error)}"})
            return 1
        for line in sys.stdin:
            case = json.loads(line)
            machine.update(case["machine"])
            _forget()
            try:
                answer(_asked(home, case))
            except Unfaked as error:
                answer({"refused": str(error)})
    return 0


def _load(machine: Mapping[str, Any]) -> Any:
    for name in [name for name in os.environ if name.startswith("SGLANG_")]:
        del os.environ[name]
    os.environ.update({**_OFFLINE, **machine["environment"]})
    absent = _absent(machine)
    _hide(absent)
    sys.meta_path.insert(0, KernelFinder(absent))
    _stand_in(machine)
    return importlib.import_module(_HOME)


class KernelFinder:
    """Finds an inert module for every compiled kernel package; those whose presence is a fact only where it is one."""

    def __init__(self, absent: frozenset[str]) -> None:
        self.found = KERNELS.union(PRESENT_BY_FACT) - absent

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        inert = name.partition(".")[0] in self.found
        return ModuleSpec(name, InertLoader(), is_package=True) if inert else None


def _hide(absent: frozenset[str]) -> None:
    """Packages that this machine has and the other has not are not found."""

    class Without(PathFinder):
        @classmethod
        def find_spec(
            cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
        ) -> ModuleSpec | None:
            hidden = fullname.partition(".")[0] in absent
            return None if hidden else super().find_spec(fullname, path, target)

    sys.meta_path[:] = [Without if finder is PathFinder else finder for finder in sys.meta_path]


def _absent(machine: Mapping[str, Any]) -> frozenset[str]:
    by_device = {"aiter": "hip", "torch_npu": "npu"}
    absent = {name for name in PRESENT_BY_FACT if not machine[name]}
    return frozenset(absent.union(name for name, device in by_device.items() if device != machine["device"]))


def _stand_in(machine: Mapping[str, Any]) -> None:
    """The machine in torch and in the vendors' tools. What a case may change is read when it is asked for."""
    torch: Any = importlib.import_module("torch")
    torch.library.register_fake = functools.partial(_register_fake, torch.library.register_fake)
    device, capability = machine["device"], tuple(machine["capability"] or (0, 0))
    like_cuda = device in ("cuda", "hip")
    torch.version.cuda = machine["cuda"] if device == "cuda" else None
    torch.version.hip = "6.4" if device == "hip" else None

    def count(*_: Any) -> int:
        return int(machine.get("count") or 8)

    def memory(*_: Any) -> tuple[int, int]:
        total = int((machine.get("memory_mib") or 0) * 1024 * 1024)
        return total, total

    def name(*_: Any) -> str:
        return str(machine.get("name"))

    def properties(*_: Any) -> SimpleNamespace:
        return SimpleNamespace(
            name=name(),
            total_memory=memory()[0],
            major=capability[0],
            minor=capability[1],
            multi_processor_count=132,
            gcnArchName=_GFX.get(capability, "gfx942"),
            has_fp64=True,
        )

    _say(torch.cuda, is_available=like_cuda, current_device=0, is_initialized=False, get_device_capability=capability)
    if not like_cuda:
        torch.cuda.get_device_capability = no_cuda
    torch.cuda.device_count = count if like_cuda else lambda: 0
    torch.cuda.get_device_properties, torch.cuda.get_device_name = properties, name
    torch.cuda.mem_get_info = memory
    if "cudnn" in machine:  # as the driver, a fact that only some releases ask for
        torch.backends.cudnn.version = lambda: machine["cudnn"]
    if hasattr(torch, "xpu"):
        _say(torch.xpu, is_available=device == "xpu")
    for kind in ("hpu", "npu"):
        if device == kind:
            setattr(torch, kind, ModuleType(f"torch.{kind}"))
            _say(getattr(torch, kind), is_available=True)
    if device in ("xpu", "hpu", "npu"):
        there = getattr(torch, device)
        there.device_count, there.mem_get_info = count, memory
        there.get_device_properties, there.get_device_name = properties, name
    _stand_in_for_tools(machine)


def _register_fake(real: Any, operator: Any, *values: Any, **options: Any) -> Any:
    """Describes an operator to torch; of an inert kernel there is none to describe (0.5.9's fp8_kernel.py:2035)."""
    if str(operator).partition("::")[0] in KERNELS:
        return lambda function: function
    return real(operator, *values, **options)


def _say(module: Any, **answers: Any) -> None:
    for name, answer in answers.items():
        setattr(module, name, lambda *_, _answer=answer, **__: _answer)


def _stand_in_for_tools(machine: Mapping[str, Any]) -> None:
    real_run, real_output = subprocess.run, subprocess.check_output

    def run(command: Any, *values: Any, **options: Any) -> Any:
        answer = _tool(command, machine)
        if answer is None:
            return real_run(command, *values, **options)
        return subprocess.CompletedProcess(command, 0 if answer else 1, answer, "")

    def check_output(command: Any, *values: Any, **options: Any) -> Any:
        answer = _tool(command, machine)
        if answer is None:
            return real_output(command, *values, **options)
        text = options.get("text") or options.get("universal_newlines") or options.get("encoding")
        return answer if text else answer.encode()

    subprocess.run = run  # type: ignore[assignment]
    subprocess.check_output = check_output  # type: ignore[assignment]


def _tool(command: Any, machine: Mapping[str, Any]) -> str | None:
    """What a vendor's tool prints on this machine, empty where it fails; None for any other program."""
    line = command if isinstance(command, str) else " ".join(map(str, command))
    memory, capability = machine.get("memory_mib"), machine["capability"]
    # In rocminfo's pipeline the number is in KiB, in the others in MiB.
    tools = {
        "nvidia-smi": "cuda",
        "rocminfo": "hip",
        "rocm-smi": "hip",
        "amd-smi": "hip",
        "hl-smi": "hpu",
        "npu-smi": "npu",
    }
    for tool, owner in tools.items():
        if tool in line:
            if owner != machine["device"] or memory is None:
                return ""
            if "compute_cap" in line:
                return f"{capability[0]}.{capability[1]}\n" if capability else ""
            if "driver_version" in line:
                return f"{machine['driver']}\n"
            return {"hip": f"{memory * 1024}\n", "hpu": f"Memory Total : {memory} MiB\n"}.get(owner, f"{memory}\n")
    return None


def _forget() -> None:
    """No probe may remember an answer of the case before."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "sglang":
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


def _asked(home: Any, case: Mapping[str, Any]) -> dict[str, Any]:
    """One case: what the release makes of a command line."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        paths = _model_folders(Path(folder), case["models"])
        argv = [paths.get(word, word) for word in case["argv"]]
        try:
            made = _resolved(home, argv, told=bool(paths) and not case.get("whole"))
        finally:
            os.environ.clear()
            os.environ.update(before)
    back = {there: path for path, there in paths.items()}
    return _with_names(made, back)


def _model_folders(root: Path, models: Mapping[str, Any]) -> dict[str, str]:
    """A folder with its config.json for each model, its name in the path: the release may look at names."""
    paths = {}
    for path, config in models.items():
        parts = [part for part in path.split("/") if part not in ("", ".", "..", "~")]
        folder = root.joinpath(*parts)
        folder.mkdir(parents=True, exist_ok=True)
        files = config.get("files", {"config.json": config})
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / name).write_text(text, encoding="utf-8")
        paths[path] = str(folder)
    return paths


def _resolved(home: Any, argv: list[str], *, told: bool) -> dict[str, Any]:
    """``told`` says that the model's config is one that was written for it, and may lack what a checkpoint has."""
    stage, printed = "argparse", io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            args = home.prepare_server_args(argv)
        stage = "post_init"
        if hasattr(args, "resolve_once"):
            args.resolve_once()
        stage = "check"
        args.check_server_args()
    except SystemExit:
        said = printed.getvalue().partition("error: ")[2].strip() or printed.getvalue().strip()
        return {"ok": False, "stage": "argparse", "error": said}
    except Unfaked:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        if isinstance(error, ImportError):
            raise Unfaked(f"its environment lacks what it imports: {_said(error)}") from error
        if told and any(
            "/transformers/" in frame.filename or "/huggingface_hub/" in frame.filename for frame in frames
        ):
            raise Unfaked(f"the model's facts are not all that it reads of a model: {_said(error)}") from error
        stage = "post_init" if stage == "argparse" and "from_cli_args" in {frame.name for frame in frames} else stage
        return {"ok": False, "stage": stage, "error": f"{_said(error)}{_place(frames)}"}
    values = args.resolved_dict() if hasattr(args, "resolved_dict") else dataclasses.asdict(args)
    return {"ok": True, "values": {name: _plain(value) for name, value in values.items()}}


def _with_names(made: dict[str, Any], back: Mapping[str, str]) -> dict[str, Any]:
    """The answer with each model's own path where its folder stood."""

    def named(value: Any) -> Any:
        if isinstance(value, str):
            for there, path in back.items():
                value = value.replace(there, path)
            return value
        if isinstance(value, list):
            return [named(item) for item in value]
        return {key: named(item) for key, item in value.items()} if isinstance(value, dict) else value

    renamed: dict[str, Any] = named(made)
    return renamed


def _plain(value: Any) -> Any:
    """JSON's types: sets sorted, what JSON has not as its text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(item) for item in value), key=str)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if hasattr(type(value), "__struct_fields__"):  # msgspec's
        return {name: _plain(getattr(value, name)) for name in type(value).__struct_fields__}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    return str(value)


def _place(frames: Sequence[traceback.FrameSummary]) -> str:
    """The release's own line that raised, as `` (arg_groups/parallel_hook.py:83)``."""
    own = [frame for frame in frames if "/sglang/srt/" in frame.filename]
    return f" ({own[-1].filename.partition('/sglang/srt/')[2]}:{own[-1].lineno})" if own else ""


def _said(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
