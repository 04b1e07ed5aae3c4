"""Topologies as they run: the real router, fake servers, real streamed requests, and what happens when one is gone."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.planning.topology.fake_sglang import environment
from tests.planning.topology.running import DEADLINE_S, READY, ask, nothing_left, running, streamed

KEY = "correct-horse-battery"
PD = ("topology=pd", "topology.prefill.replicas=2", "topology.prefill.args.max_running_requests=4")
TWO = ("topology=replicas", "replicas=2", "topology.router.policy=round_robin")
CLIENTS = 3


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of the fake SGLang."""
    return environment(tmp_path_factory.mktemp("engine"))


class Clients:
    """Clients that send one request after the other until they are stopped. ``answers`` are the servers' ports,
    ``failures`` whatever went wrong."""

    def __init__(self, port: int) -> None:
        self.answers: list[str] = []
        self.failures: list[str] = []
        self._port, self._over = port, threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self._over.is_set():
            try:
                self.answers.append(streamed(self._port)[0])
            except Exception as failure:  # noqa: BLE001 - a request that breaks is what is counted
                self.failures.append(repr(failure))

    def wait_for(self, more: int) -> list[str]:
        """The servers that gave the next ``more`` answers."""
        seen, deadline = len(self.answers), time.monotonic() + DEADLINE_S
        while len(self.answers) < seen + more:
            assert time.monotonic() < deadline, self.failures
            time.sleep(0.01)
        return self.answers[seen:]

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)


@pytest.mark.thorough
def test_requests_go_on_through_the_others_when_a_replica_is_killed(tmp_path: Path, python: Path) -> None:
    with running(tmp_path, python, *TWO) as served:
        served.wait_for(READY)
        first, second = map(str, served.ports())
        clients = Clients(served.router_port)
        assert set(clients.wait_for(20)) == {first, second}
        assert clients.failures == []
        _kill_server(served.processes(), first)
        served.wait_for("requests go on through replica 1")
        clients.wait_for(20)  # those that were on their way
        failed = len(clients.failures)
        assert set(clients.wait_for(40)) == {second}
        clients.stop()
        assert len(clients.failures) == failed <= 2 * CLIENTS
        assert "TOP021" in served.printed
        processes, ports = served.processes(), [served.router_port, *served.ports()]
        assert served.end() == 130
        assert nothing_left(processes, ports)


@pytest.mark.thorough
def test_prefill_and_decode_servers_hear_of_each_other_and_the_key_is_nowhere(tmp_path: Path, python: Path) -> None:
    with running(tmp_path, python, *PD, "api_key=${oc.env:MY_KEY}", MY_KEY=KEY) as served:
        served.wait_for(READY)
        allowed = {"Authorization": f"Bearer {KEY}"}
        decode = served.ports("decode")[0]
        for _ in range(4):
            assert streamed(served.router_port, **allowed)[0] == str(decode)
        body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello!"}]}
        assert ask(served.router_port, "POST", "/v1/chat/completions", body)[0] == 401
        sent = _seen(decode, allowed)
        prefilled = [(server, body) for server in served.ports("prefill") for body in _seen(server, allowed)]
        assert sorted(body["bootstrap_room"] for body in sent) == sorted(
            body["bootstrap_room"] for _, body in prefilled
        )
        assert len({body["bootstrap_room"] for body in sent}) == 4
        bootstrap = {
            server["plan"]["values"]["port"]: server["plan"]["values"]["disaggregation_bootstrap_port"]
            for server in served.topology()["servers"]
            if server["role"] == "prefill"
        }
        assert len(set(bootstrap.values())) == 2
        limits = [server["plan"]["intent"].get("max_running_requests") for server in served.topology()["servers"]]
        assert limits == [4, 4, None]
        for server, body in prefilled:
            assert (body["bootstrap_host"], body["bootstrap_port"]) == ("127.0.0.1", bootstrap[server])
        processes = served.processes()
        assert not any(KEY in word for process in processes for word in process.cmdline())
        assert served.end() == 130
        assert nothing_left(processes, [served.router_port, *served.ports()])
    written = [file for file in tmp_path.rglob("*") if file.is_file() and KEY in file.read_text(errors="replace")]
    assert written == []


