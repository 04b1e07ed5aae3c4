"""Plans the router: the sglang-router release for an SGLang, its settings, and its command line."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.arguments.tables.order import at_least, release_key
from sglang_hydra.compose.settings.topology import RouterNode
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict, JsonObject, json_beside
from sglang_hydra.text.words import nearest

PACKAGE = "sglang-router"
MODULE = "sglang_router.launch_router"
FIRST_WITH_PD = "0.1.5"
FIRST_WITH_KEY = "0.1.7"
FIRST_THAT_ASKS_FOR_THE_KEY = "0.2.0"
# Before, only for Python 3.8 to 3.12 on x86_64 Linux; from then on for every Python, Linux, macOS and Windows.
FIRST_FOR_EVERY_PYTHON = "0.2.2"
PROMETHEUS_PORT = 29000
"""The port of the router's metrics, if free; also the router's own default."""

PLACED = ("host", "port", "worker_urls", "pd_disaggregation", "prefill", "decode", "prometheus_host", "prometheus_port")
SECRET = ("api_key", "control_plane_api_keys", "oracle_password", "postgres_db_url", "redis_url")
"""Flags with a password as value: everybody on the machine could read it on the router's command line."""

_TYPES: Mapping[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str, int, float)}
_OWN_SETTINGS = ("python", "host", "port", "ready_timeout", "args")


class Flag(NamedTuple):
    """One flag of the router's command line; ``since`` and ``until`` are the first and last release with it."""

    kind: str
    since: str
    until: str | None
    choices: tuple[tuple[str, tuple[str, ...]], ...]

    def is_in(self, release: str) -> bool:
        return at_least(release, self.since) and (self.until is None or at_least(self.until, release))

    def choices_in(self, release: str) -> tuple[str, ...]:
        """Returns the allowed values in a release; empty where any value is allowed."""
        known = [choices for since, choices in self.choices if at_least(release, since)]
        return known[-1] if known else ()


@dataclass(frozen=True)
class Router:
    """The router of a topology. ``release`` is the planned one, ``installed`` the one in ``python``, if any.
    ``belongs`` is the newest release at the time of this SGLang, None before the first. ``flags`` are its command line
    without the addresses of workers, ``pd`` whether those are prefill and decode servers."""

    python: str | None
    installed: str | None
    belongs: str | None
    release: str
    host: str
    port: int
    pd: bool
    flags: tuple[str, ...]
    ready_timeout_s: float
    prometheus_port: int | None = None
    settings: JsonObject = field(default_factory=dict)

    def argv(self, workers: Sequence[str] = (), prefill: Sequence[tuple[str, int]] = ()) -> list[str]:
        """Returns the flags for these workers: the URLs of replicas, or with ``prefill`` (URL and bootstrap port) those
        of the decode servers."""
        if not self.pd:
            return [*self.flags, "--worker-urls", *workers]
        words = [*self.flags, "--pd-disaggregation"]
        for url, bootstrap in prefill:
            words += ["--prefill", url, str(bootstrap)]
        for url in workers:
            words += ["--decode", url]
        return words

    def command(self, argv: Sequence[str]) -> list[str]:
        """Returns the command that a person types for ``argv``."""
        return [self.python or "python", "-m", MODULE, *argv]


@functools.cache
def _record() -> JsonDict:
    return dict(json_beside(str(Path(__file__).with_name("router_releases"))))


@functools.cache
def flags() -> Mapping[str, Flag]:
    """Returns every flag of any release of the router, by its name with underscores."""
    return {
        name: Flag(row["kind"], row["since"], row["until"], tuple((since, tuple(of)) for since, of in row["choices"]))
        for name, row in _record()["flags"].items()
    }


def newest_release() -> str:
    return str(list(_record()["routers"])[-1])


def release_for(sglang: str) -> str | None:
    """Returns the newest router at the time of that SGLang; None before the first, or for no version."""
    if release_key(sglang) is None:
        return None
    found = [router for since, router in _record()["sglang"] if at_least(sglang, since)]
    return found[-1] if found else None


