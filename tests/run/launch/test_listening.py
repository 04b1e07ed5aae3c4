"""Whose a port is: a server is ready only where it, and nobody beside it, answers there."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_hydra.run.launch.listening import FOREIGN, OURS, UNSEEN, Owner, Socket, listening, port_owner
from sglang_hydra.run.launch.local import LocalServer, serve
from sglang_hydra.run.launch.port import port_obstacle
from tests.run.launch.processes import free_port, marked
from tests.run.launch.test_local import Silent, fake, marker

__all__ = ["marker"]

THIEF = Path(__file__).with_name("thief.py")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says who listens")


@contextlib.contextmanager
def answering(port: int, *words: str, status: int = 200) -> Iterator[int]:
    """The process id of a program of its own that answers on the port."""
    argv = [sys.executable, str(THIEF), str(port), str(status), *words]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"listening\n"
            yield process.pid
        finally:
            process.kill()


# Where our server listens, where a stranger does, which host is asked for, and whose the port is then.
PLACES = [
    ("127.0.0.1", None, "127.0.0.1", OURS),
    ("0.0.0.0", None, "0.0.0.0", OURS),
    ("0.0.0.0", None, "", OURS),
    ("0.0.0.0", None, "127.0.0.1", OURS),
    ("127.0.0.1", None, "localhost", OURS),
    ("127.0.0.1", "127.0.0.1", "127.0.0.1", FOREIGN),
    ("0.0.0.0", "127.0.0.1", "0.0.0.0", FOREIGN),
    ("0.0.0.0", "127.0.0.1", "127.0.0.1", FOREIGN),
    ("127.0.0.1", "0.0.0.0", "127.0.0.1", OURS),
    ("127.0.0.1", "127.0.0.2", "127.0.0.1", OURS),
    ("0.0.0.0", "127.0.0.2", "0.0.0.0", FOREIGN),
    ("127.0.0.2", "0.0.0.0", "127.0.0.1", FOREIGN),
    (None, "127.0.0.1", "127.0.0.1", FOREIGN),
    (None, "0.0.0.0", "127.0.0.1", FOREIGN),
    (None, None, "127.0.0.1", UNSEEN),
]


@pytest.mark.corpus
@pytest.mark.parametrize(("ours", "theirs", "asked", "whose"), PLACES)
def test_a_port_is_whose_process_gets_what_is_sent_there(
    ours: str | None, theirs: str | None, asked: str, whose: str
) -> None:
    port = free_port()
    with contextlib.ExitStack() as stack:
        idle = stack.enter_context(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        root = stack.enter_context(answering(port, "reuse", f"host={ours}")) if ours else idle.pid
        other = stack.enter_context(answering(port, "reuse", f"host={theirs}")) if theirs else 0
        owner = port_owner(asked, port, root)
    assert owner.whose == whose
    assert (f"process {other} (" in owner.who) == (whose == FOREIGN)


def test_what_the_system_does_not_say_is_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    with answering(port) as root:
        hidden = [Socket(each.address, None) for each in listening(port) or ()]
        monkeypatch.setattr("sglang_hydra.run.launch.listening.listening", lambda port: hidden)
        assert port_owner("127.0.0.1", port, root).whose == UNSEEN
        monkeypatch.setattr("sglang_hydra.run.launch.listening.listening", lambda port: None)
        assert port_owner("127.0.0.1", port, root) == Owner(
            UNSEEN, "this system does not say which process listens on a port"
        )


def test_processes_of_the_same_slurm_job_count_as_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    port, own = free_port(), os.getpid()
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    with answering(port) as other, subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as idle:
        assert other != own
        assert port_owner("127.0.0.1", port, idle.pid, "4711").whose == OURS
        assert port_owner("127.0.0.1", port, idle.pid, "4712").whose == FOREIGN


@pytest.mark.parametrize(
    ("host", "taken"),
    [("127.0.0.1", "0.0.0.0"), ("0.0.0.0", "127.0.0.1"), ("localhost", "127.0.0.1"), ("", "127.0.0.1")],
)
def test_a_port_that_is_taken_on_another_address_is_an_obstacle(host: str, taken: str) -> None:
    port = free_port()
    with answering(port, f"host={taken}") as pid:
        found = port_obstacle(host, port)
    assert found is not None
    assert (found.id, f"process {pid} (" in found.message) == ("ENG006", True)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
@pytest.mark.parametrize("host", ["::1", "::", "localhost"])
def test_a_port_that_is_taken_on_ipv6_is_an_obstacle_where_it_is_asked_for(host: str) -> None:
    port = free_port()
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(answering(port, "host=::1"))
        except AssertionError:
            pytest.skip("this machine has no address ::1")
        resolved = {info[4][0] for info in socket.getaddrinfo(host, port)}
        assert (port_obstacle(host, port) is not None) == bool(resolved & {"::1", "::"})


@pytest.mark.parametrize("status", [200, 503, 302, 404])
def test_a_stranger_that_took_the_port_meanwhile_is_named_whatever_it_answers(marker: str, status: int) -> None:
    """The server itself never listens, as SGLang 0.5.2 where the port was taken since it was looked at."""
    launch = fake(marker, "hang")
    server = LocalServer(launch, Silent())
    server.start()
    try:
        with answering(launch.port, status=status) as pid:
            with pytest.raises(Exception, match=f"process {pid} ") as caught:
                server.wait_ready()
            (finding, *_) = caught.value.findings  # type: ignore[attr-defined]
            assert (finding.id, server.failure and server.failure.kind) == ("ENG008", "port_in_use")
            assert f"port {launch.port} is answered by another process" in finding.message
    finally:
        server.stop()
    assert marked(marker) == []


def test_a_stranger_that_shares_the_port_is_the_end_of_the_start(marker: str) -> None:
    launch = fake(marker, "reuse")
    with LocalServer(launch, Silent()) as server:
        assert server.wait_ready() is not None
        assert server.owner == Owner(OURS)
        with answering(launch.port, "reuse") as pid:
            assert len(listening(launch.port) or ()) == 2
            assert not server.look_at_port()
            assert server.owner.who.startswith(f"process {pid} (")
    assert marked(marker) == []


def test_a_port_that_is_lost_later_is_the_servers_end(marker: str) -> None:
    launch = fake(marker, "reuse")
    with contextlib.ExitStack() as stack:

        def shared(server: LocalServer, seconds: float) -> None:
            stack.enter_context(answering(launch.port, "reuse"))
            server.look_at_port()
            server.request_stop()
            server._stop_requested = False  # as if it had ended by itself

        outcome = serve(launch, Silent(), shared)
    assert (outcome.exit_code, outcome.kind) == (4, "port_in_use")
    assert "killed by" not in outcome.findings[0].message
