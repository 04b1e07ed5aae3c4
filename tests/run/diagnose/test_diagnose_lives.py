"""Logs that begin late, or of which some lines have no rank."""

from __future__ import annotations

import pytest

from sglang_hydra.run.diagnose.diagnosis import UNKNOWN, diagnose

ARGS = "[2025-06-11 08:14:02] server_args=ServerArgs(model_path='m', tp_size=2)"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB."
SAVER = "[torch_memory_saver.cpp] CUresult error  result=2 file=csrc/torch_memory_saver.cpp func=cu_mem_create line=103"
SHARDS = "Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:05<00:00,  1.26s/it]"
QUIT = "[2025-06-11 08:15:12] Received sigquit from a child process. It usually means the child failed."
READY = "[2025-06-11 08:16:00] The server is fired up and ready to roll!"


def of_rank(words: str) -> list[str]:
    return [f"[2025-06-11 08:14:09 TP{rank}] {words}" for rank in range(2)]


def test_a_start_after_an_end_counts_although_the_log_begins_after_the_first_start() -> None:
    tail = [*of_rank("Load weight begin. avail mem=78.58 GB"), OOM, QUIT]
    assert diagnose(tail).kind == "oom_load"
    assert diagnose([*tail, ARGS, *of_rank("Load weight begin. avail mem=78.58 GB"), READY]).healthy


def test_what_slurm_warns_of_at_a_start_is_no_end() -> None:
    warned = "slurmstepd: error: couldn't chdir to `/home/u/job': No such file or directory: going to /tmp instead"
    denied = "PermissionError: [Errno 13] Permission denied: '/home/u/.triton'"
    assert diagnose([warned, ARGS, denied, *of_rank("Memory pool end. avail mem=9.00 GB"), READY]).healthy
    ended = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2025-06-11T12:00:00 DUE TO TIME LIMIT ***"
    assert diagnose([warned, ARGS, READY, ended]).kind == "stopped"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Load weight begin. avail mem=78.58 GB", "oom_load"),
        ("Load weight end. type=X, dtype=torch.bfloat16, avail mem=40.00 GB", "oom_kv"),
        ("Capture cuda graph begin. This can take up to several minutes.", "oom_graph"),
    ],
)
@pytest.mark.parametrize("error", [SAVER, "RuntimeError: Triton Error [CUDA]: out of memory"])
def test_a_line_without_a_rank_is_of_the_stage_that_the_ranks_reached(words: str, kind: str, error: str) -> None:
    assert diagnose([ARGS, SHARDS, *of_rank(words), error, QUIT]).kind == kind


def test_a_kernel_that_torch_tries_and_leaves_is_no_memory_that_ran_out() -> None:
    tried = "No valid triton configs. OutOfMemoryError: out of resource: triton_mm Required: 264192"
    assert diagnose([ARGS, *of_rank("Capture cuda graph begin."), tried, "Ignoring this choice.", QUIT]).kind == UNKNOWN


@pytest.mark.parametrize("place", ["managers/tokenizer_manager.py", "entrypoints/openai/serving_chat.py"])
def test_a_request_that_fails_in_its_handler_fails_alone(place: str) -> None:
    failed = [
        "Traceback (most recent call last):",
        f'  File "/x/sglang/srt/{place}", line 7, in handle',
        "TypeError: x",
    ]
    assert diagnose([READY, *failed]).kind == "release_fault"
    assert diagnose(
        [READY, *failed, '[2025-06-11 08:16:04] INFO: 1.1.1.1:5 - "POST /generate HTTP/1.1" 200 OK']
    ).healthy