def plan_router(
    node: RouterNode, *, sglang: str, engine_python: str | None, host: str, port: int, metrics: int, pd: bool
) -> tuple[Router, list[Finding]]:
    """Returns the router of these settings (``topology.router``) and findings on them.

    It listens on ``host`` and ``port``; ``metrics`` is the port for its metrics."""
    python, installed = find_router(node.python, engine_python)
    belongs = release_for(sglang)
    release = installed or belongs or newest_release()
    asked = {**{name: value for name, value in vars(node).items() if name not in _OWN_SETTINGS}, **node.args}
    asked = {name: value for name, value in asked.items() if value is not None}
    findings = [*_misfits(asked, node, release, pd), *_release_findings(sglang, belongs, installed, release, node, pd)]
    settings = {"host": host, "port": port, **asked}
    if flags()["prometheus_port"].is_in(release):
        settings = {**settings, "prometheus_host": node.prometheus_host, "prometheus_port": metrics}
    else:
        settings = {name: value for name, value in settings.items() if not name.startswith("prometheus_")}
    router = Router(
        python=python,
        installed=installed,
        belongs=belongs,
        release=release,
        host=host,
        port=port,
        pd=pd,
        flags=tuple(word for name, value in settings.items() for word in _written(name, value)),
        ready_timeout_s=node.ready_timeout,
        prometheus_port=settings.get("prometheus_port"),
        settings=settings,
    )
    return router, findings


def secret_flags(args: Mapping[str, object]) -> Iterator[Finding]:
    """Yields findings on passwords among ``topology.router.args``, before anything is shown or written."""
    for name in args:
        key = f"topology.router.args.{name}"
        if name == "api_key":
            message, hint = f"{key}: the router is given the servers' key", "api_key='${oc.env:MY_KEY}'"
            yield Finding("error", "TOP014", message, (key,), hint)
        elif name in SECRET:
            message = f"{key} holds a password, which its command line would show"
            yield Finding("error", "TOP014", message, (key,), (f"leave {name} out", "start such a router yourself"))


def find_router(python: str | None, engine_python: str | None) -> tuple[str | None, str | None]:
    """Returns the interpreter that has the router and the version there: the named one, else the engine's, else ours.

    Reads package metadata and imports nothing. Without a router it returns the interpreter that should have it, and
    None."""
    from sglang_hydra.facts.installed import installed

    for candidate in [python] if python else dict.fromkeys((engine_python, None)):
        version = installed(candidate).versions.get(PACKAGE)
        if version is not None:
            return candidate or sys.executable, version
    return python or engine_python, None


def absent(router: Router) -> Finding | None:
    """Returns the finding on why the router cannot start here, or None."""
    from sglang_hydra.facts.environments import find_python

    if router.installed is not None:
        return None
    if router.python and find_python(router.python) is None:
        message = f"topology.router.python={router.python} is not a program here"
        hint = "topology.router.python=/venv/bin/python", "leave it out for the engine's, else this program's"
        return Finding("error", "TOP015", message, ("topology.router.python",), hint)
    whose = f"the environment of {router.python}" if router.python else "this environment"
    python = router.python or sys.executable
    hints = [f"{python} -m pip install {PACKAGE}=={router.belongs or router.release}"]
    if not at_least(router.belongs or router.release, FIRST_FOR_EVERY_PYTHON):
        hints.append(f"{python} -m pip install {PACKAGE}=={newest_release()}, which every Python and platform has")
    message = f"{whose} has no package {PACKAGE}, which routes requests to the servers"
    return Finding("error", "TOP015", message, ("topology.router.python",), hints)


def _misfits(asked: Mapping[str, object], node: RouterNode, release: str, pd: bool) -> Iterator[Finding]:
    for name, value in asked.items():
        key = f"topology.router.args.{name}" if name in node.args else f"topology.router.{name}"
        problem = _misfit(name, value, key, release, pd, by_hand=name in node.args)
        if problem:
            yield Finding("error", "TOP014", problem[0], (key,), problem[1])


