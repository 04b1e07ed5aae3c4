"""Runs ``launch=slurm`` at the terminal: completes the settings, submits the job, and follows it until its end."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from sglang_hydra.arguments.ports import host_and_port
from sglang_hydra.arguments.secrets import SECRET_FIELDS, is_secret
from sglang_hydra.facts.tiny import make_if_tiny
from sglang_hydra.planning.comparing.actual import compare
from sglang_hydra.planning.engines.base import Machine
from sglang_hydra.planning.engines.planned import choose, plan_engine
from sglang_hydra.planning.passing.slurm_options import container_command, sbatch_settings, srun_settings
from sglang_hydra.planning.plan import Plan
from sglang_hydra.run.launch.display import Display, display_for
from sglang_hydra.run.launch.failure import diagnosis_of
from sglang_hydra.run.launch.hydra_run import in_hydra, run_folder, write_in_run_folder
from sglang_hydra.run.launch.launch_request import LaunchRequest
from sglang_hydra.run.launch.listening import Owner
from sglang_hydra.run.launch.log import LogTail, log_files
from sglang_hydra.run.launch.server_info import curl_line, lines_of, not_compared, write_comparison
from sglang_hydra.run.launch.signals import stopping_on_signals
from sglang_hydra.run.launch.slurm.inside import INFO_NAME, LOG_NAME, PORT_OWNER, PROGRAMS, ServerSpec, serve_in_job
from sglang_hydra.run.launch.slurm.record import (
    ENDED,
    FILE_NAME,
    READY,
    Account,
    drop_secrets,
    leave_secrets,
    read_account,
    secrets_of,
)
from sglang_hydra.run.launch.slurm.states import MESSAGES, JobState, cancel, ended_finding, state_of
from sglang_hydra.run.launch.slurm.submit import Job, require_slurm, submit
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.show.plan import plan_screen
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.errors import ConfigError, ServerError
from sglang_hydra.text.exit_codes import INTERRUPTED
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import VERBATIM, Line, text, write

JOB_FOLDER = "slurm"
"""The folder below the run folder with the job's script, its pickle and the output of its batch process."""

_EVERYWHERE = ("0.0.0.0", "::", "")
# For these states the server's own account of that moment only shows how it was killed.
_SLURM_ENDED_IT = ("BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")


def serve_slurm(asked: LaunchRequest, plan: Plan) -> int:
    """Shows the plan and the job, submits it, streams its log, and cancels it on a signal. Returns the exit code.

    Raises MachineError if this machine lacks Slurm, submitit or the engine, or if Slurm refuses the job; ConfigError
    for a secret in a setting that Slurm would record."""
    refuse_recorded_secrets(plan)
    if plan.nodes.launch.detach:
        message = "launch.detach is for servers on this machine; a job of launch=slurm lives as long as this command"
        hint = "leave it out and use tmux or screen, or sbatch the script of `export slurm`"
        raise ConfigError(Finding("error", "SLM008", message, ("launch.detach",), hint))
    write([*plan_screen(plan, everything=asked.everything), *job_lines(sbatch_settings(plan))])
    look_at_cluster(plan)
    return in_hydra(asked, lambda: _run(plan))


def look_at_cluster(plan: Plan) -> None:
    """Raises MachineError if this machine lacks Slurm, submitit or the engine. Makes the tiny model."""
    require_slurm()
    if plan.nodes.launch.slurm.container == "none":
        # Without memory: this machine's is not that of the nodes.
        choose(plan.engine.name, plan.engine.python, Machine(None), None)
    make_if_tiny(plan.values["model_path"])


def server_spec(plan: Plan, folder: Path, secrets: Path | None = None) -> ServerSpec:
    """Returns what a job needs to serve a plan; ``folder`` is the run folder, ``secrets`` the file with the secrets."""
    launch = plan.nodes.launch
    container = launch.slurm.container != "none"
    programs = [str(PROGRAMS)] if container else []
    planned = plan_engine(plan.nodes.engine, embedded_first=plan.engine.name == "transformers")
    public = {name: value for name, value in plan.environment.items() if not is_secret(name, value)}
    request = planned.request(plan.resolution, public, Machine(None))
    # The key is passed separately, and every node gets its own rank.
    intent = {name: value for name, value in request.intent.items() if name not in (*SECRET_FIELDS, "node_rank")}
    return ServerSpec(
        engine=planned.name,
        version=planned.version,
        request=replace(request, intent=intent),
        folder=folder,
        nnodes=int(plan.values["nnodes"]),
        head_ports=plan.layout.head_ports,
        head_port=launch.head_port,
        ready_timeout_s=launch.ready_timeout,
        stop_timeout_s=launch.stop_timeout,
        srun=tuple(srun_settings(plan, programs)),
        container=tuple(container_command(plan, programs)),
        python=(plan.engine.python or "python3") if container else None,
        secrets=secrets,
    )


