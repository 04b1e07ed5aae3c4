"""Checks numbers and words that SGLang accepts although no server can run with them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.checks.releases import Arguments, arguments_of
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule
from sglang_hydra.text.json_types import Json, JsonObject, json_beside
from sglang_hydra.text.words import nearest, short, typed

_TABLE: JsonObject = json_beside(__file__)
_RANGES: Mapping[str, Sequence[int]] = {name: limits for names, *limits in _TABLE["ranges"] for name in names.split()}
"""The least and the largest sensible value of each: a larger one has a digit too many."""
_ANY_NUMBER = (-(2**63), 2**63)  # 64 bit integers
_USUAL_PORTS: Mapping[str, str] = _TABLE["usual_ports"]
_LAST_PORT = 65535
_NO_DEVICES = ("gpu", "nvidia", "amd", "rocm", "hip")


@rule("ARG020", stage="plan")
def check_sizes(args: Arguments, facts: Facts) -> Outcome:
    """What: sizes and counts must be 1 or more and no absurd number: tp_size, dp_size, context_length, ...
    Why: Inferred: SGLang computes with whatever is given and fails later: no rank is started, a division by zero, no
        memory.
    Upstream: none.
    Example: tp_size=0 -> refused"""
    values = args.everything
    asked = [name for name in {**_RANGES, **facts.given} if type(values.get(name)) in (int, list)]
    outside = {name for name in asked if not _is_in(_RANGES.get(name, _ANY_NUMBER), values[name])}
    if not outside:
        return None
    wrong = [name for name in values if name in outside]
    problems = []
    for name in wrong:
        least, most = _RANGES.get(name, _ANY_NUMBER)
        problems.append(f"{name}={short(str(values[name]), 20)} must lie between {least} and {most}")
    usual = " ".join(f"{name}={typed(arguments_of(facts.release)[name].default)}" for name in wrong)
    return Refusal("; ".join(problems), *wrong, offers=usual, hint="leave it out")


@rule("ARG021", stage="plan")
def check_ports(args: ServerArgs, facts: Facts) -> Outcome:
    """What: ports must lie between 1 and 65535. port=0 is allowed: the server then takes a free port at startup.
    Why: Inferred: SGLang's command line takes any number, and the server fails when it listens.
    Upstream: none.
    Example: port=70000 -> refused"""
    wrong = [name for name in _USUAL_PORTS if not _is_port(getattr(args, name), lowest=int(name != "port"))]
    if not wrong:
        return None
    named = ", ".join(f"{name}={short(str(getattr(args, name)), 20)}" for name in wrong)
    once = {name: int(re.sub(r"(\d)\1$", r"\1", str(getattr(args, name)))) for name in wrong}  # a digit typed twice
    return Refusal(
        f"{named}: a port lies between 1 and {_LAST_PORT}",
        *wrong,
        offers=tuple(f"{name}={port}" for name, port in once.items() if _is_port(port, lowest=1)),
        hint="such as " + " ".join(f"{name}={_USUAL_PORTS[name]}" for name in wrong),
    )


@rule("ARG023", stage="plan")
def check_host(args: ServerArgs, facts: Facts) -> Outcome:
    """What: host must be the name or the address of an interface: neither empty nor a URL, and without a port.
    Why: Inferred: an unset shell variable (host=$HOST) would start a server that listens on an unintended interface.
    Upstream: none.
    Example: host='' -> refused"""
    name, _, port = args.host.rpartition("://")[2].partition(":")
    is_name = re.fullmatch(r"[\w.:%\[\]-]+", args.host) is not None
    if is_name and not (name and port.isdigit()):
        return None
    known = "0.0.0.0" if name == "*" else name if re.match(r"[\w\[]", name) else "127.0.0.1"
    meant = f"host={known} port={port}" if port.isdigit() else f"host={known}"
    offers = dict.fromkeys((meant, "host=127.0.0.1", "host=0.0.0.0"))
    return Refusal(f"host={args.host!r} names no interface", "host", offers=tuple(offers))


@rule("ARG024", stage="plan")
def check_words(args: ServerArgs, facts: Facts) -> Outcome:
    """What: device must be a device of torch, as cuda (also for ROCm) or cpu; log_level and log_level_http must be
        levels of Python's logging and of uvicorn.
    Why: the command line takes any word. torch.get_device_module fails for another device, getattr(logging, level) or
        uvicorn for another level, when the server starts.
    Upstream: model_executor/model_runner.py and utils.py 0.5.2, configure_logger; uvicorn's LOG_LEVELS.
    Example: device=gpu -> refused"""
    if str(args.device).lower() in _NO_DEVICES:
        return Refusal(f"device={args.device} is no device of torch", "device", offers=("device=cuda", "device=null"))
    of_uvicorn = "log_level_http" if args.log_level_http else "log_level"
    for name, known in (("log_level", _TABLE["levels"]), (of_uvicorn, _TABLE["levels_of_uvicorn"])):
        level = getattr(args, name)
        if isinstance(level, str) and level.lower() not in known:
            meant = _TABLE["levels_meant"].get(level.lower()) or nearest(level, known)
            offers = f"{name}={meant}" if meant else ()
            return Refusal(f"{name}={short(level, 20)} is not one of {', '.join(known)}", name, offers=offers)
    return None


@rule("ARG022", stage="plan")
def check_model_path(args: ServerArgs, facts: Facts) -> Outcome:
    """What: model_path must name a model: it is neither empty nor Hydra's sign for a missing value.
    Why: Inferred: an unset shell variable (model_path=$MODEL) would start a server that looks for a model without a
        name.
    Upstream: none.
    Example: model_path='' -> refused"""
    if not isinstance(args.model_path, str) or args.model_path.strip() not in ("", "???"):
        return None
    return Refusal(
        f"model_path={args.model_path!r} names no model",
        "model_path",
        hint="the name of a model on the hub, or its folder",
    )


def _is_in(limits: Sequence[int], value: object) -> bool:
    """Returns whether a number, or each number of a list, is within ``limits``; True for other types."""
    if isinstance(value, list):
        return all(_is_in(limits, item) for item in value)
    return not isinstance(value, int) or isinstance(value, bool) or limits[0] <= value <= limits[1]


def _is_port(value: Json, lowest: int) -> bool:
    return value is None or lowest <= value <= _LAST_PORT
