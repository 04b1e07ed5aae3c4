"""Which router belongs to which SGLang, which flags it takes, and what it is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_hydra.compose.settings.topology import RouterNode
from sglang_hydra.planning.topology import router
from sglang_hydra.planning.topology.router import (
    PACKAGE,
    Router,
    absent,
    find_router,
    flags,
    newest_release,
    plan_router,
    release_for,
)
from tests.planning.topology.fake_sglang import environment
from tests.planning.topology.running import ROUTER_PYTHON
from tests.plans import composed

TABLE = Path(router.__file__).with_name("router_releases.json")
ROUTERS = ("0.1.2", "0.1.9", "0.2.0", "0.3.2")


def node(*overrides: str) -> RouterNode:
    """``topology.router`` with these settings."""
    return composed("topology=pd", *overrides).nodes.topology.router


def made(
    *overrides: str, installed: str | None = None, sglang: str = "0.5.2", pd: bool = False
) -> tuple[Router, list[tuple[str, str]]]:
    """The router of these settings, where that release is installed, and what is said about it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(router, "find_router", lambda python, engine_python: (python, installed))
        planned, findings = plan_router(
            node(*overrides), sglang=sglang, engine_python=None, host="0.0.0.0", port=8000, metrics=29000, pd=pd
        )
    return planned, [(finding.id, finding.message) for finding in findings]


@pytest.mark.parametrize(
    ("sglang", "belongs"),
    [
        ("0.4.0", None),
        ("0.4.1.post7", "0.1.3"),
        ("0.4.9", "0.1.4"),
        ("0.4.10.post2", "0.1.8"),
        ("0.5.0rc0", "0.1.9"),
        ("0.5.2", "0.1.9"),
        ("0.5.3.post1", "0.1.9"),
        ("0.5.4", "0.2.1"),
        ("0.5.7", "0.3.0"),
        ("0.5.23", "0.3.2"),
        ("0.6.0", "0.3.2"),
        ("main", None),
    ],
)
def test_to_an_sglang_belongs_the_router_of_its_day(sglang: str, belongs: str | None) -> None:
    assert release_for(sglang) == belongs


def test_the_table_is_whole() -> None:
    days = json.loads(TABLE.read_text(encoding="utf-8"))["routers"]
    assert days["0.1.9"] == "2025-08-07"
    assert newest_release() in days
    for name, flag in flags().items():
        assert flag.since in days, name
        assert flag.until is None or flag.until in days, name
        assert flag.kind in ("switch", "list", "int", "float", "str"), name


@pytest.mark.parametrize("release", ROUTERS)
def test_every_setting_of_ours_is_a_flag_of_some_release(release: str) -> None:
    known = {name for name, flag in flags().items() if flag.is_in(release)}
    assert {"host", "port", "policy", "worker_urls"} <= known
    assert set(vars(node())) - {"python", "ready_timeout", "args"} <= set(flags())


def test_the_installed_router_takes_the_flags_that_the_table_says() -> None:
    _, version = find_router(ROUTER_PYTHON, None)
    assert version is not None
    asked = subprocess.run(
        [ROUTER_PYTHON, "-m", "sglang_router.launch_router", "--help"],
        capture_output=True, encoding="utf-8", check=True, timeout=250, env={"COLUMNS": "200"},
    )  # fmt: skip
    words = {word.rstrip(",]").lstrip("[") for word in asked.stdout.split()}
    told = {word[2:].replace("-", "_") for word in words if word.startswith("--")}
    assert {name for name, flag in flags().items() if flag.is_in(version)} <= told


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("0.1.2", "--host 0.0.0.0 --port 8000 --policy round_robin"),
        (
            "0.1.9",
            "--host 0.0.0.0 --port 8000 --policy round_robin --prometheus-host 127.0.0.1 --prometheus-port 29000",
        ),
    ],
)
def test_flags_are_those_of_the_release(release: str, expected: str) -> None:
    planned, findings = made("topology.router.policy=round_robin", installed=release, sglang="0.4.0")
    assert " ".join(planned.flags) == expected
    assert findings == []
    workers = ["http://127.0.0.1:8001", "http://127.0.0.1:8002"]
    assert planned.argv(workers) == [*expected.split(), "--worker-urls", *workers]


