"""A small release: wheels whose argument code asks its world what real releases ask."""

from __future__ import annotations

import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from sglang_hydra.releases import records as recorded
from sglang_hydra.releases import wheels
from sglang_hydra.releases.records import Record, Wheel, WheelFile

VERSION = "0.5.2"

SERVER_ARGS = """
import argparse
import ctypes.util
import dataclasses
import functools
import json
import logging
import os
import platform
import psutil
import random
import shutil
import socket
import subprocess
import time
import uuid

import torch
import transformers
from sgl_kernel import fast_op
from sglang.srt.layers.mystery import decide
from sglang.srt.layers.known import answer

KIND = "hip" if torch.version.hip else "cuda"


@dataclasses.dataclass
class ServerArgs:
    model_path: str
    ask: str = ""
    random_seed: int = 0
    found: object = None
    _private: int = 1

    def __post_init__(self):
        os.environ["SGLANG_LEFT"] = "1"
        self.found = QUESTIONS[self.ask](self) if self.ask else None

    def check_server_args(self):
        if self.random_seed == 7:
            raise ValueError("7 is refused")


@functools.lru_cache
def memory():
    line = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    return float(subprocess.run(line, capture_output=True, text=True).stdout)


def swallow(args):
    try:
        return bool(fast_op)
    except BaseException:
        return "a guess"


QUESTIONS = {
    "memory": lambda args: memory(),
    "driver": lambda args: subprocess.check_output(["nvidia-smi", "--query-gpu=driver_version"], text=True).strip(),
    "serial": lambda args: subprocess.run(["nvidia-smi", "--query-gpu=serial"], capture_output=True),
    "property": lambda args: torch.cuda.get_device_properties(0).multi_processor_count,
    "program": lambda args: subprocess.run(["lscpu"], capture_output=True),
    "cores": lambda args: subprocess.check_output(["lscpu", "-p=CPU,Core,Socket,Node"], text=True).splitlines()[-1],
    "host_memory": lambda args: psutil.virtual_memory().total,
    "affinity": lambda args: len(psutil.Process().cpu_affinity()),
    "threads": lambda args: psutil.Process().num_threads(),
    "processor": lambda args: platform.machine(),
    "hip": lambda args: torch.version.hip,
    "id": lambda args: [uuid.uuid4().hex, uuid.uuid4().hex],
    "folder": lambda args: os.makedirs("/crash/localhost", exist_ok=True) or "made",
    "libc": lambda args: setattr(ctypes.CDLL(ctypes.util.find_library("c")).mmap, "restype", int),
    "mmap": lambda args: ctypes.CDLL("libc.so.6").mmap(0),
    "libnuma": lambda args: ctypes.CDLL("libnuma.so"),
    "idna": lambda args: "name.org".encode("idna").decode(),
    "extra": lambda args: __import__("granian"),
    "which": lambda args: shutil.which("gcc"),
    "capability": lambda args: torch.cuda.get_device_capability(),
    "config": lambda args: json.load(open(os.path.join(args.model_path, "config.json")))["hidden_size"],
    "absent": lambda args: os.path.exists(os.path.join(args.model_path, "params.json")),
    "path": lambda args: args.model_path,
    "spelled": lambda args: list(args.model_path),
    "proc": lambda args: open("/proc/meminfo").read(),
    "etc": lambda args: os.path.isdir("/etc"),
    "declared": lambda args: open("/etc/chat.jinja").read(),
    "infiniband": lambda args: sorted(os.listdir("/sys/class/infiniband")),
    "socket": lambda args: socket.create_connection(("127.0.0.1", 9)),
    "host": lambda args: socket.gethostname(),
    "random": lambda args: random.randint(0, 9),
    "environment": lambda args: sorted(name for name in os.environ if name.startswith(("SGLANG_", "MY_"))),
    "call": lambda args: fast_op(),
    "truth": lambda args: bool(fast_op),
    "equal": lambda args: fast_op == 3,
    "order": lambda args: fast_op < 3,
    "length": lambda args: len(fast_op),
    "iterate": lambda args: list(fast_op),
    "contains": lambda args: 3 in fast_op,
    "item": lambda args: fast_op["a"],
    "sum": lambda args: fast_op + 1,
    "text": lambda args: f"{fast_op}",
    "hasattr": lambda args: hasattr(torch, "unheard_of"),
    "none": lambda args: fast_op is None or fast_op == None,
    "value": lambda args: fast_op,
    "swallow": swallow,
    "mystery": lambda args: decide(),
    "known": lambda args: answer(),
    "kind": lambda args: KIND,
    "hang": lambda args: time.sleep(60),
    "die": lambda args: os._exit(9),
    "lazy": lambda args: __import__("sglang.srt.lazy") and os.environ["LAZY_CACHE"],
    "tokenizer": lambda args: [transformers.FooTokenizerFast is not None, len(transformers.asked)],
    "print": lambda args: print("not an answer"),
    "warn": lambda args: logging.getLogger("sglang.x").warning("mind this"),
}


def prepare_server_args(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--ask", default="")
    parser.add_argument("--random-seed", type=int, default=0)
    return ServerArgs(**vars(parser.parse_args(argv)))
"""

