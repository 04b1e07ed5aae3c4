"""The choice of ports and the server's address. The recorded cases are in tests/conformance."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from sglang_hydra import ConfigError, Finding
from sglang_hydra.arguments.ports import server_url
from tools.chosen_ports import PortPlan, plan_ports


def _plan(
    *,
    dp_rank: int | None = None,
    drawn: int = 100,
    is_available: Callable[[int], bool] = lambda port: True,
    **args: Any,
) -> PortPlan:
    values = {
        "port": 30000,
        "nccl_port": None,
        "enable_dp_attention": False,
        "nnodes": 1,
        "dist_init_addr": None,
        **args,
    }
    names = itertools.count()
    return plan_ports(
        values,
        dp_rank=dp_rank,
        randint=lambda low, high: drawn,
        is_available=is_available,
        temp_name=lambda: f"/tmp/{next(names)}",
    )


def _refusal(**args: Any) -> Finding:
    with pytest.raises(ConfigError) as refused:
        _plan(**args)
    (finding,) = refused.value.findings
    assert finding.level == "error"
    assert finding.hint
    assert finding.upstream
    return finding


def test_one_node_uses_five_socket_files() -> None:
    plan = _plan()
    assert plan.tokenizer_ipc_name == "ipc:///tmp/0"
    assert plan.metrics_ipc_name == "ipc:///tmp/4"
    assert plan.nccl_port == 30100
    assert plan.tokenizer_worker_ipc_name is None


def test_dp_attention_counts_ports_from_the_http_port() -> None:
    plan = _plan(enable_dp_attention=True)
    assert plan.tokenizer_ipc_name == "tcp://127.0.0.1:30234"
    assert plan.scheduler_input_ipc_name == "tcp://127.0.0.1:30238"
    assert _plan(enable_dp_attention=True, dp_rank=3).scheduler_input_ipc_name == "tcp://127.0.0.1:30242"


@pytest.mark.parametrize(
    ("address", "first"),
    [
        ("10.0.0.1:5000", "tcp://10.0.0.1:5001"),
        ("head.local:25000", "tcp://head.local:25001"),
        ("[::1]:5000", "tcp://[::1]:5001"),
        ("[fe80::1%eth0]:99", "tcp://[fe80::1%eth0]:100"),
        ("h: 5 ", "tcp://h:6"),
        (":5", "tcp://:6"),
    ],
)
def test_dp_attention_counts_ports_from_the_head_node(address: str, first: str) -> None:
    assert _plan(enable_dp_attention=True, nnodes=2, dist_init_addr=address).tokenizer_ipc_name == first


@pytest.mark.parametrize(
    ("address", "line"),
    [
        (None, 2623),
        (5, 2623),
        ("10.0.0.1", 2630),
        ("a:b:c", 2630),
        (" [::1]:5000", 2630),
        ("10.0.0.1:abc", 2634),
        ("h:", 2634),
        ("[::1]", 2624),
        ("[::1]:", 2624),
        ("[::1]5000", 2624),
        ("[::1", 2624),
        ("[zz]:5000", 2624),
        ("[::1]:x", 2624),
    ],
)
def test_bad_head_address_is_refused_where_sglang_fails(address: object, line: int) -> None:
    finding = _refusal(enable_dp_attention=True, nnodes=2, dist_init_addr=address)
    assert finding.id == "PRT003"
    assert finding.fields == ("dist_init_addr",)
    assert finding.upstream is not None
    assert finding.upstream[0] <= line <= finding.upstream[1]


def test_head_address_is_ignored_without_dp_attention() -> None:
    assert _plan(dist_init_addr="nonsense").nccl_port == 30100


def test_given_nccl_port_is_not_probed() -> None:
    def fail(port: int) -> bool:
        raise AssertionError(f"{port} was probed")

    assert _plan(nccl_port=0, is_available=fail).nccl_port == 0


def test_search_turns_back_at_60000() -> None:
    busy = {59999, 60041, 59998}
    assert _plan(port=59899, is_available=lambda port: port not in busy).nccl_port == 60040


@pytest.mark.parametrize("port", [0, 30000, 59000, 65535, -500, 10**12, -(10**12)])
def test_search_without_a_free_port_ends_after_one_round(port: int) -> None:
    probed: list[int] = []

    def taken(candidate: int) -> bool:
        probed.append(candidate)
        return False

    assert _refusal(port=port, is_available=taken).id == "PRT002"
    assert len(probed) == len(set(probed)) < 2000


@pytest.mark.parametrize("port", [10**12, -(10**12), 65536])
def test_search_from_far_away_finds_what_the_long_way_finds(port: int) -> None:
    def is_real(candidate: int) -> bool:
        return 0 <= candidate <= 65535

    start = port + 100
    steps = 43 if start > 65535 else 42
    bound = 65535 if start > 65535 else steps - 1
    expected = bound - (bound - start) % steps
    assert _plan(port=port, is_available=is_real).nccl_port == expected


def test_numbers_just_above_the_ports_are_asked_for_in_sglangs_order() -> None:
    probed: list[int] = []

    def taken_at_first(candidate: int) -> bool:
        probed.append(candidate)
        return len(probed) > 3

    assert _plan(port=65500, is_available=taken_at_first).nccl_port == 65600 - 3 * 43
    assert probed == [65600, 65557, 65514, 65471]


def test_port_that_is_no_number_is_refused() -> None:
    assert _refusal(port="30000").id == "PRT001"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:30000"),
        ("example.org", "http://example.org:30000"),
        ("::1", "http://[::1]:30000"),
        ("[::1]", "http://[::1]:30000"),
        ("", "http://:30000"),
    ],
)
def test_url_puts_ipv6_hosts_in_brackets(host: str, url: str) -> None:
    assert server_url({"host": host, "port": 30000}) == url