def refuse_recorded_secrets(plan: Plan) -> None:
    """Raises ConfigError if a setting in the job's script contains the API key or a token."""
    hidden = [value for value in _hidden(plan) if value]
    settings = plan.nodes.launch.slurm
    for key in ("setup", "sbatch", "srun", "mounts"):
        if any(value in str(getattr(settings, key)) for value in hidden):
            message = f"launch.slurm.{key} holds a secret, and Slurm would keep and show it"
            hint = "api_key=${oc.env:NAME}, engine.env.HF_TOKEN=${oc.env:HF_TOKEN}: these are handed over unseen"
            raise ConfigError(Finding("error", "SLM007", message, (f"launch.slurm.{key}",), hint))


def job_lines(options: Mapping[str, str | bool]) -> list[Line]:
    """Shows the request to Slurm."""
    words = [f"--{name}" + ("" if value is True else f"={value}") for name, value in options.items()]
    return [[text("Slurm job", "bold")], [text(f"  sbatch {shlex.join(words)}", VERBATIM)], []]


def _run(plan: Plan) -> int:
    folder = run_folder()
    write_in_run_folder(folder / "plan.json", json.dumps(plan.to_json(), indent=2) + "\n")
    return run_job(
        plan,
        folder,
        sbatch_settings(plan),
        lambda secrets: partial(serve_in_job, server_spec(plan, folder, secrets)),
        lambda job, account: ready_lines(plan, job, account, folder),
    )


def run_job(
    plan: Plan,
    folder: Path,
    options: Mapping[str, str | bool],
    call: Callable[[Path | None], Callable[[], None]],
    ready: Callable[[Job, Account], list[Line]],
    logs: Mapping[str, Path] | None = None,
) -> int:
    """Submits ``call`` with the file of secrets, and follows the job until its end. Returns the exit code.

    ``ready`` makes the lines to show once the job serves. ``logs`` maps the name before each server's lines to its log.
    """
    logs = logs or {"": folder / LOG_NAME}
    _clear(folder, logs)
    secrets = leave_secrets(folder, secrets_of(plan.secrets.get("api_key"), plan.environment, os.environ))
    display = display_for()
    try:
        with stopping_on_signals(lambda: None, loud=False) as signals:
            setup, hidden = plan.nodes.launch.slurm.setup, _hidden(plan)
            job = submit(call(secrets), options=options, folder=folder / JOB_FOLDER, setup=setup, hidden=hidden)
            with cancelled_with_us(job.id, secrets):
                display.note(f"the job {job.id} was submitted; its files are in {folder}")
                follower = Follower(job, folder, display, float(plan.nodes.launch.stop_timeout), logs)
                follower.until_end(signals, lambda account: write(ready(job, account)))
    finally:
        drop_secrets(secrets)
    if signals:
        return INTERRUPTED
    code, findings = outcome_of(job, follower.account, follower.state, folder, list(logs.values()))
    with contextlib.suppress(OSError):
        write(finding_lines(findings), sys.stderr)
    return code


def _clear(folder: Path, logs: Mapping[str, Path]) -> None:
    """Removes the files of an earlier job from a run folder."""
    (folder / FILE_NAME).unlink(missing_ok=True)
    for log in logs.values():
        for file in (log.with_name(INFO_NAME), *log_files(log)):
            file.unlink(missing_ok=True)


