"""Cases for releases: {id, release, machine, argv, models, expected}, and the config.json files that they name."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[1] / "tests" / "data" / "releases"
CASES = DATA / "public.jsonl.gz"
MODELS = DATA / "models.json"

_NVIDIA: Mapping[str, Any] = {
    "device": "cuda", "count": 8, "cuda": "12.8", "environment": {}, "flashinfer": True, "triton_kernels": True,
}  # fmt: skip


def read_cases(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file, plain or gzipped, whatever its name."""
    raw = path.read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    for line in text.splitlines():
        if line.strip():
            yield json.loads(line)


def machines() -> tuple[Mapping[str, Any], ...]:
    """Four kinds of machine: Hopper, Blackwell, Ampere and AMD, with the memory that their vendor's tool reports."""
    return (
        {**_NVIDIA, "name": "NVIDIA H200", "capability": [9, 0], "memory_mib": 143771.0},
        {**_NVIDIA, "name": "NVIDIA B200", "capability": [10, 0], "memory_mib": 183359.0},
        {**_NVIDIA, "name": "NVIDIA A100-SXM4-80GB", "capability": [8, 0], "memory_mib": 81920.0},
        {
            **_NVIDIA, "device": "hip", "name": "AMD Instinct MI300X", "capability": [9, 4], "memory_mib": 196592.0,
            "flashinfer": False, "triton_kernels": False,
        },
    )  # fmt: skip


def random_lines(version: str, count: int, models: Mapping[str, Any]) -> Iterator[list[str]]:
    """Command lines of a release, each with several flags that take a choice, a switch or a number. The same for each
    call."""
    import random

    from sglang_hydra.arguments.tables.table import nearest_known, release

    draw = random.Random(20261122)
    names = sorted(models)
    singles = [
        words
        for argument in release(nearest_known(version) or version).arguments.values()
        for words in _words(argument)
    ]
    for _ in range(count):
        chosen = draw.sample(singles, draw.randint(2, 5))
        yield _line(draw.choice(names), draw.choice((1, 2, 4, 8, 16)), [word for words in chosen for word in words])


def _line(model: str, tp_size: int, words: list[str]) -> list[str]:
    nodes = ["--nnodes", "2", "--dist-init-addr", "10.0.0.1:5000"] if tp_size > 8 else []
    return ["--model-path", model, "--random-seed", "42", "--tp", str(tp_size), *nodes, *words]


def _words(argument: Any) -> Iterator[list[str]]:
    if argument.flag is None or argument.name in ("model_path", "random_seed", "tp_size", "nnodes", "config"):
        return
    if argument.choices:
        yield from ([argument.flag, str(choice)] for choice in argument.choices)
    elif argument.action:
        yield [argument.flag]
    elif "int" in argument.type:
        yield from ([argument.flag, number] for number in ("2",))
    elif "float" in argument.type:
        yield from ([argument.flag, number] for number in ("0.5",))
