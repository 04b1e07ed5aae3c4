"""One case in, what the released package did with it out, in the form of `expected`."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import os
import traceback
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

from .inert import Unfaked
from .released import Released
from .world import NOTHING, EndlessSearch, Ports, surroundings

# SGLang takes a machine without an accelerator for one only when told so.
CPU_ENGINE = {"SGLANG_USE_CPU_ENGINE": "1"}


def record(released: Released, case: Mapping[str, Any]) -> dict[str, Any]:
    """Run one case of any of the three kinds: constructor, argv, ports."""
    return record_ports(released, case) if "available" in case else record_arguments(released, case)


def record_arguments(released: Released, case: Mapping[str, Any]) -> dict[str, Any]:
    """A constructor or argv case, followed by check_server_args()."""
    given = {**(CPU_ENGINE if case["hardware"]["device"] == "cpu" else {}), **case.get("environment", {})}
    released.machine.use(case["hardware"])
    released.hub.values = case["hf_config"]
    released.log.clear()
    with surroundings(case.get("files", {}), given):
        result = {"id": case["id"], **_run(released, case)}
        environment = {name: value for name, value in sorted(os.environ.items()) if name.startswith("SGLANG_")}
    result["warnings"] = released.log.warnings
    result["randint_calls"] = released.machine.randint_calls
    if released.log.infos:
        result["infos"] = released.log.infos
    if result["ok"]:
        result["env"] = {name: value for name, value in environment.items() if given.get(name) != value}
    return result


def _run(released: Released, case: Mapping[str, Any]) -> dict[str, Any]:
    module, stage = released.server_args, "argparse" if "argv" in case else "post_init"
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(io.StringIO()):
            if "argv" in case:
                server_args = module.prepare_server_args(list(case["argv"]))
            else:
                server_args = module.ServerArgs(**_decode(released, case["args"]))
            stage = "check"
            server_args.check_server_args()
    except SystemExit as error:
        text = printed.getvalue().partition("error: ")[2].strip()
        return {"ok": False, "stage": stage, "error_type": "SystemExit", "exit_code": error.code, "error": text}
    except Exception as error:  # noqa: BLE001 - whatever the package raises is an outcome
        # Parsing ends where from_cli_args hands the values to the constructor.
        called = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        return _refusal(released, "post_init" if "from_cli_args" in called else stage, error)
    return {"ok": True, "resolved": _non_default(server_args)}


def record_ports(released: Released, case: Mapping[str, Any]) -> dict[str, Any]:
    """A case of PortArgs.init_new."""
    module, ports = released.server_args, Ports(case["available"])
    released.machine.use(NOTHING, case["randint"])
    values = {field.name: default_of(field) for field in dataclasses.fields(module.ServerArgs)} | dict(case["args"])
    module.is_port_available = ports.is_port_available
    try:
        with mock.patch("tempfile.NamedTemporaryFile", side_effect=_temporary_names()):
            made = module.PortArgs.init_new(SimpleNamespace(**values), case["dp_rank"])
    except EndlessSearch:
        count, first, last = len(ports.probed), ports.probed[:8], ports.probed[-6:]
        failed = {"ok": False, "stage": "ports", "error_type": "ENDLESS_LOOP", "error": "the real loop never ends"}
        return {"id": case["id"], **failed, "probed_count": count, "probed_first": first, "probed_last": last}
    except Exception as error:  # noqa: BLE001 - whatever the package raises is an outcome
        return {"id": case["id"], **_refusal(released, "ports", error), "probed": ports.probed}
    calls = released.machine.randint_calls
    return {"id": case["id"], "ok": True, "ports": vars(made), "probed": ports.probed, "randint_calls": calls}


def _temporary_names() -> Iterator[SimpleNamespace]:
    """Temporary files that do not exist, named by their order: <tmp0>, <tmp1>, ..."""
    for number in itertools.count():
        yield SimpleNamespace(name=f"<tmp{number}>")


def _refusal(released: Released, stage: str, error: Exception) -> dict[str, Any]:
    if "_InertType" in str(error):  # then it is ours, not the package's
        raise Unfaked(f"it computes with an inert name: {error}") from error
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == released.file]
    line = frames[-1].lineno if frames else None
    return {"ok": False, "stage": stage, "error_type": type(error).__name__, "error": str(error), "line": line}


def _decode(released: Released, value: Any) -> Any:
    """The value that a case means: JSON, but for {"__type__": ...}."""
    if isinstance(value, list):
        return [_decode(released, item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("__type__")
    rest = {name: _decode(released, item) for name, item in value.items() if name != "__type__"}
    if kind is None:
        return rest
    if kind == "LoRARef":
        return released.server_args.LoRARef(**rest)
    return {"set": set, "tuple": tuple}[kind](rest["items"])


def _encode(value: Any) -> Any:
    """The form that a resolved value has in JSON: a set is a sorted list, a LoRARef its three given fields."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, (list, tuple)):
        return [_encode(item) for item in value]
    if isinstance(value, dict):
        return {name: _encode(item) for name, item in value.items()}
    if dataclasses.is_dataclass(value):
        return {name: getattr(value, name) for name in ("lora_name", "lora_path", "pinned")}
    return value


def default_of(field: dataclasses.Field[Any]) -> Any:
    """A field's default, dataclasses.MISSING where it must be given."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _non_default(server_args: Any) -> dict[str, Any]:
    fields = dataclasses.fields(server_args)
    values = {field.name: (getattr(server_args, field.name), default_of(field)) for field in fields}
    return {name: _encode(value) for name, (value, default) in values.items() if value != default}