TRANSFORMERS = """
import sys
from types import ModuleType

asked = []


class Lazy(ModuleType):
    def __getattr__(self, name):
        asked.append(name)
        other = name.removesuffix("Fast") if name.endswith("Fast") else f"{name}Fast"
        if "Tokenizer" in name and hasattr(self, other):
            return getattr(self, other)
        raise AttributeError(name)


sys.modules[__name__].__class__ = Lazy
"""
"""A tokenizer that is nowhere is looked for under two names, each time by the other one, as in the real one."""

LAZY = """
import os
import platform

os.environ["LAZY_CACHE"] = os.path.expanduser("~/lazy")
platform.machine()
"""

FILES = {
    "sglang/__init__.py": "",
    "sglang/srt/__init__.py": "",
    "sglang/srt/server_args.py": SERVER_ARGS,
    "sglang/srt/layers/__init__.py": "raise RuntimeError('kernels')",
    "sglang/srt/layers/mystery.py": "def decide(): return 5",
    "sglang/srt/layers/known.py": "def answer(): return 42",
    "sglang/srt/lazy.py": LAZY,
    "sglang/multimodal_gen/big.py": "x = 1",
}


def make_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> Wheel:
    """A wheel file in ``folder``, and its record."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    if name == "sglang":
        metadata += 'Requires-Dist: granian>=2.6.0; extra == "http2"\n'
    with zipfile.ZipFile(path, "w") as archive:
        info = f"{name}-{version}.dist-info"
        about = {f"{info}/METADATA": metadata, f"{info}/WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n"}
        stated = {place: sha256(content.encode()).digest() for place, content in {**files, **about}.items()}
        rows = [f"{place},sha256={urlsafe_b64encode(each).decode().rstrip('=')}," for place, each in stated.items()]
        about[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
        for place, content in {**files, **about}.items():
            archive.writestr(place, content)
    return recorded_wheel(path)


def recorded_wheel(path: Path) -> Wheel:
    """The record of a wheel file."""
    name, version, *_ = path.name.split("-")
    with zipfile.ZipFile(path) as archive:
        listed = sha256(archive.read(f"{name}-{version}.dist-info/RECORD")).hexdigest()
    size = path.stat().st_size
    file = WheelFile(path.name, sha256(path.read_bytes()).hexdigest(), size, listed, size)
    return Wheel(name, version, (file,))


def recorded_release(folder: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str] | None = None) -> Record:
    """Wheels in ``folder``, a cache beside them that has none yet, and the one record that there is."""
    monkeypatch.setenv("SGLANG_HYDRA_CACHE", str(folder / "cache"))
    made = Record(
        VERSION,
        make_wheel(folder, "sglang", VERSION, files or FILES),
        (make_wheel(folder, "transformers", "4.56.1", {"transformers/__init__.py": TRANSFORMERS}),),
        ("sglang.srt.layers.known",),
    )
    monkeypatch.setattr(recorded, "records", lambda: {VERSION: made})
    monkeypatch.setattr(wheels, "records", lambda: {VERSION: made})
    monkeypatch.setattr("sglang_hydra.cli.release.records", lambda: {VERSION: made})
    return made


def unpacked_release(folder: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str] | None = None) -> Record:
    """The same, with its wheels unpacked."""
    made = recorded_release(folder, monkeypatch, files)
    for wheel in made.wheels:
        wheels.take(folder / wheel.files[0].name, wheel)
    return made