def test_prefill_servers_are_named_with_their_bootstrap_ports() -> None:
    planned, _ = made(pd=True)
    argv = planned.argv(["http://[::1]:8003"], [("http://[::1]:8001", 8998), ("http://[::1]:8002", 8999)])
    assert argv[len(planned.flags) :] == [
        "--pd-disaggregation",
        *("--prefill", "http://[::1]:8001", "8998", "--prefill", "http://[::1]:8002", "8999"),
        *("--decode", "http://[::1]:8003"),
    ]
    assert planned.command(argv)[:3] == ["python", "-m", "sglang_router.launch_router"]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("topology.router.args.retry_max_retries=3", "--retry-max-retries 3"),
        ("topology.router.args.disable_retries=true", "--disable-retries"),
        ("topology.router.args.disable_retries=false", ""),
        ("topology.router.args.cache_threshold=0.7", "--cache-threshold 0.7"),
        ("topology.router.args.request_id_headers=[x-a,x-b]", "--request-id-headers x-a x-b"),
        ("topology.router.request_timeout_secs=60", "--request-timeout-secs 60"),
        ("topology.router.worker_startup_timeout_secs=900", "--worker-startup-timeout-secs 900"),
    ],
)
def test_every_flag_can_be_set(setting: str, words: str) -> None:
    planned, findings = made(setting, installed="0.3.2", sglang="0.5.23")
    assert findings == []
    assert words in " ".join(planned.flags)
    assert ("--disable-retries" in planned.flags) is (words == "--disable-retries")


@pytest.mark.parametrize(
    ("release", "setting", "message"),
    [
        (
            "0.1.9",
            "topology.router.args.retry_max_retries=3",
            "topology.router.args.retry_max_retries: sglang-router 0.1.9 has no --retry-max-retries, "
            "it came with 0.2.0",
        ),
        (
            "0.3.2",
            "topology.router.args.eviction_interval=3",
            "topology.router.args.eviction_interval: sglang-router 0.3.2 has no --eviction-interval, "
            "0.1.9 was the last",
        ),
        (
            "0.1.9",
            "topology.router.policy=manual",
            "topology.router.policy=manual: sglang-router 0.1.9 takes cache_aware, power_of_two, random, round_robin",
        ),
        ("0.3.2", "topology.router.args.retries=3", "sglang-router has no flag --retries"),
        ("0.3.2", "topology.router.args.port=1", "topology.router.args.port is set by the topology"),
        ("0.3.2", "topology.router.args.decode=x", "topology.router.args.decode is set by the topology"),
        (
            "0.3.2",
            "topology.router.args.queue_size=long",
            "topology.router.args.queue_size='long' is not a number",
        ),
        (
            "0.3.2",
            "topology.router.args.disable_retries=3",
            "topology.router.args.disable_retries=3 is neither true nor false",
        ),
        (
            "0.3.2",
            "topology.router.args.request_id_headers=x",
            "topology.router.args.request_id_headers='x' is no list",
        ),
        ("0.3.2", "topology.router.prefill_policy=bucket", "topology.router.prefill_policy is for topology=pd"),
    ],
    ids=lambda value: value if "=" in value else None,
)
def test_a_setting_that_the_release_does_not_take_is_refused(release: str, setting: str, message: str) -> None:
    _, findings = made(setting, installed=release, sglang="0.4.0")
    assert findings == [("TOP014", message)]


@pytest.mark.parametrize(
    ("installed", "sglang", "pd", "ids"),
    [
        (None, "0.5.2", False, []),
        ("0.1.9", "0.5.2", True, []),
        ("0.3.2", "0.5.2", True, ["TOP016"]),
        ("0.1.9", "0.5.23", False, ["TOP016"]),
        ("0.1.4", "0.4.2", True, ["TOP017"]),
        (None, "0.4.2", True, ["TOP017"]),
    ],
)
def test_a_router_of_another_day_is_said(installed: str | None, sglang: str, pd: bool, ids: list[str]) -> None:
    planned, findings = made(installed=installed, sglang=sglang, pd=pd)
    assert [id for id, _ in findings] == ids
    assert planned.release == (installed or release_for(sglang))


def test_it_is_looked_for_with_the_engine_and_then_here(tmp_path: Path) -> None:
    without = str(environment(tmp_path / "without"))
    other = environment(tmp_path / "with")
    packages = next((tmp_path / "with" / "lib").glob("python3*")) / "site-packages"
    (packages / "sglang_router-0.1.9.dist-info").mkdir()
    assert find_router(str(other), None) == (str(other), "0.1.9")
    assert find_router(None, str(other)) == (str(other), "0.1.9")
    assert find_router(without, str(other)) == (without, None)
    python, version = find_router(None, without)
    assert (python, version is not None) == (sys.executable, True)


@pytest.mark.parametrize(
    ("overrides", "message", "hint"),
    [
        ([], "this environment has no package sglang-router, which routes requests to the servers", "==0.1.9; or "),
        (
            ["topology.router.python=/no/such/python"],
            "topology.router.python=/no/such/python is not a program here",
            "topology.router.python=/venv/bin/python; or leave it out",
        ),
    ],
)
def test_its_absence_says_what_to_type(overrides: list[str], message: str, hint: str) -> None:
    planned, _ = made(*overrides)
    finding = absent(planned)
    assert finding is not None
    assert (finding.id, finding.level, finding.message) == ("TOP015", "error", message)
    assert hint in (finding.hint or "")
    present, _ = made(installed="0.1.9")
    assert absent(present) is None


def test_the_package_is_named_as_the_registry_has_it() -> None:
    assert PACKAGE == "sglang-router"