def _misfit(
    name: str, value: object, key: str, release: str, pd: bool, *, by_hand: bool
) -> tuple[str, str | None] | None:
    """Returns the error of one router setting, and the fix; None if it fits."""
    if by_hand and name in PLACED:
        own = f"topology.router.{name}" if name in ("host", "port") or name.startswith("prometheus") else None
        return f"{key} is set by the topology", f"{own}={value}" if own else None
    flag = flags().get(name)
    if flag is None:
        near = nearest(name, flags())
        return f"{PACKAGE} has no flag --{name.replace('_', '-')}", f"did you mean {near}?" if near else None
    if not flag.is_in(release):
        if name.startswith("prometheus_"):
            return None  # ignored where the release has no metrics
        then = f"it came with {flag.since}" if not at_least(release, flag.since) else f"{flag.until} was the last"
        return f"{key}: {PACKAGE} {release} has no --{name.replace('_', '-')}, {then}", None
    if name in ("prefill_policy", "decode_policy") and not pd:
        return f"{key} is for topology=pd", f"topology.router.policy={value}"
    return _bad_value(flag, value, key, release)


def _bad_value(flag: Flag, value: object, key: str, release: str) -> tuple[str, str | None] | None:
    if flag.kind == "switch":
        return None if isinstance(value, bool) else (f"{key}={value!r} is neither true nor false", f"{key}=true")
    if flag.kind == "list":
        fits = isinstance(value, (list, tuple)) and all(isinstance(item, (str, int, float)) for item in value)
        return None if fits else (f"{key}={value!r} is no list", f"{key}=[{value}]")
    if isinstance(value, bool) or not isinstance(value, _TYPES[flag.kind]):
        return f"{key}={value!r} is not {'text' if flag.kind == 'str' else 'a number'}", None
    if "\0" in str(value):
        return f"{key} has a zero byte in it, which no program can be given", None
    choices = flag.choices_in(release)
    if choices and value not in choices:
        near = nearest(str(value), choices)
        return f"{key}={value}: {PACKAGE} {release} takes {', '.join(choices)}", f"{key}={near or choices[0]}"
    return None


def _release_findings(
    sglang: str, belongs: str | None, installed: str | None, release: str, node: RouterNode, pd: bool
) -> Iterator[Finding]:
    fields = ("topology.router.python",)
    if pd and not at_least(release, FIRST_WITH_PD):
        message = f"{PACKAGE} {release} knows no prefill and decode servers; {FIRST_WITH_PD} was the first"
        wanted = belongs if belongs is not None and at_least(belongs, FIRST_WITH_PD) else FIRST_WITH_PD
        yield Finding("error", "TOP017", message, fields, f"pip install {PACKAGE}=={wanted}, where the router is")
    if installed is None or belongs is None or installed == belongs:
        return
    message = (
        f"{PACKAGE} {installed} is installed, and its flags count; {belongs} was out when SGLang {sglang} came out"
    )
    if at_least(installed, belongs):
        yield Finding("info", "TOP016", message, fields)
    else:
        hint = f"{node.python or 'python'} -m pip install {PACKAGE}=={belongs}"
        yield Finding("warning", "TOP016", message, fields, hint)


def _written(name: str, value: object) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag] if value else []
    if isinstance(value, (list, tuple)):
        return [flag, *map(str, value)]
    return [flag, str(value)]


def api_key_finding(router: Router) -> Finding:
    """Returns the finding on the router's use of the servers' key: later releases check it themselves."""
    if not at_least(router.release, FIRST_WITH_KEY):
        does = "passes on what clients send: the servers check the key; it is not given to the router"
    elif not at_least(router.release, FIRST_THAT_ASKS_FOR_THE_KEY):
        does = "passes on what clients send and does not ask for the key itself: its own pages are open"
    else:
        does = "asks clients for the same key, and shows it to the servers"
    return Finding("info", "TOP018", f"api_key: {PACKAGE} {router.release} {does}", ("api_key",))
