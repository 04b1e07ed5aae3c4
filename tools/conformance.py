"""Runs recorded cases of the real SGLang 0.5.2 through ``resolve`` and ``parse_argv``, and compares bit for bit.

    python tools/conformance.py FILE... [--emit OUT.jsonl [--full]]

A file holds one JSON object a line, ``{"case": ..., "expected": ...}``, plain or gzipped. Three kinds of case:
``args`` (keywords of the constructor), ``argv`` (a command line), and ``args`` with ``available`` (the choice of
ports). Compared are the verdict, its stage, all 210 values with their types, the environment, and whether an error
covers the source line where SGLang stopped. Exits 1 on any mismatch. ``--emit`` writes what we made of each case in
the form of ``expected``: the fields that are not at their default, or all of them with ``--full``.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import itertools
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that a bare checkout will do

from sglang_hydra import ConfigError, Finding, GpuFacts, LoRARef, ModelFacts, ServerArgs, parse_argv, resolve
from tools.chosen_ports import plan_ports

KINDS = ("verdict", "stage", "field", "env", "line")
DEFAULTS = {
    field.name: None if field.name == "model_path" else field.default for field in dataclasses.fields(ServerArgs)
}
# Hardware as the recorder names it, and who makes it. AMD GPUs run as torch device "cuda".
VENDORS = {"cuda": "nvidia", "hip": "amd", "xpu": "intel", "hpu": "habana", "npu": "huawei", "cpu": "none"}
SEED = 42  # the recorder drew this wherever a seed was drawn


class Mismatch(NamedTuple):
    """One difference between what was recorded and what we produced."""

    kind: str
    case: str
    text: str


def read_cases(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file, plain or gzipped, whatever its name."""
    raw = path.read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    for line in text.splitlines():
        if line.strip():
            yield json.loads(line)


def decode(value: Any) -> Any:
    """A value of a case, with ``{"__type__": ...}`` made into what JSON cannot say."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("__type__")
    if kind == "set":
        return set(decode(value["items"]))
    if kind == "tuple":
        return tuple(decode(value["items"]))
    if kind == "LoRARef":
        return LoRARef(**{name: part for name, part in value.items() if name != "__type__"})
    return {key: decode(item) for key, item in value.items()}


def encode(value: Any) -> Any:
    """A value as ``expected`` writes it: a set as a sorted list, a tuple as a list, a LoRARef as a mapping."""
    if isinstance(value, LoRARef):
        return {"lora_name": value.lora_name, "lora_path": value.lora_path, "pinned": value.pinned}
    if isinstance(value, (set, frozenset)):
        return sorted(map(encode, value))
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    return value


def same(left: Any, right: Any) -> bool:
    """Equality that tells 1 from True and from 1.0, and takes nan for itself."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return bool(left == right) or (left != left and right != right)


def produce(case: Mapping[str, Any], *, full: bool = False) -> dict[str, Any]:
    """What we make of one case, in the form of ``expected``; ``lines`` holds the ranges of all errors."""
    if "available" in case:
        return _produce_ports(case)
    try:
        intent = parse_argv(case["argv"]) if "argv" in case else decode(case["args"])
    except ConfigError as refused:
        return _refused(case, refused.findings)
    resolution = resolve(
        intent,
        gpu=_gpu_facts(case["hardware"]),
        model=ModelFacts(config=case["hf_config"], gguf=_is_gguf(intent.get("model_path"), case.get("files", {}))),
        seed=SEED,
    )
    if not resolution.ok:
        return _refused(case, resolution.findings)
    resolved = {name: encode(value) for name, value in resolution.values.items()}
    if not full:
        resolved = {name: value for name, value in resolved.items() if not same(value, DEFAULTS[name])}
    return {
        "id": case["id"],
        "ok": True,
        "resolved": resolved,
        "env": dict(resolution.env),
        "warnings": [finding.message for finding in resolution.findings],
    }


def _refused(case: Mapping[str, Any], findings: Sequence[Finding]) -> dict[str, Any]:
    errors = [finding for finding in findings if finding.level == "error"]
    return {
        "id": case["id"],
        "ok": False,
        "stage": errors[0].stage,
        "error": f"{errors[0].id}: {errors[0].message}",
        "lines": [list(finding.upstream) for finding in errors if finding.upstream],
    }


def _gpu_facts(hardware: Mapping[str, Any]) -> GpuFacts:
    device, capability = hardware["device"], hardware["capability"]
    return GpuFacts(
        name=device,
        vendor=VENDORS[device],
        device="cuda" if device == "hip" else device,
        memory_mib=hardware["memory_mib"],
        compute_capability=tuple(capability) if capability else None,
        flashinfer=hardware["flashinfer"],
        triton_kernels=hardware["triton_kernels"],
    )


def _is_gguf(model_path: Any, files: Mapping[str, str]) -> bool:
    """Whether ``model_path`` is a GGUF file in a folder that holds ``files`` (relative name to content)."""
    if not files or not isinstance(model_path, str):
        return False
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        path = Path(folder, model_path)
        return path.is_file() and (path.suffix == ".gguf" or path.read_bytes()[:4] == b"GGUF")