def outcome_of(
    job: Job, account: Account | None, state: JobState | None, folder: Path, logs: Sequence[Path] = ()
) -> tuple[int, list[Finding]]:
    """Explains the end of a job that was not stopped here: the exit code and the findings."""
    by_slurm = state is not None and state.state in _SLURM_ENDED_IT
    if account is not None and account.phase == ENDED and not by_slurm:
        if account.findings or account.exit_code == 0:
            return int(account.exit_code or 0), list(account.findings)
        if account.exit_code == INTERRUPTED:
            # A signal to the batch process alone, for which Slurm has no state.
            state = JobState("CANCELLED")
    ended = state or JobState("FAILED")
    findings = [ended_finding(job.id, ended, str(folder / JOB_FOLDER))]
    if ended.state != "CANCELLED":
        diagnoses = (diagnosis_of(log, None) for log in (*(logs or [folder / LOG_NAME]), job.output[1]))
        findings += [found.finding for found in diagnoses if found is not None][:1]
    return ServerError.exit_code, findings


def ready_lines(plan: Plan, job: Job, account: Account, folder: Path) -> list[Line]:
    """Shows the server's comparison with the plan, its address, and how to reach it from here."""
    return [[], *comparison(plan, account, folder), *reached_lines(plan, job, account)]


def reached_lines(plan: Plan, job: Job, account: Account) -> list[Line]:
    """Shows the server's address, and how to reach it from here."""
    here = f"http://127.0.0.1:{account.port}"
    everywhere = account.host in _EVERYWHERE
    url = f"http://{host_and_port(str(account.address), account.port or 0)}" if everywhere else here
    where = "" if everywhere else f" on {account.node}"
    tunnel = f"  from here: ssh -N -L {account.port}:{account.host}:{account.port} {account.node}"
    return [
        [text(f"Ready after {account.elapsed_s:.1f} s at {url}{where}, job {job.id}", "bold green")],
        *([] if everywhere else [[text(tunnel)]]),
        [text(f"  {curl_line(plan, url, stream=False)}")],
        [text("  Ctrl-C stops it and releases its nodes", "dim")],
        [],
    ]


def comparison(plan: Plan, account: Account, folder: Path) -> list[Line]:
    """Compares the server's report in the job with the plan, and writes it to ``actual.json`` in ``folder``. Raises
    ServerError for a server that is not the planned one."""
    try:
        info = read_json((folder / INFO_NAME).read_text(encoding="utf-8"), "record")
    except FileNotFoundError:
        return []
    seen = info.pop(PORT_OWNER, None)
    owner = Owner(*seen) if seen else None
    for name, settled in (("port", account.port), ("dist_init_addr", account.dist_init_addr)):
        # A value that the plan leaves to the job is as planned if it equals the job's choice.
        if settled is not None and info.get(name) == settled:
            info[name] = plan.values[name]
    try:
        compared = compare(plan, info)
    except ValueError as failure:
        return lines_of(plan, not_compared(str(info.get("problem") or failure)), owner)
    write_comparison(folder, plan, compared)
    return lines_of(plan, compared, owner)


def _hidden(plan: Plan) -> list[str]:
    return [*plan.secrets.values(), *(value for name, value in plan.environment.items() if is_secret(name, value))]


_LOOK_S = 0.3
# Slurm's controller serves a whole cluster, so a running job asks rarely.
_ASK_FIRST_S, _ASK_LATER_S, _ASK_SOON = 1.0, 10.0, 60
# After a graceful stop request; after the cancel request (KillWait is 30 s by default, an epilog may run).
_CANCEL_EXTRA_S, _GIVE_UP_S = 20.0, 120.0


