"""A real Slurm on this machine, for tests: nodes that are one machine, each with GPUs that are character devices.

    python -m tests.run.slurm.cluster up FOLDER [NODES] [GPUS]      # then: export SLURM_CONF=FOLDER/slurm.conf
    python -m tests.run.slurm.cluster down FOLDER

Needs root (the GPUs are device files) and `apt-get install slurm-wlm munge`. Everything is in the folder and listens on
the loopback address; nothing of a Slurm that runs here otherwise is touched. Tried with Slurm 22.05.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "sinfo")
INSTALL = "apt-get install slurm-wlm munge, as root"
_UP_S, _DOWN_S = 90.0, 30.0
_NULL_DEVICE = (1, 3)

_CONF = """\
ClusterName=sglang-hydra-tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=50000
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=256
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=60
KillWait=3
MinJobAge=300
MailProg=/bin/true
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=gpu Nodes=node[1-{nodes}] Default=YES MaxTime=INFINITE State=UP
PartitionName=urgent Nodes=node[1-{nodes}] MaxTime=INFINITE State=UP PriorityTier=10
"""
_NODE = (
    "NodeName=node{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=16 Boards=1 SocketsPerBoard=1 "
    "CoresPerSocket=16 ThreadsPerCore=1 RealMemory=20000 Gres=gpu:h200:{gpus} State=UNKNOWN\n"
)
_GPUS = "NodeName=node[1-{nodes}] Name=gpu Type=h200 Flags=nvidia_gpu_env File={folder}/dev/gpu[0-{last}]\n"


class Cluster:
    """One Slurm. ``start`` raises RuntimeError, with what to install, where it cannot run here."""

    def __init__(self, folder: Path, nodes: int = 4, gpus: int = 8) -> None:
        self.folder, self.nodes, self.gpus = folder.resolve(), nodes, gpus

    @property
    def environment(self) -> dict[str, str]:
        """What tells Slurm's commands about it."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self) -> None:
        problem = why_not()
        if problem is not None:
            raise RuntimeError(problem)
        self._write()
        run, log = self.folder / "run", self.folder / "log"
        files = {"key-file": self.folder / "munge.key", "socket": run / "munge.sock", "pid-file": run / "munged.pid"}
        files |= {"log-file": log / "munged.log", "seed-file": run / "munged.seed"}
        # --force: a folder of a test may be anyone's.
        self._run("munged", "--force", *(f"--{name}={path}" for name, path in files.items()))
        self._run("slurmctld", "-c")
        for number in range(1, self.nodes + 1):
            self._run("slurmd", "-c", "-N", f"node{number}")
        deadline = time.monotonic() + _UP_S
        while self.idle() < self.nodes:
            if time.monotonic() > deadline:
                raise RuntimeError(f"Slurm did not come up in {_UP_S:.0f} s; its logs are in {log}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Cancels what still runs and ends its daemons, the nodes first."""
        with contextlib.suppress(subprocess.SubprocessError):
            self.cancel_all()
        pids = [*self._pids("slurmd.*.pid"), *self._pids("slurmctld.pid"), *self._pids("munged.pid")]
        for pid in pids:
            _signal(pid, signal.SIGTERM)
        deadline = time.monotonic() + _DOWN_S
        while left := [pid for pid in pids if _alive(pid)]:
            if time.monotonic() > deadline:
                for pid in left:
                    _signal(pid, signal.SIGKILL)
            time.sleep(0.1)

    def cancel_all(self) -> None:
        """Cancels every job and waits until their nodes are free."""
        deadline = time.monotonic() + _DOWN_S
        while (jobs := self.ask("squeue", "--noheader", "-o", "%i").split()) and time.monotonic() < deadline:
            self.ask("scancel", *jobs)
            time.sleep(0.3)

    def wake(self, node: str) -> None:
        """Brings a node back that a test has taken down."""
        if not self.ask("sinfo", "--noheader", "-n", node, "-o", "%T").startswith(("idle", "alloc", "mix")):
            self.ask("scontrol", "update", f"nodename={node}", "state=resume")
        deadline = time.monotonic() + _UP_S
        while not self.ask("sinfo", "--noheader", "-n", node, "-o", "%T").startswith(("idle", "alloc", "mix")):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{node} did not come back")
            time.sleep(0.2)

    def ask(self, *words: str) -> str:
        """What one of Slurm's commands prints."""
        run = subprocess.run(
            words, env={**os.environ, **self.environment}, capture_output=True, text=True, timeout=60, check=True
        )
        return run.stdout

    def idle(self) -> int:
        """How many nodes run nothing."""
        try:
            listed = self.ask("sinfo", "--noheader", "--Node", "-o", "%N %T").splitlines()
        except subprocess.CalledProcessError:
            return 0
        # A node is listed once for each of its partitions.
        return len({line.split()[0] for line in listed if line.split()[1] == "idle"})

    def _write(self) -> None:
        for name in ("state", "log", "run", "spool", "dev"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        # Slurm and munge refuse folders that others may not enter, and those that others may write to.
        for path in (self.folder, self.folder / "run"):
            path.chmod(0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for number in range(self.gpus):
            device = self.folder / "dev" / f"gpu{number}"
            device.unlink(missing_ok=True)
            os.mknod(device, 0o20666, os.makedev(*_NULL_DEVICE))
        host, port = socket.gethostname().partition(".")[0], _free_ports(self.nodes + 1)
        values = {"host": host, "folder": self.folder, "nodes": self.nodes, "gpus": self.gpus}
        lines = [
            _NODE.format(number=number, port=port + number, **{key: values[key] for key in ("host", "gpus")})
            for number in range(1, self.nodes + 1)
        ]
        conf = _CONF.format(port=port, **values)
        head, partition, rest = conf.partition("PartitionName")
        (self.folder / "slurm.conf").write_text(head + "".join(lines) + partition + rest)
        (self.folder / "gres.conf").write_text(_GPUS.format(last=self.gpus - 1, **values))
        for number in range(1, self.nodes + 1):
            (self.folder / "spool" / f"node{number}").mkdir(exist_ok=True)

    def _run(self, *words: str) -> None:
        program, *rest = words
        path = shutil.which(program, path=_search_path())
        run = subprocess.run(
            [str(path), *rest], env={**os.environ, **self.environment}, capture_output=True, text=True, timeout=60
        )
        if run.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: {run.stderr or run.stdout}")

    def _pids(self, pattern: str) -> list[int]:
        texts = [file.read_text().strip() for file in sorted((self.folder / "run").glob(pattern))]
        return [int(text) for text in texts if text]


def why_not() -> str | None:
    """Why no Slurm can be started here, and what to type; None where it can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_search_path()) is None]
    if missing:
        return f"the tests of launch=slurm need a real Slurm, and {', '.join(missing)} is not here: {INSTALL}"
    if os.geteuid() != 0:
        return "the tests of launch=slurm need root: their GPUs are device files"
    return None


def _search_path() -> str:
    return f"{os.environ.get('PATH', os.defpath)}{os.pathsep}/usr/sbin{os.pathsep}/usr/local/sbin"


def _free_ports(count: int) -> int:
    """The first of ``count`` ports in a row that are free on the loopback address."""
    for first in range(17000, 19000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise RuntimeError("no ports are free for Slurm")


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return status != "Z"


def main(verb: str, folder: str, nodes: str = "4", gpus: str = "8") -> None:
    cluster = Cluster(Path(folder), int(nodes), int(gpus))
    if verb == "down":
        cluster.stop()
        return
    cluster.start()
    print(cluster.ask("sinfo", "--Node", "-o", "%N %T %c %m %G"), end="")
    print(f"export SLURM_CONF={cluster.folder}/slurm.conf")


if __name__ == "__main__":
    main(*sys.argv[1:])
