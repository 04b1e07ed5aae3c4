"""``launch=slurm`` at the terminal: settles what is still open, submits the job, and stays with it until its end."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sglang_hydra.engines.base import Machine
from sglang_hydra.engines.choose import choose
from sglang_hydra.engines.planned import plan_engine
from sglang_hydra.errors import ConfigError, ServerError
from sglang_hydra.explain import finding_lines, plan_screen
from sglang_hydra.findings import Finding
from sglang_hydra.launch.display import display_for
from sglang_hydra.launch.hydra_run import in_hydra, run_folder, write_whole
from sglang_hydra.launch.local import INTERRUPTED
from sglang_hydra.launch.nodes import ports_for_head
from sglang_hydra.launch.slurm.follow import Follower, cancelled_with_us, noting_signals
from sglang_hydra.launch.slurm.inside import LOG_NAME, PROGRAMS, ServerSpec, serve_in_job
from sglang_hydra.launch.slurm.keys import drop_secrets, leave_secrets, secrets_of
from sglang_hydra.launch.slurm.options import container_command, sbatch_settings, srun_settings
from sglang_hydra.launch.slurm.record import ENDED, Account
from sglang_hydra.launch.slurm.states import ended_finding
from sglang_hydra.launch.slurm.submit import Job, require_slurm, submit
from sglang_hydra.screen import Line, text, write
from sglang_hydra.secret import SECRET_FIELDS, is_secret_name

if TYPE_CHECKING:
    from sglang_hydra.cli import Invocation
    from sglang_hydra.compose import Composer
    from sglang_hydra.plans import Plan

JOB_FOLDER = "slurm"
"""Below the run folder: the job's script, its pickle and the output of its batch process."""

_EVERYWHERE = ("0.0.0.0", "::", "")
# Their state says all; what the server's own account says of the same moment is only how it was killed.
_SLURM_ENDED_IT = ("BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")


def serve(composer: Composer, invocation: Invocation, plan: Plan) -> int:
    """Shows the plan and the job, submits it, streams its log, and cancels it on a signal. Returns the exit code.

    Raises MachineError where this machine has no Slurm, no submitit or not the engine, or Slurm refuses the job;
    ConfigError for a secret in what Slurm would record.
    """
    refuse_recorded_secrets(plan)
    write([*plan_screen(plan), *job_lines(plan)])
    require_slurm()
    if plan.nodes["launch"]["slurm"]["container"] == "none":
        # Not for this machine's memory, which is not that of the nodes.
        choose(plan.engine.name, plan.engine.python, Machine(None), None)
    return in_hydra(composer, invocation, lambda: _run(plan))


def server_spec(plan: Plan, folder: Path, secrets: Path | None = None) -> ServerSpec:
    """What a job needs to serve a plan; ``folder`` is where it writes, ``secrets`` the file it takes them from."""
    launch = plan.nodes["launch"]
    container = launch["slurm"]["container"] != "none"
    programs = [str(PROGRAMS)] if container else []
    planned = plan_engine(plan.nodes["engine"], embedded_first=plan.engine.name == "transformers")
    public = {name: value for name, value in plan.environment.items() if not is_secret_name(name)}
    request = planned.request(plan.resolution, public, Machine(None))
    # The key goes its own way, and every node gets its own rank.
    intent = {name: value for name, value in request.intent.items() if name not in (*SECRET_FIELDS, "node_rank")}
    return ServerSpec(
        engine=planned.name,
        request=replace(request, intent=intent),
        folder=folder,
        nnodes=int(plan.values["nnodes"]),
        head_ports=ports_for_head(plan.values),
        ready_timeout_s=launch["ready_timeout"],
        stop_timeout_s=launch["stop_timeout"],
        srun=tuple(srun_settings(plan, programs)),
        container=tuple(container_command(plan, programs)),
        python=(plan.engine.python or "python3") if container else None,
        secrets=secrets,
    )


def refuse_recorded_secrets(plan: Plan) -> None:
    """Raises ConfigError where a setting that goes into the job's script holds the API key or a token."""
    hidden = [value for value in _hidden(plan) if value]
    settings = plan.nodes["launch"]["slurm"]
    for key in ("setup", "sbatch", "srun", "mounts"):
        if any(value in str(settings[key]) for value in hidden):
            message = f"launch.slurm.{key} holds a secret, and Slurm would keep and show it"
            hint = "api_key=${oc.env:NAME}, engine.env.HF_TOKEN=${oc.env:HF_TOKEN}: these are handed over unseen"
            raise ConfigError(Finding("error", "SLM007", message, (f"launch.slurm.{key}",), hint))


