"""What Slurm says of a job, read from its own words."""

from __future__ import annotations

import pytest

from sglang_hydra.planning.finding_meanings import MEANINGS
from sglang_hydra.run.launch.slurm.states import JobState, ended_finding, read_sacct, read_scontrol

# Slurm 22.05: scontrol --oneliner show job
RUNNING = (
    "JobId=5 JobName=sglang-Qwen3-8B UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901755 Nice=0 "
    "Account=(null) QOS=(null) JobState=RUNNING Reason=None Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1 "
    "Reboot=0 ExitCode=0:0 RunTime=00:00:04 TimeLimit=01:00:00 TimeMin=N/A SubmitTime=2026-11-21T00:37:18 "
    "StartTime=2026-11-21T00:37:19 EndTime=2026-11-21T01:37:19 Deadline=N/A SuspendTime=None Partition=gpu "
    "ReqNodeList=(null) ExcNodeList=(null) NodeList=node[1-2] BatchHost=node1 NumNodes=2 NumCPUs=4 "
    "Comment=hello JobState=FAILED Reason=x Dependency=y WorkDir=/a b"
)


def test_a_running_job_is_read_whatever_its_comment_says() -> None:
    state = read_scontrol(RUNNING)
    assert state == JobState("RUNNING", None)
    assert not state.over
    assert not state.waiting


@pytest.mark.parametrize(
    ("word", "over", "waiting"),
    [
        ("PENDING", False, True),
        ("CONFIGURING", False, True),
        ("COMPLETING", False, False),
        ("SUSPENDED", False, False),
        ("COMPLETED", True, False),
        ("FAILED", True, False),
        ("TIMEOUT", True, False),
        ("PREEMPTED", True, False),
        ("NODE_FAIL", True, False),
        ("OUT_OF_MEMORY", True, False),
        ("SOMETHING_NEW", False, False),
    ],
)
def test_a_state_is_over_or_waits_or_neither(word: str, over: bool, waiting: bool) -> None:
    state = read_scontrol(f"JobId=1 JobName=x JobState={word} Reason=Priority Dependency=(null) ExitCode=0:0")
    assert state is not None
    assert (state.over, state.waiting, state.reason) == (over, waiting, "Priority")


@pytest.mark.parametrize("text", ["", "\n", "slurm_load_jobs error: Invalid job id specified", "JobState=RUNNING"])
def test_what_is_no_job_has_no_state(text: str) -> None:
    assert read_scontrol(text) is None
    assert read_sacct(text) is None


def test_accounting_says_the_same() -> None:
    assert read_sacct("CANCELLED by 1000|0:15\n") == JobState("CANCELLED")
    assert read_sacct("TIMEOUT|0:0\n") == JobState("TIMEOUT")


@pytest.mark.parametrize(
    ("state", "id", "said"),
    [
        ("TIMEOUT", "SLM011", "launch.slurm.walltime"),
        ("DEADLINE", "SLM011", "deadline"),
        ("PREEMPTED", "SLM012", "preemption"),
        ("NODE_FAIL", "SLM013", "start it again"),
        ("OUT_OF_MEMORY", "SLM014", "launch.slurm.mem=0"),
        ("CANCELLED", "SLM015", "scontrol show job 7"),
        ("FAILED", "SLM016", "/runs/slurm"),
        ("COMPLETED", "SLM016", "/runs/slurm"),
        ("REVOKED", "SLM016", "/runs/slurm"),
    ],
)
def test_each_end_has_a_meaning_and_something_to_type(state: str, id: str, said: str) -> None:
    finding = ended_finding("7", JobState(state, "Because"), "/runs/slurm")
    assert finding.id == id
    assert id in MEANINGS
    assert f"the job 7 ended as {state} (Because)" in finding.message
    assert said in str(finding.hint)
