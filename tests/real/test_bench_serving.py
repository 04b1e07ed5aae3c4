"""SGLang's own load generator, of an early and a late release, on a server whose time is known and that wants a key."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from sglang_hydra.facts.tiny import ensure_tiny, tiny_path
from sglang_hydra.measure.bench.bench_serving import BenchServing
from sglang_hydra.measure.bench.point import run_point
from sglang_hydra.measure.bench.server import Server
from sglang_hydra.text.errors import MachineError
from tests.measure.bench.conftest import FAKE, Start, load, start

__all__ = ["start"]
KEY = "a-key-that-nobody-may-see"


@pytest.fixture(params=["sglang_python", "sglang_0_5_23_python"])
def server(request: pytest.FixtureRequest, start: Start) -> Server:
    ensure_tiny()
    fake = start(decode_ms=20, prefill_us=1000, key=KEY)
    python = request.getfixturevalue(request.param)
    return Server(fake.url, "other", "sglang", str(tiny_path()), 2048, flushes=True, python=python, api_key=KEY)


@pytest.fixture
def client(server: Server) -> Iterator[BenchServing]:
    made = BenchServing(server)
    yield made
    made.close()


def test_points_of_every_kind_are_measured_by_one_process(server: Server, client: BenchServing) -> None:
    before = set(psutil.Process().children())
    closed = load(input_len=32, output_len=8, num_prompts=12, client="auto")
    assert BenchServing.suits(server, closed)
    first = run_point(server, client, closed, point_id="closed")
    assert (first.state, first.reasons) == ("valid", ())
    (child,) = set(psutil.Process().children()) - before
    assert KEY not in " ".join(child.cmdline())
    assert first.measures["output_tokens"] == 12 * 8
    assert first.measures["input_tokens"] == 12 * 32
    assert first.cache_hit_rate == 0
    assert first.measures["ttft_ms"]["p50"] >= 32
    assert first.measures["itl_ms"]["p50"] >= 19
    assert first.measures["e2e_ms"]["p50"] >= 32 + 7 * 19
    assert 0 < first.client["cpu"] < 0.9

    lasting = load(input_len=32, output_len=8, num_prompts=None, min_duration=6.0)
    result = run_point(server, client, lasting, point_id="lasting")
    assert (result.state, result.reasons) == ("valid", ())
    assert result.measures["duration_s"] >= 6
    assert result.measures["requests"] > 40

    arriving = load(input_len=32, output_len=8, num_prompts=None, min_duration=3.0, concurrency=None, request_rate=20.0)
    result = run_point(server, client, arriving, point_id="arriving")
    assert (result.state, result.reasons) == ("valid", ())
    assert result.measures["requests"] == 200

    whole = load(input_len=32, output_len=8, num_prompts=8, stream=False, range_ratio=0.5)
    result = run_point(server, client, whole, point_id="whole")
    assert (result.state, result.reasons) == ("valid", ())
    assert result.measures["itl_ms"]["p50"] is None
    assert set(psutil.Process().children()) - before == {child}

    client.close()
    assert not child.is_running()


@pytest.mark.parametrize("server", ["sglang_python"], indirect=True)  # 0.5.23 waits for it for a minute first
def test_a_server_that_is_gone_is_said(server: Server, client: BenchServing) -> None:
    for process in [child for child in psutil.Process().children() if str(FAKE) in child.cmdline()]:
        process.kill()
        process.wait(60)
    with pytest.raises(MachineError, match="BEN013") as raised:
        client.run(load(num_prompts=4), 1)
    assert KEY not in str(raised.value)
