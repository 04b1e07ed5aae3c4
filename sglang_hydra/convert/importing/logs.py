"""Reads the servers of a log from the arguments that each wrote when it started."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any

from sglang_hydra.compose.composer import Composer
from sglang_hydra.convert.importing.launches import Launch
from sglang_hydra.run.diagnose.diagnosis import diagnose
from sglang_hydra.run.diagnose.lines import read_lines
from sglang_hydra.run.diagnose.replan import gpu_classes_of
from sglang_hydra.run.diagnose.server_args import CUT, parse_server_args


def has_server_arguments(text: str) -> bool:
    """Whether a text has a line in which a server writes its arguments."""
    return "server_args=ServerArgs(" in text or "server_args={" in text


def launches_of_log(text: str, place: str, composer: Composer) -> list[Launch]:
    """Returns every server of the log, one for equal arguments, with the release and the GPU that the log shows."""
    lines = list(read_lines(BytesIO(text.encode("utf-8", "replace"))))
    found = list(_found(lines))
    if not found:
        return []
    diagnosis = diagnose(lines)
    remarks: list[str] = []
    classes = [name for name in gpu_classes_of(diagnosis, composer, remarks) if name is not None]
    return [
        Launch(
            "log",
            f"{place}:{line}" if place else f"line {line}",
            name=_role(values),
            values={name: value for name, value in values.items() if name != CUT},
            resolved=True,
            version=diagnosis.version,
            gpu_classes=tuple(classes),
            remarks=(*remarks, *(["the line was cut: what stood behind is not known"] if CUT in values else [])),
        )
        for line, values in found
    ]


def _role(values: dict[str, Any]) -> str:
    role = values.get("disaggregation_mode")
    return role if role in ("prefill", "decode") else ""


def _found(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    seen: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        values = parse_server_args(line) if "server_args=" in line else None
        if values is not None and values not in seen:
            seen.append(values)
            yield number, values