@pytest.mark.corpus
@pytest.mark.parametrize("gone", ["router", "replica 0"])
def test_with_on_worker_exit_stop_the_end_of_one_is_the_end_of_all(tmp_path: Path, python: Path, gone: str) -> None:
    with running(tmp_path, python, *TWO, "topology.on_worker_exit=stop") as served:
        served.wait_for(READY)
        processes, ports = served.processes(), [served.router_port, *served.ports()]
        if gone == "router":
            _kill_router(processes)
        else:
            _kill_server(processes, str(ports[1]))
        assert served.program.wait(DEADLINE_S) == 4
        assert f"{gone} ended: killed by SIGKILL" in served.printed
        assert nothing_left(processes, ports)


def test_nothing_serves_before_every_server_is_healthy_and_one_that_fails_ends_all(
    tmp_path: Path, python: Path
) -> None:
    with running(tmp_path, python, "topology=replicas", "replicas=3", FAKE_CRASH=str(tmp_path / "one")) as served:
        assert served.program.wait(DEADLINE_S) == 4
        assert ": the server failed to start: exit code 7" in served.printed
        assert READY not in served.printed
        assert not (served.folder / "router.log").exists()
        assert nothing_left([], [served.router_port, *served.ports()])


def test_ctrl_c_while_servers_start_stops_them_all(tmp_path: Path, python: Path) -> None:
    with running(tmp_path, python, *TWO, FAKE_HANG="1") as served:
        served.wait_for("[replica 0] Load weight begin")
        served.wait_for("[replica 1] Load weight begin")
        processes, ports = served.processes(), served.ports()
        assert len(processes) == 6  # a guard of two processes and a server each, and no router yet
        assert served.end() == 130
        assert READY not in served.printed
        assert nothing_left(processes, ports)


@pytest.mark.thorough
def test_killed_without_a_word_it_leaves_nothing(tmp_path: Path, python: Path) -> None:
    with running(tmp_path, python, *PD) as served:
        served.wait_for(READY)
        processes, ports = served.processes(), [served.router_port, *served.ports()]
        assert served.end(signal.SIGKILL) == -signal.SIGKILL
        assert nothing_left(processes, ports)


def test_without_the_router_it_says_what_to_install_and_starts_nothing(tmp_path: Path, python: Path) -> None:
    with running(tmp_path, python, *TWO, f"topology.router.python={python}") as served:
        assert served.program.wait(DEADLINE_S) == 3
        assert "TOP015" in served.printed
        assert f"{python} -m pip install sglang-router==0.1.9" in " ".join(served.printed.split())
        assert not served.folder.exists()


def test_over_nodes_nothing_is_started_on_this_machine(tmp_path: Path, python: Path) -> None:
    with running(tmp_path, python, *PD, "topology.decode.nodes=1") as served:
        assert served.program.wait(DEADLINE_S) == 2
        assert "TOP003" in served.printed
        assert "launch=slurm" in served.printed
        assert not served.folder.exists()


def _kill_server(processes: list[psutil.Process], port: str) -> None:
    """Kills the server that was given a port, past its guard."""
    servers = [process for process in processes if port in process.cmdline() and "guard.py" not in process.cmdline()[3]]
    assert servers
    for server in servers:
        server.kill()


def _kill_router(processes: list[psutil.Process]) -> None:
    """Kills the router, whatever it calls itself by now."""
    guards = [process for process in processes if "router" in process.cmdline()[4:]]
    routers = [child for guard in guards for child in guard.children() if child not in guards]
    assert routers
    for router in routers:
        router.kill()


def _seen(port: int, headers: dict[str, str]) -> list[dict[str, object]]:
    import json

    return [entry["body"] for entry in json.loads(ask(port, "GET", "/seen", **headers)[1])]