def _produce_ports(case: Mapping[str, Any]) -> dict[str, Any]:
    available = case["available"]
    probed: list[int] = []
    names = itertools.count()

    def is_available(port: int) -> bool:
        probed.append(port)
        if available == "all":
            return True
        return port in available["free"] if "free" in available else port not in available["busy"]

    try:
        ports = plan_ports(
            case["args"],
            dp_rank=case["dp_rank"],
            randint=lambda low, high: int(case["randint"]),
            is_available=is_available,
            temp_name=lambda: f"<tmp{next(names)}>",
        )
    except ConfigError as refused:
        return {**_refused(case, refused.findings), "stage": "ports", "probed": probed}
    return {"id": case["id"], "ok": True, "ports": dataclasses.asdict(ports), "probed": probed}


def compare(expected: Mapping[str, Any], produced: Mapping[str, Any]) -> list[Mismatch]:
    """Every difference; of a case whose verdict differs, only that."""
    name = expected["id"]
    if expected["ok"] != produced["ok"]:
        got = "accepted" if produced["ok"] else f"refused ({produced['error']})"
        wanted = "accepted" if expected["ok"] else f"refused ({expected['error']})"
        return [Mismatch("verdict", name, f"{got}, and SGLang {wanted}")]
    if expected["ok"]:
        return [*_compare_values(expected, produced), *_compare_env(expected, produced)]
    return [*_compare_stage(expected, produced), *_compare_line(expected, produced)]


def _compare_values(expected: Mapping[str, Any], produced: Mapping[str, Any]) -> Iterator[Mismatch]:
    if "ports" in expected:
        wanted = {**expected["ports"], "probed": expected["probed"]}
        got = {**produced["ports"], "probed": produced["probed"]}
    else:
        wanted, got = ({**DEFAULTS, **record["resolved"]} for record in (expected, produced))
    for field in sorted(wanted.keys() | got.keys()):
        if not same(wanted.get(field), got.get(field)):
            text = f"{field} is {got.get(field)!r}, and with SGLang {wanted.get(field)!r}"
            yield Mismatch("field", expected["id"], text)


def _compare_env(expected: Mapping[str, Any], produced: Mapping[str, Any]) -> Iterator[Mismatch]:
    if expected.get("env") != produced.get("env"):
        yield Mismatch("env", expected["id"], f"{produced['env']}, and with SGLang {expected['env']}")


def _compare_stage(expected: Mapping[str, Any], produced: Mapping[str, Any]) -> Iterator[Mismatch]:
    if expected["stage"] != produced["stage"]:
        text = f"refused in {produced['stage']} ({produced['error']}), and by SGLang in {expected['stage']}"
        yield Mismatch("stage", expected["id"], text)


def _compare_line(expected: Mapping[str, Any], produced: Mapping[str, Any]) -> Iterator[Mismatch]:
    # The lines recorded for argparse lie in its actions: there only the stage counts.
    line = expected.get("line")
    if line is None or expected["stage"] == "argparse":
        return
    if not any(first <= line <= last for first, last in produced["lines"]):
        text = f"no error covers line {line} ({expected['error']}); got {produced['lines']} ({produced['error']})"
        yield Mismatch("line", expected["id"], text)


def check_file(path: Path) -> tuple[int, list[Mismatch]]:
    """The number of cases in a file, and all mismatches."""
    count, found = 0, []
    for record in read_cases(path):
        count += 1
        found += compare(record["expected"], produce(record["case"]))
    return count, found


def _emit(paths: Sequence[Path], target: Path, full: bool) -> None:
    with target.open("w") as out:
        for path in paths:
            for record in read_cases(path):
                out.write(json.dumps(produce(record["case"], full=full)) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compares recorded cases of SGLang 0.5.2 with sglang_hydra.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--emit", type=Path, metavar="OUT.jsonl", help="write what we made of each case")
    parser.add_argument("--full", action="store_true", help="emit all 210 fields, not only the non-default ones")
    parser.add_argument("--show", type=int, default=10, metavar="N", help="mismatches shown a file (default 10)")
    options = parser.parse_args(argv)
    failed = False
    for path in options.files:
        try:
            count, found = check_file(path)
        except (OSError, EOFError, ValueError, KeyError) as failure:
            print(f"{path}: these are no recorded cases: {type(failure).__name__}: {failure}", file=sys.stderr)
            return 2
        failed = failed or bool(found) or count == 0
        by_kind = Counter(mismatch.kind for mismatch in found)
        counts = ", ".join(f"{by_kind[kind]} {kind}" for kind in KINDS)
        print(f"{path.name}: {count} cases; mismatches: {counts}")
        for mismatch in found[: options.show]:
            print(f"  {mismatch.kind:8}{mismatch.case}: {mismatch.text}")
        if len(found) > options.show:
            print(f"  ... and {len(found) - options.show} more")
    if options.emit:
        _emit(options.files, options.emit, options.full)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