def job_lines(plan: Plan) -> list[Line]:
    """What Slurm will be asked for."""
    options = [f"--{name}" + ("" if value is True else f"={value}") for name, value in sbatch_settings(plan).items()]
    return [[text("Slurm job", "bold")], [text(f"  sbatch {' '.join(options)}")], []]


def _run(plan: Plan) -> int:
    """Inside Hydra's run folder."""
    folder = run_folder()
    write_whole(folder / "plan.json", json.dumps(plan.to_json(), indent=2) + "\n")
    secrets = leave_secrets(folder, secrets_of(plan.secrets.get("api_key"), plan.environment, os.environ))
    display = display_for()
    try:
        with noting_signals() as signals:
            job = submit(
                serve_in_job,
                server_spec(plan, folder, secrets),
                options=sbatch_settings(plan),
                folder=folder / JOB_FOLDER,
                setup=plan.nodes["launch"]["slurm"]["setup"],
                hidden=_hidden(plan),
            )
            with cancelled_with_us(job.id):
                display.note(f"the job {job.id} was submitted; its files are in {folder}")
                follower = Follower(job, folder, display, float(plan.nodes["launch"]["stop_timeout"]))
                follower.until_end(signals, lambda account: write(ready_lines(plan, job, account)))
    finally:
        drop_secrets(secrets)
    if signals:
        return INTERRUPTED
    code, findings = outcome_of(follower, folder)
    write(finding_lines(findings), sys.stderr)
    return code


def outcome_of(follower: Follower, folder: Path) -> tuple[int, list[Finding]]:
    """How a job that nobody here stopped came to its end: the exit code and what to say."""
    account, state = follower.account, follower.state
    told = account is not None and account.phase == ENDED
    if told and account is not None and not (state is not None and state.state in _SLURM_ENDED_IT):
        return int(account.exit_code or 0), list(account.findings)
    output = folder / JOB_FOLDER
    findings = [ended_finding(follower.job.id, state, str(output))] if state is not None else []
    diagnosed = diagnosis_of([folder / LOG_NAME, follower.job.output[1]])
    return ServerError.exit_code, [*findings, *([diagnosed] if diagnosed else [])]


def diagnosis_of(logs: list[Path]) -> Finding | None:
    """What the first of the logs says that says anything; None where none does."""
    from sglang_hydra.diagnose import diagnose

    for log in logs:
        try:
            with log.open(encoding="utf-8", errors="replace") as lines:
                found = diagnose(_unlabelled(lines))
        except FileNotFoundError:
            continue
        if found.kind != "unknown":
            return found.finding
    return None


def _unlabelled(lines: Iterator[str]) -> Iterator[str]:
    """Without the number of the rank that srun puts before each line."""
    for line in lines:
        head, colon, rest = line.partition(": ")
        yield rest if colon and head.strip().isdigit() else line


def ready_lines(plan: Plan, job: Job, account: Account) -> list[Line]:
    """Where the server answers, and how to get there from here."""
    here = f"http://127.0.0.1:{account.port}"
    address = f"[{account.address}]" if ":" in str(account.address) else account.address
    everywhere = account.host in _EVERYWHERE
    url = f"http://{address}:{account.port}" if everywhere else here
    name = plan.values["served_model_name"] or plan.values["model_path"]
    body = json.dumps({"model": name, "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 32})
    key = ' -H "Authorization: Bearer $KEY"' if plan.secrets else ""
    where = "" if everywhere else f" on {account.node}"
    lines: list[Line] = [
        [],
        [text(f"Ready after {account.elapsed_s:.1f} s at {url}{where}, job {job.id}", "bold green")],
    ]
    if not everywhere:
        lines.append([text(f"  from here: ssh -N -L {account.port}:{account.host}:{account.port} {account.node}")])
    lines += [
        [text(f"  curl -N {url}/v1/chat/completions{key} -H 'Content-Type: application/json' -d '{body}'")],
        [text("  Ctrl-C stops it and gives its nodes back", "dim")],
        [],
    ]
    return lines


def _hidden(plan: Plan) -> list[str]:
    tokens = [value for name, value in plan.environment.items() if is_secret_name(name)]
    return [*plan.secrets.values(), *tokens]
