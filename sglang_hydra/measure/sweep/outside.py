"""Uses a server that already runs (``bench.url``): its own report is the plan of its points. Starts, stops and empties
nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.parser import parser_of
from sglang_hydra.arguments.secrets import is_secret_name
from sglang_hydra.arguments.tables.table import nearest_known, release
from sglang_hydra.compose.overrides import Request, value_problem
from sglang_hydra.planning.comparing.actual import comparable
from sglang_hydra.planning.plan import NOT_IDENTITY, Plan
from sglang_hydra.run.launch.drift import asked, is_url
from sglang_hydra.run.launch.server_info import NoServerInfo
from sglang_hydra.text.errors import ConfigError, MachineError, ServerError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import short

KEY = "bench.url"
_METRICS = "enable_metrics"


def with_server(requests: Sequence[Request]) -> list[Request]:
    """Adds below ``requests`` what the server of a typed ``bench.url`` reports; returns them unchanged without one.

    Raises ConfigError (BEN018) for an address in a file, an invalid one, and other arguments beside it; MachineError
    (BEN019) for a server that does not report its arguments."""
    named = [item for item in requests if item.name == KEY and _value(item) not in ("null", "", "None")]
    if not named:
        return list(requests)
    typed = named[-1]
    url = _value(typed)
    if not typed.is_word or not is_url(url) or "," in url:
        message = f"{KEY}={short(url)}: one address of a server is typed, and named by no file"
        raise ConfigError(Finding("error", "BEN018", message, (KEY,), f"{KEY}=http://127.0.0.1:30000"))
    beside = [item.name for item in requests if item.name in EVERY or item.name in ("model", "engine.version")]
    if beside:
        message = f"{beside[0]} is what the server of {KEY} says of itself"
        hint = f"{KEY}=... gpu=h200 bench.concurrency=1,8"
        raise ConfigError(Finding("error", "BEN018", message, (beside[0], KEY), hint))
    try:
        info = asked(url)
    except NoServerInfo as failure:
        message = f"{url} does not say what it runs with: {failure}"
        raise MachineError(Finding("error", "BEN019", message, (KEY,), failure.hint)) from failure
    gpu = [] if any(item.name == "gpu" for item in requests) else [("gpu", "none")]
    pairs = [*gpu, ("engine", "sglang"), *_settings(info)]
    return [*(Request.typed(key, value, url, "experiment") for key, value in pairs), *requests]


def _settings(info: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yields the server's arguments that differ from the defaults and can be typed."""
    version = nearest_known(str(info.get("version") or "")) or ""
    if not version or "model_path" not in info:
        message = f"it names no release that is known here: {short(str(info.get('version')))}"
        raise MachineError(Finding("error", "BEN019", message, (KEY,)))
    known = release(version)
    yield "engine.version", version
    yield _METRICS, bool(info.get(_METRICS))
    for name, argument in known.arguments.items():
        value = info.get(name)
        is_default = comparable(name, value) == comparable(name, argument.default)
        if value is None or is_default or name == _METRICS or is_secret_name(name) or name in NOT_IDENTITY:
            continue
        if name in parser_of(version).by_name and value_problem(name, value, version) is None:
            yield name, value


def still_the_same(plan: Plan) -> None:
    """Raises ServerError (BEN020) if the server at ``bench.url`` has other arguments than when it was planned, and
    MachineError (BEN019) if it does not answer."""
    url = str(plan.nodes.bench.url)
    try:
        info = asked(url)
    except NoServerInfo as failure:
        raise MachineError(Finding("error", "BEN019", f"{url} does not answer: {failure}", (KEY,))) from failure
    told = {name: value for name, value in plan.intent.items() if name in info and name not in NOT_IDENTITY}
    changed = [name for name, value in told.items() if comparable(name, value) != comparable(name, info[name])]
    if changed:
        message = f"{url} is another server than at first: {', '.join(changed[:5])} changed"
        raise ServerError(Finding("error", "BEN020", message, tuple(changed[:5]), "begin the sweep again"))


def _value(request: Request) -> str:
    return str(request.value if request.key else request.text.partition("=")[2]).strip("'\"")
