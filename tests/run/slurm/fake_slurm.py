"""A Slurm that is none, for quick tests: sbatch, srun, scontrol, scancel and sinfo of one machine, by name.

FAKE_SLURM names the folder of its state. What sbatch was given (script, environment) stays there for the test to see.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

STATE = Path(os.environ["FAKE_SLURM"])


def main(program: str, words: list[str]) -> int:
    return {"sbatch": sbatch, "srun": srun, "scontrol": scontrol, "scancel": scancel, "sinfo": sinfo}[program](words)


def sinfo(words: list[str]) -> int:
    print("gpu\nlong")
    return 0


def sbatch(words: list[str]) -> int:
    script = Path(words[-1]).read_text()
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", script, re.MULTILINE))
    if options.get("partition") == "none":
        print("sbatch: error: invalid partition specified: none", file=sys.stderr)
        return 1
    job = str(1 + len(list(STATE.glob("job*"))))
    folder = STATE / f"job{job}"
    folder.mkdir(parents=True)
    (folder / "script").write_text(script)
    (folder / "environment").write_text(json.dumps(dict(os.environ)))
    (folder / "nodes").write_text(",".join(f"node{number + 1}" for number in range(int(options["nodes"]))))
    tell(job, "PENDING" if os.environ.get("FAKE_BUSY") else "RUNNING")
    if not os.environ.get("FAKE_BUSY"):
        subprocess.Popen(
            [sys.executable, __file__, "watch", job, options["output"], options["error"]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    print(f"Submitted batch job {job}")
    return 0


def watch(job: str, output: str, error: str) -> int:
    """Slurm's daemons: the batch script, and what its end means."""
    folder = STATE / f"job{job}"
    environment = {**os.environ, "SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": (folder / "nodes").read_text()}
    out, err = (shlex.split(name)[0].replace("%j", job) for name in (output, error))
    with open(out, "ab") as stdout, open(err, "ab") as stderr:
        batch = subprocess.Popen(
            ["bash", str(folder / "script")], env=environment, stdout=stdout, stderr=stderr, start_new_session=True
        )
        written(folder / "batch", str(batch.pid))
        code = batch.wait()
    if state_of(job) == "RUNNING":
        tell(job, "COMPLETED" if code == 0 else "FAILED")
    return 0


def scontrol(words: list[str]) -> int:
    kind, name = words[-2:]
    if kind == "hostnames":
        print("\n".join(name.split(",")))
    elif kind == "node":
        for node in name.split(","):
            print(f"NodeName={node} Arch=x86_64 NodeAddr=127.0.0.1 NodeHostName=here Port=1")
    elif not (STATE / f"job{name}").is_dir():
        print("slurm_load_jobs error: Invalid job id specified", file=sys.stderr)
        return 1
    else:
        reason = "Resources" if state_of(name) == "PENDING" else "None"
        print(
            f"JobId={name} JobName=x Account=(null) JobState={state_of(name)} Reason={reason} Dependency=(null) "
            f"ExitCode=0:0 EndTime=Unknown NodeList={(STATE / f'job{name}' / 'nodes').read_text()} BatchHost=node1"
        )
    return 0


def scancel(words: list[str]) -> int:
    job = words[-1]
    batch = STATE / f"job{job}" / "batch"
    if not batch.parent.is_dir():
        print("scancel: error: Kill job error on job id: Invalid job id specified", file=sys.stderr)
        return 1
    if "--batch" in words:
        os.kill(int(batch.read_text()), signal.SIGTERM)
        return 0
    tell(job, "CANCELLED")
    if batch.exists():
        os.killpg(int(batch.read_text()), signal.SIGTERM)
    return 0


def srun(words: list[str]) -> int:
    """All tasks here, their standard input the same, their lines labelled if that was asked for."""
    options = [word for word in words if word.startswith("--")]
    first = next(index for index, word in enumerate(words) if not word.startswith("--"))
    count = int(next(word for word in options if word.startswith("--ntasks=")).partition("=")[2])
    nodes = (STATE / f"job{os.environ['SLURM_JOB_ID']}" / "nodes").read_text().split(",")
    tasks = [
        subprocess.Popen(
            words[first:],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "SLURM_PROCID": str(number), "SLURMD_NODENAME": nodes[number]},
        )
        for number in range(count)
    ]
    copying = [
        threading.Thread(target=copy, args=(task.stdout, f"{number}: ".encode() if "--label" in options else b""))
        for number, task in enumerate(tasks)
    ]
    for thread in copying:
        thread.start()
    threading.Thread(target=broadcast, args=(tasks,), daemon=True).start()
    told: set[int] = set()
    while len(told) < count:
        for number, task in enumerate(tasks):
            try:
                code = task.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            if code and number not in told:
                print(f"srun: error: {nodes[number]}: task {number}: Exited with exit code {code}", file=sys.stderr)
                for other in tasks:
                    other.terminate()
            told.add(number)
    for thread in copying:
        thread.join()
    return max(task.returncode for task in tasks)


def broadcast(tasks: list[subprocess.Popen[bytes]]) -> None:
    while chunk := os.read(0, 4096):
        for task in tasks:
            if task.stdin is not None:
                task.stdin.write(chunk)
                task.stdin.flush()
    for task in tasks:
        if task.stdin is not None:
            task.stdin.close()


def copy(source: IO[bytes], label: bytes) -> None:
    for line in source:
        os.write(1, label + line)


def tell(job: str, state: str) -> None:
    written(STATE / f"job{job}" / "state", state)


def written(file: Path, content: str) -> None:
    """Whole for who reads it meanwhile."""
    draft = file.with_name(f".{file.name}")
    draft.write_text(content)
    draft.replace(file)


def state_of(job: str) -> str:
    return (STATE / f"job{job}" / "state").read_text()


if __name__ == "__main__":
    is_watcher = sys.argv[1:2] == ["watch"]
    sys.exit(watch(*sys.argv[2:]) if is_watcher else main(os.path.basename(sys.argv[0]), sys.argv[1:]))
