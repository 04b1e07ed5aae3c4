"""What runs inside a job and beside it: addresses, orders, secrets, logs, and the small programs of the nodes."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.planning.engines.base import EngineRequest
from sglang_hydra.run.launch.child_rank import read_orders
from sglang_hydra.run.launch.child_srun import whole_lines
from sglang_hydra.run.launch.log import LogTail
from sglang_hydra.run.launch.slurm import inside
from sglang_hydra.run.launch.slurm.inside import (
    Node,
    ServerSpec,
    follower_ports,
    head_on,
    orders_of,
    prepared,
    rank_commands,
    srun_command,
)
from sglang_hydra.run.launch.slurm.record import (
    ENDED,
    READY,
    Account,
    Record,
    Secrets,
    drop_secrets,
    leave_secrets,
    read_account,
    secrets_of,
    take_secrets,
)
from sglang_hydra.run.launch.slurm.serve import cancelled_with_us, outcome_of
from sglang_hydra.run.launch.slurm.states import JobState
from sglang_hydra.run.launch.slurm.submit import Job
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from tests.commands import must_follow
from tests.run.launch.processes import wait_until
from tests.run.slurm import cluster, fake_slurm_install
from tests.run.slurm.running import ROOT

ONE_MACHINE = [Node("node1", "127.0.0.1", "here"), Node("node2", "127.0.0.1", "here")]
TWO_MACHINES = [Node("node1", "10.0.0.1", "alpha"), Node("node2", "10.0.0.2", "beta")]


def spec_of(folder: Path, **changes: Any) -> ServerSpec:
    request = EngineRequest(
        {"model_path": "org/name", "tp_size": 16}, "/env/bin/python", "127.0.0.1", 30000, {"A": "b"}
    )
    return ServerSpec(**{"engine": "sglang", "version": "0.5.2", "request": request, "folder": folder, **changes})


def test_each_rank_gets_its_number_the_head_and_a_port(tmp_path: Path) -> None:
    commands = rank_commands(spec_of(tmp_path, nnodes=2), [30000, 30007], "10.0.0.1:5000")
    assert [command[0] for command in commands] == ["/env/bin/python"] * 2
    told = [command[2:] for command in commands]
    first = "--model-path org/name --port 30000 --tp-size 16 --dist-init-addr 10.0.0.1:5000 --nnodes 2"
    assert " ".join(told[0]) == first
    assert told[1][-2:] == ["--node-rank", "1"]
    assert told[1][2:4] == ["--port", "30007"]


def test_an_address_that_the_user_gave_is_used(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, nnodes=2)
    given = EngineRequest({**spec.request.intent, "dist_init_addr": "head:5000"}, None, "127.0.0.1", 30000)
    commands = rank_commands(spec_of(tmp_path, nnodes=2, request=given), [30000, 30000], "10.0.0.1:6000")
    assert all("head:5000" in command for command in commands)


def test_in_a_container_the_interpreter_is_the_images(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, python="python3", container=("apptainer", "exec", "i.sif"), srun=("--mpi=pmix",))
    commands = rank_commands(spec, [30000], None)
    assert commands[0][0] == "python3"
    shown = list(srun_command(spec, tmp_path / "ranks.json", Secrets(None, {})).shown)
    assert shown[-5:-1] == ["apptainer", "exec", "i.sif", "python3"]
    assert "--mpi=pmix" in shown
    assert "--label" not in shown
    assert "PATH" not in orders_of(spec, commands)["env"]  # type: ignore[operator]


def test_no_command_line_has_a_secret(tmp_path: Path) -> None:
    command = srun_command(
        spec_of(tmp_path, nnodes=2), tmp_path / "ranks.json", Secrets("k-e-y", {"HF_TOKEN": "t-o-k"})
    )
    assert "k-e-y" not in " ".join([*command.argv, *command.shown])
    assert "t-o-k" not in " ".join([*command.argv, *command.shown])
    assert command.secret == "k-e-y"
    assert command.env == {"HF_TOKEN": "t-o-k"}
    assert "--label" in command.argv


# The nodes, this machine's address on the way to the other one and on its way out, and the head's; None: refused.
HEADS = [
    (TWO_MACHINES, "10.0.0.1", "192.168.0.1", "10.0.0.1"),
    (TWO_MACHINES, "127.0.1.1", "192.168.0.1", "192.168.0.1"),
    (TWO_MACHINES, "127.0.0.1", "127.0.0.1", None),
    (ONE_MACHINE, "127.0.0.1", "127.0.0.1", "127.0.0.1"),
    (TWO_MACHINES, "fd00::1", "::1", "[fd00::1]"),
    (TWO_MACHINES, "::1", "fd00::2", "[fd00::2]"),
]


@pytest.mark.parametrize(("nodes", "near", "out", "head"), HEADS)
def test_the_head_is_where_the_others_reach_it(
    nodes: list[Node], near: str, out: str, head: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inside, "own_address", lambda toward=None: near if toward else out)
    if head is None:
        with pytest.raises(MachineError, match=r"SLM006: node node1 has no address that node2 \(10\.0\.0\.2\)"):
            head_on(nodes, 1, 30000)
    else:
        assert head_on(nodes, 6, 30000).address.rpartition(":")[0] == head


def test_ranks_on_one_machine_do_not_share_a_port() -> None:
    nodes = [*ONE_MACHINE, Node("node3", "127.0.0.1", "here")]
    assert len({30000, *follower_ports(nodes, 30000)}) == 3
    assert follower_ports(TWO_MACHINES, 30000) == [30000]


def test_outside_of_a_job_there_are_no_nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    with pytest.raises(MachineError, match="SLM005: this is not a Slurm job"):
        prepared(spec_of(tmp_path), Record(tmp_path, Account("1")))


def test_a_job_with_too_few_nodes_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_slurm_install.install(tmp_path, monkeypatch)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node1")
    with pytest.raises(MachineError, match="SLM005: 2 nodes are needed, and this job has 1"):
        prepared(spec_of(tmp_path, nnodes=2), Record(tmp_path, Account("1")))


def test_secrets_are_for_their_owner_once(tmp_path: Path) -> None:
    planned, inherited = (
        {"HF_TOKEN": "planned", "PLAIN": "x"},
        {"HF_TOKEN": "old", "AWS_SECRET_ACCESS_KEY": "s", "B": "c"},
    )
    secrets = secrets_of("k\ney", planned, inherited)
    assert secrets == Secrets("k\ney", {"HF_TOKEN": "planned", "AWS_SECRET_ACCESS_KEY": "s"})
    assert "planned" not in repr(secrets)
    before = os.umask(0)
    try:
        path = leave_secrets(tmp_path, secrets)
    finally:
        os.umask(before)
    assert path is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(MachineError, match="SLM009"):
        leave_secrets(tmp_path, secrets)
    assert take_secrets(path) == secrets
    assert not path.exists()
    with pytest.raises(MachineError, match="SLM010"):
        take_secrets(path)
    drop_secrets(path)
    assert leave_secrets(tmp_path, Secrets(None, {})) is None
    assert take_secrets(None) == Secrets(None, {})


def test_an_account_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_account(tmp_path) is None
    record = Record(tmp_path, Account("7"))
    finding = Finding("error", "ENG008", "it failed", ("engine",), "look", stage="check", upstream=(1, 2))
    record.update(phase=ENDED, nodes=["node1"], node="node1", port=30000, exit_code=4, findings=(finding,), notes=["n"])
    read = read_account(tmp_path)
    assert read is not None
    assert (read.job, read.phase, read.exit_code, list(read.findings)) == ("7", ENDED, 4, [finding])
    must_follow(json.loads((tmp_path / "job.json").read_text()), "slurm_job")
    (tmp_path / "job.json").write_text('{"schema": ')
    assert read_account(tmp_path) is None


def test_no_update_of_several_threads_is_lost_and_no_reader_sees_an_older_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_file = Path.replace

    def slow(self: Path, target: Path) -> Path:
        time.sleep(0.001 * (hash(self.name) % 5))  # a disk on which the younger write may be the faster one
        return replace_file(self, target)

    monkeypatch.setattr(Path, "replace", slow)
    record = Record(tmp_path, Account("7"))
    steps = [{"phase": READY}, *({"milestone": f"step {number}"} for number in range(20)), {"notes": ["full disk"]}]
    threads = [threading.Thread(target=record.update, kwargs=changes) for changes in steps]
    seen = []
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen.append(read_account(tmp_path))
    read = read_account(tmp_path)
    assert read is not None
    assert (read.phase, list(read.notes), read.sequence) == (READY, ["full disk"], 1 + len(steps))
    numbers = [account.sequence for account in seen if account is not None]
    assert numbers == sorted(numbers)
    phases = [account.phase for account in seen if account is not None]
    assert READY not in phases or set(phases[phases.index(READY) :]) == {READY}


def test_an_update_in_a_signal_handler_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record, replace_file = Record(tmp_path, Account("7")), Path.replace
    inside = iter([True])

    def interrupted(self: Path, target: Path) -> Path:
        if next(inside, False):
            record.update(phase=ENDED)  # what a handler does between two lines of the update that it interrupts
        return replace_file(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    record.update(milestone="loading")
    read = read_account(tmp_path)
    assert read is not None
    assert (read.phase, read.milestone) == (ENDED, "loading")


def test_a_job_that_is_put_back_into_the_queue_counts_on(tmp_path: Path) -> None:
    first = Record(tmp_path, Account("7"))
    first.update(phase=READY)
    assert Record(tmp_path, Account("7")).account.sequence > first.account.sequence


def test_a_log_is_followed_across_its_rotation(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    tail = LogTail(path)
    assert list(tail.lines()) == []
    path.write_bytes(b"one\ntwo\nthr")
    assert list(tail.lines()) == ["one", "two"]
    with path.open("ab") as file:
        file.write(b"ee\nlast of it\n")
    path.replace(tmp_path / "server.log.1")
    path.write_bytes(b"four\n\xff\xfe five")
    assert list(tail.lines()) == ["three", "last of it", "four"]
    assert list(tail.rest()) == ["�� five"]
    assert list(tail.rest()) == []


def test_lines_that_srun_cut_are_whole_again_and_consequences_left_out() -> None:
    long = b"x" * 2500
    said = [b"0: short\n"]
    for start in range(0, len(long), 1024):
        said += [b"1: " + long[start : start + 1024] + b"\n", b"0: between\n"]
    said += [b"srun: error: node2: task 1: Exited with exit code 7\n", b"0: a last word\n"]
    said += [
        b"srun: error: node1: task 0: Exited with exit code 143\n",
        b"0: slurmstepd-node1: error: *** STEP 7.0 ON n\n",
    ]
    said += [b"srun: something else\n", b"1: " + b"y" * 1024 + b"\n"]
    target = io.BytesIO()
    codes: list[int] = []
    whole_lines(io.BytesIO(b"".join(said)), target, codes)
    lines = target.getvalue().split(b"\n")
    assert lines == [
        *(b"0: short", b"0: between", b"0: between", b"1: " + long, b"0: between"),
        *(b"srun: error: node2: task 1: Exited with exit code 7", b"0: a last word", b"srun: something else"),
        *(b"1: " + b"y" * 1024, b""),
    ]
    assert codes == [7]


def test_a_rank_that_was_killed_has_the_exit_code_of_that() -> None:
    codes: list[int] = []
    whole_lines(io.BytesIO(b"srun: error: node2: tasks 1-2: Killed\n"), io.BytesIO(), codes)
    assert codes == [137]


def test_orders_are_read_to_their_end_and_no_further() -> None:
    reading, writing = os.pipe()
    content = json.dumps({"commands": [], "text": "é" * 70000}).encode()[:60000]
    orders = json.dumps({"key": "x" * 30000}).encode()
    os.write(writing, b"%d\n%s%s" % (len(orders), orders, b"rest"))
    assert read_orders(reading) == {"key": "x" * 30000}
    assert os.read(reading, 10) == b"rest"
    os.write(writing, b"100\n" + content[:50])
    os.close(writing)
    with pytest.raises(ValueError, match="cut off"):
        read_orders(reading)
    with pytest.raises(ValueError, match="no orders came"):
        read_orders(reading)
    os.close(reading)


@pytest.mark.parametrize("how", ["released", "gone"])
def test_a_job_is_cancelled_when_nobody_is_left_to_watch_it(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = fake_slurm_install.install(tmp_path, monkeypatch)
    (state / "job1").mkdir(parents=True)
    (state / "job1" / "state").write_text("RUNNING")
    left = tmp_path / "secrets"
    left.write_text("x")
    if how == "released":
        with cancelled_with_us("1", left):
            pass
    else:
        program = (
            "import os, sys\nfrom pathlib import Path\n"
            "from sglang_hydra.run.launch.slurm.serve import cancelled_with_us\n"
            "with cancelled_with_us('1', Path(sys.argv[1])):\n    os.kill(os.getpid(), 9)\n"
        )
        subprocess.run([sys.executable, "-c", program, str(left)], cwd=ROOT, timeout=250)
    cancelled = wait_until(lambda: (state / "job1" / "state").read_text() == "CANCELLED", 30 if how == "gone" else 0.2)
    assert cancelled is (how == "gone")
    assert left.exists() is (how == "released")


def test_a_block_that_fails_cancels_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = fake_slurm_install.install(tmp_path, monkeypatch)
    (state / "job1").mkdir(parents=True)
    (state / "job1" / "state").write_text("RUNNING")
    with pytest.raises(RuntimeError, match="a bug"), cancelled_with_us("1"):
        raise RuntimeError("a bug")
    assert (state / "job1" / "state").read_text() == "CANCELLED"


FAILED = Finding("error", "ENG008", "it failed", ("engine",))

# What the job said of its end (exit code, findings; None: nothing), Slurm's state, and what comes of it.
ENDS = [
    ((4, [FAILED]), "FAILED", 4, ["ENG008"]),
    ((3, [FAILED]), "FAILED", 3, ["ENG008"]),
    ((0, []), "COMPLETED", 0, []),
    ((130, []), "TIMEOUT", 4, ["SLM011"]),
    ((4, [FAILED]), "NODE_FAIL", 4, ["SLM013"]),
    ((130, []), "FAILED", 4, ["SLM015"]),
    ((1, []), "FAILED", 4, ["SLM016"]),
    (None, "FAILED", 4, ["SLM016"]),
    (None, "COMPLETED", 4, ["SLM016"]),
    (None, "OUT_OF_MEMORY", 4, ["SLM014"]),
    (None, "CANCELLED", 4, ["SLM015"]),
    (None, None, 4, ["SLM016"]),
]


@pytest.mark.parametrize(("said", "state", "code", "ids"), ENDS)
def test_the_end_of_a_job_is_told_by_it_or_by_slurm(
    said: tuple[int, list[Finding]] | None, state: str | None, code: int, ids: list[str], tmp_path: Path
) -> None:
    account = Account("7", phase=ENDED, exit_code=said[0], findings=said[1]) if said else Account("7")
    ended = outcome_of(Job("7", tmp_path), account, JobState(state) if state else None, tmp_path)
    assert (ended[0], [finding.id for finding in ended[1]]) == (code, ids)


def test_what_its_log_says_of_an_unexplained_end_is_told_too(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("0: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    code, findings = outcome_of(Job("7", tmp_path), None, JobState("FAILED"), tmp_path)
    assert code == 4
    assert findings[0].id == "SLM016"
    assert findings[1].id.startswith("DIA")


def test_the_real_slurm_of_the_long_tests_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None if name == "slurmd" else f"/usr/bin/{name}")
    assert cluster.why_not() is not None
    assert "slurmd is not here: apt-get install slurm-wlm munge, as root" in str(cluster.why_not())