class Follower:
    """Follows one job until its end. ``stop_timeout_s`` is the seconds that its ranks may take to stop; ``logs`` maps
    the name before each log's lines to the log."""

    def __init__(
        self, job: Job, folder: Path, display: Display, stop_timeout_s: float, logs: Mapping[str, Path]
    ) -> None:
        self.job, self.folder, self.display, self._stop_timeout_s = job, folder, display, stop_timeout_s
        self.state: JobState | None = None
        self.account: Account | None = None
        self._noted: list[str] = []
        self._tails = {name: LogTail(log) for name, log in logs.items()}
        self._asked, self._asked_at = 0, 0.0
        self._stopping_since: float | None = None
        self._cancelled = False
        self._problem = ""

    def until_end(self, signals: list[int], on_ready: Callable[[Account], None]) -> None:
        """Shows the job's progress until its end. ``signals``, to which others append, stop the job: the first gently,
        the second by cancelling it."""
        started, ready = time.monotonic(), False
        while True:
            self._look()
            account = self.account
            if account is not None and account.phase == READY and not ready:
                ready = True
                self.display.close()
                with contextlib.suppress(OSError):
                    on_ready(account)
            if not ready and not signals:
                self.display.waiting(time.monotonic() - started, self._progress())
            if signals:
                self._stop(again=len(signals) > 1)
            if (self.state is not None and self.state.over) or self._given_up():
                break
            time.sleep(_LOOK_S)
        self.display.close()
        self._read_account()
        for name, tail in self._tails.items():
            self._show(tail.rest(), name)

    def _show(self, lines: Iterator[str], name: str) -> None:
        for line in lines:
            # srun reports stopped ranks as failed.
            if self._stopping_since is None or not line.startswith("srun: "):
                self.display.line("stdout", f"[{name}] {line}" if name else line)

    def _look(self) -> None:
        self._read_account()
        for name, tail in self._tails.items():
            self._show(tail.lines(), name)
        now = time.monotonic()
        has_ended = self.account is not None and self.account.phase == ENDED
        soon = self._asked < _ASK_SOON or self._stopping_since is not None or has_ended
        if now - self._asked_at >= (_ASK_FIRST_S if soon else _ASK_LATER_S):
            self._asked, self._asked_at = self._asked + 1, now
            self.state = state_of(self.job.id) or self.state

    def _read_account(self) -> None:
        found = read_account(self.folder)
        if found is not None and (self.account is None or found.sequence >= self.account.sequence):
            self.account = found
        for note in self.account.notes if self.account is not None else ():
            self._note_once(note)

    def _note_once(self, note: str) -> None:
        if note not in self._noted:
            self._noted.append(note)
            self.display.note(note)

    def _progress(self) -> str:
        if self.account is not None and self.account.milestone:
            return self.account.milestone
        if self.state is None or not self.state.waiting:
            return f"the job {self.job.id} is starting"
        reason = self.state.reason or ""
        why = f" ({reason})" if reason else ""
        if reason.startswith(tuple(MESSAGES["waits_for_ever"])):
            self._note_once(f"this job would wait forever{why}: type Ctrl-C, and request less or another partition")
        return f"the job {self.job.id} is waiting for its turn{why}"

    def _stop(self, *, again: bool) -> None:
        """Asks only the batch process first: a plain scancel would make srun kill the ranks at once."""
        now = time.monotonic()
        if self._stopping_since is None:
            self._stopping_since = now
            self.display.close()
            self.display.note(f"stopping the job {self.job.id}; once more cancels it at once")
            if self.state is None or self.state.waiting or cancel(self.job.id, "TERM", batch=True) is not None:
                self._cancel()
        elif not self._cancelled and (again or now - self._stopping_since > self._stop_timeout_s + _CANCEL_EXTRA_S):
            self._cancel()

    def _cancel(self) -> None:
        self._cancelled = True
        problem = cancel(self.job.id)
        if problem is not None and problem != self._problem:
            self._problem = problem
            self.display.note(f"scancel {self.job.id}: {problem}")

    def _given_up(self) -> bool:
        """Returns whether a cancelled job takes too long: Slurm cannot end it (a node does not answer), so the terminal
        leaves."""
        limit_s = self._stop_timeout_s + _CANCEL_EXTRA_S + _GIVE_UP_S
        if self._stopping_since is None or not self._cancelled or time.monotonic() - self._stopping_since < limit_s:
            return False
        self.display.note(f"the job {self.job.id} was cancelled and has not ended yet: squeue -j {self.job.id}")
        return True


@contextlib.contextmanager
def cancelled_with_us(job: str, secrets: Path | None = None) -> Iterator[None]:
    """Cancels the job and deletes its file of secrets if this process ends in any way, ``kill -9`` included, or if the
    block fails."""
    watched, ours = os.pipe()
    words = [sys.executable, "-I", "-S", str(PROGRAMS / "child_cancel.py"), str(watched), job]
    words += [str(secrets)] if secrets is not None else []
    try:
        guard = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[watched], start_new_session=True
        )
    finally:
        os.close(watched)
    try:
        yield
        with contextlib.suppress(BrokenPipeError):
            os.write(ours, b".")
    finally:
        os.close(ours)
        guard.wait()
