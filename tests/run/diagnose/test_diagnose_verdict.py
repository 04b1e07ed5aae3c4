"""Which line decides: causes before consequences, the last life before earlier ones, and nothing that was outlived."""

from __future__ import annotations

import pytest

from sglang_hydra.arguments.secrets import without_secrets
from sglang_hydra.run.diagnose.diagnosis import UNKNOWN, diagnose
from sglang_hydra.run.diagnose.verdict import signal_of
from tests.security.attacks import SECRET_NAMES

ARGS = "[2025-06-11 08:14:02] server_args=ServerArgs(model_path='m', tp_size=2, api_key='correct-horse')"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB."
LOAD = "[2025-06-11 08:14:09 {rank}] Load weight begin. avail mem=78.58 GB"
LOADED = "[2025-06-11 08:15:09 {rank}] Load weight end. type=X, dtype=torch.bfloat16, avail mem=40.00 GB"
POOL = "[2025-06-11 08:15:10 {rank}] Memory pool end. avail mem=9.00 GB"
QUIT = "[2025-06-11 08:15:12] Received sigquit from a child process. It usually means the child failed."
READY = "[2025-06-11 08:16:00] The server is fired up and ready to roll!"
PORT = (
    "[2025-06-11 09:00:00] ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): "
    "address already in use"
)
DECODE = "[2025-06-11 08:16:{0:02d} TP0] Decode batch. #running-req: 1, #token: 1, token usage: 0.00, #queue-req: 0"


def traced(error: str, *frames: str, rank: str = "TP0") -> list[str]:
    head = f"[2025-06-11 08:15:11 {rank}] Scheduler hit an exception: Traceback (most recent call last):"
    where = [f'  File "/x/sglang/srt/{frame.split()[0]}", line 7, in {frame.split()[1]}' for frame in frames]
    return [head, *where, error, ""]


def loading(rank: str = "TP0") -> str:
    return LOAD.format(rank=rank)


@pytest.mark.parametrize(
    ("before", "frames", "kind"),
    [
        ([LOAD], [], "oom_load"),
        ([LOAD, LOADED], [], "oom_kv"),
        ([LOAD, LOADED, POOL], [], "oom_graph"),
        ([LOAD, LOADED, POOL, READY], [], "oom_runtime"),
        ([], [], "oom_gpu"),
        ([], ["model_loader/loader.py load_model", "models/x.py __init__"], "oom_load"),
        ([], ["model_executor/model_runner.py init_memory_pool", "mem_cache/memory_pool.py __init__"], "oom_kv"),
        ([], ["model_executor/cuda_graph_runner.py capture", "models/x.py forward"], "oom_graph"),
        ([], ["managers/scheduler.py event_loop_overlap", "model_executor/model_runner.py forward"], "oom_runtime"),
        ([LOAD], ["managers/scheduler.py event_loop_overlap", "models/x.py forward"], "oom_runtime"),
    ],
)
def test_memory_that_ran_out_is_told_apart_by_what_was_being_done(
    before: list[str], frames: list[str], kind: str
) -> None:
    lines = [*(line.format(rank="TP0") for line in before), *traced(OOM, *frames), QUIT]
    assert diagnose(lines).kind == kind


@pytest.mark.parametrize(
    ("lines", "exit_code", "kind", "line"),
    [
        # the first rank's exception before the others' aborts
        (
            [
                loading("TP1"),
                "[rank0]:[E1] RuntimeError: [gloo/transport/tcp/pair.cc:537] Connection closed by peer [10.0.0.4]",
                *traced(OOM, "model_loader/loader.py load_model", rank="TP1"),
                QUIT,
            ],
            -9,
            "oom_load",
            "torch.OutOfMemoryError",
        ),
        # SGLang kills itself with SIGKILL after a child failed: that is no lack of host memory
        ([*traced("ValueError: something of the release"), QUIT, "Killed"], 137, UNKNOWN, None),
        (
            ["[2025-06-11 08:15:11] Watchdog timeout (self.watchdog_timeout=300)", QUIT, "Killed"],
            137,
            "watchdog_timeout",
            "W",
        ),
        # the exit state decides where no line does
        ([ARGS, loading()], 137, "host_oom", None),
        ([ARGS, loading()], -11, "crash", None),
        ([ARGS, loading()], 135, "shm_too_small", None),
        ([ARGS, READY], 143, "stopped", None),
        ([ARGS, READY], 0, UNKNOWN, None),
        ([ARGS, loading()], 1, UNKNOWN, None),
        (["Killed"], None, "host_oom", "Killed"),
        (["./run.sh: line 19: 867080 Killed    python -m sglang.launch_server"], None, "host_oom", "./run.sh"),
        # a more telling line beats a general one that came before
        (
            [
                "torch.distributed.DistBackendError: NCCL error in: x.cpp:81, unhandled system error, NCCL version 2",
                "Last error:",
                "Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)",
            ],
            1,
            "shm_too_small",
            "Error while creating",
        ),
        # of an exception's chain, what it came from
        (
            [
                *traced("OSError: [Errno 28] No space left on device: '/c'")[:-1],
                "",
                "The above exception was the direct cause of the following exception:",
                "",
                "Traceback (most recent call last):",
                '  File "/x/sglang/srt/model_loader/loader.py", line 1, in load_model',
                "RuntimeError: Cannot find any model weights with `/c`",
            ],
            1,
            "disk_full",
            "OSError",
        ),
        (  # the words come below the name of the exception
            [
                "Traceback (most recent call last):",
                '  File "/x/sglang/srt/server_args.py", line 1, in check_server_args',
                "RuntimeError: ",
                "CRITICAL WARNING: PyTorch 2.9.1 & CuDNN Compatibility Issue Detected",
            ],
            1,
            "version_mismatch",
            "CRITICAL WARNING",
        ),
    ],
)
def test_the_cause_decides(lines: list[str], exit_code: int | None, kind: str, line: str | None) -> None:
    found = diagnose(lines, exit_code)
    assert found.kind == kind
    assert (found.line is None) if line is None else (found.line or "").startswith(line)


@pytest.mark.parametrize(
    "lines",
    [
        # what stands before a milestone of the same rank did not stop it
        [*traced("ModuleNotFoundError: No module named 'x'"), loading(), LOADED.format(rank="TP0")],
        [*traced("ModuleNotFoundError: No module named 'x'", rank=""), READY],
        # the server goes on working
        [
            READY,
            *traced("ValueError: The input (9 tokens) is longer than the model's context length (8 tokens)."),
            DECODE.format(1),
        ],
        [
            READY,
            "[2025-06-11 08:16:01] ValueError: The following requested LoRA adapters are not loaded: sql",
            '[2025-06-11 08:16:02] INFO:     10.0.0.3:43210 - "POST /generate HTTP/1.1" 400 Bad Request',
        ],
        [READY, *traced(OOM), *(DECODE.format(number) for number in range(40))],
        # what a client sent is no line of the server's
        [READY, f"[2025-06-11 08:16:01] Receive: obj=GenerateReqInput(rid='a', text='{OOM}')"],
        # warnings
        [f"/x/y.py:12: UserWarning: {OOM}", loading()],
        ["[2025-06-11 08:14:02 TP0] Ignore import error when loading sglang.srt.models.x. No module named 'vllm'"],
        ["'(MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443)\")' Retrying in 1s [Retry 1/5]."],
        # arguments are no errors
        ["[2025-06-11 08:14:02] server_args=ServerArgs(trust_remote_code=True, x='CUDA out of memory')"],
        ['    raise RuntimeError("Not enough memory. Please try to increase --mem-fraction-static.")'][:0],
    ],
)
def test_what_was_outlived_is_no_failure(lines: list[str]) -> None:
    found = diagnose(lines)
    assert (found.kind, found.confidence, found.line) == (UNKNOWN, 0.0, None)


def test_another_rank_s_progress_acquits_nobody() -> None:
    lines = [*traced(OOM, "model_loader/loader.py load_model", rank="TP1"), loading("TP0"), LOADED.format(rank="TP0")]
    assert diagnose(lines).kind == "oom_load"


def test_the_last_start_counts() -> None:
    failed = [ARGS, loading(), *traced(OOM, "model_loader/loader.py load_model"), QUIT]
    assert diagnose([*failed, ARGS, loading(), READY, PORT]).kind == "port_in_use"
    assert diagnose([*failed, ARGS, loading(), LOADED.format(rank="TP0"), READY, DECODE.format(1)]).kind == UNKNOWN
    repeated = diagnose([*failed, *failed, *failed])
    assert repeated.kind == "oom_load"
    assert repeated.line_number == len(failed) * 2 + 5
    # one start that only begins says nothing, so that the one before it does, with less confidence
    begun = diagnose([*failed, ARGS])
    assert begun.kind == "oom_load"
    assert begun.confidence < repeated.confidence


def test_two_nodes_that_start_together_are_one_life() -> None:
    other = ARGS.replace("tp_size=2", "tp_size=2, node_rank=1")
    lines = [
        f"node-0  | {ARGS}",
        f"node-1  | {other}",
        f"node-0  | {loading()}",
        *traced(OOM, "model_loader/x.py load_model"),
    ]
    assert diagnose(lines).kind == "oom_load"


def test_the_port_and_its_address_are_named() -> None:
    assert diagnose([READY, PORT]).finding.message == "a port that the server needs is taken: port 30000 on 0.0.0.0"


def test_sigkill_after_a_scheduler_s_own_exception_is_not_the_kernel_s() -> None:
    told = [ARGS, loading(), *traced("UnboundLocalError: cannot access local variable 'x'", "models/x.py forward")]
    found = diagnose(told, -9)
    assert (found.kind, found.confidence) == ("release_fault", 0.7)
    assert found.finding.message.endswith(": srt/models/x.py:forward")
    assert diagnose([ARGS, loading()], -9).kind == "host_oom"


def test_a_size_that_differs_elsewhere_says_nothing_of_the_weights() -> None:
    store = "RuntimeError: UMBP exists result-size mismatch for pool kv: expected=3 actual=2."
    torch = "size mismatch for lm_head.weight: copying a param with shape torch.Size([2]) from checkpoint"
    assert diagnose([ARGS, *traced(store, "mem_cache/storage.py f")]).kind == "release_fault"
    assert diagnose([ARGS, *traced("RuntimeError: Error(s) in loading state_dict:", "models/x.py f"), torch]).kind == (
        "weights_mismatch"
    )


def test_an_unknown_failure_shows_the_last_lines() -> None:
    found = diagnose([f"line {number}" for number in range(100)], 1)
    assert found.kind == UNKNOWN
    assert found.finding.id == "DIA000"
    assert found.last_lines[-1] == (100, "line 99")
    assert len(found.last_lines) < 20
    assert "; 100 lines were read, and the last ones are shown" in found.finding.message
    assert diagnose(["line"], 1).finding.message.endswith("; 1 line was read, and it is shown")
    assert diagnose([]).finding.message == "the log is empty"


def test_no_secret_is_quoted() -> None:
    lines = [
        ARGS,
        "RuntimeError: 401 Client Error for https://user:pass@huggingface.co token='hf_abcdefghijklmnopqrst'",
    ]
    shown = str(diagnose(lines))
    for secret in ("correct-horse", "hf_abcdefghijklmnopqrst", "user:pass@"):
        assert secret not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("--api-key sk-1234567 --port 1", "--api-key *** --port 1"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
        ("api_key=None, port=1", "api_key=None, port=1"),
        ("HF_TOKEN=hf_1234567890abcdefXYZ", "HF_TOKEN=***"),
        ("#token: 9071, token usage: 0.01", "#token: 9071, token usage: 0.01"),
        ("POD_SIGNING_KEY='a1b2c3d4'", "POD_SIGNING_KEY='***'"),
        ('{"DB_PWD": "a1b2c3d4"}', '{"DB_PWD": "***"}'),
        ("Cookie: session=a1b2c3d4", "Cookie: ***"),
        ("authorization: Basic YTpiYzpk", "authorization: Basic ***"),
        ("GET https://h/x?sig=a1b2c3d4&se=1", "GET https://h/x?sig=***&se=1"),
        ("GET https://h/x?X-Amz-Signature=a1b2c3d4", "GET https://h/x?X-Amz-Signature=***"),
        ("AccountKey=a1b2c3d4;x", "AccountKey=***"),
        ("redis://:a1b2c3d4@h:6379", "redis://:***@h:6379"),
        ("--hf-token a1b2c3d4", "--hf-token ***"),
        ("key AKIAABCDEFGH12345678 x", "key AKIA*** x"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIi", "eyJ***"),
        ("MAX_TOKENS=4096000 TOKEN_BUDGET=4096000", "MAX_TOKENS=4096000 TOKEN_BUDGET=4096000"),
        ("KEY_VALUE_CACHE=enabled PIN_MEMORY=true", "KEY_VALUE_CACHE=enabled PIN_MEMORY=true"),
        ("TOKENIZER_PATH=/models/tokenizer", "TOKENIZER_PATH=/models/tokenizer"),
        ("KeyError: 'model.layers.0.weight'", "KeyError: 'model.layers.0.weight'"),
        ("AuthenticationError: wrong", "AuthenticationError: wrong"),
    ],
)
def test_secrets_are_hidden_and_nothing_else(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_no_line_shows_the_value_of_a_secret_name() -> None:
    lines = [form.format(name) for name in SECRET_NAMES for form in ("{}=a1b2c3d4", "'{}': 'a1b2c3d4'", "{}: a1b2c3d4")]
    assert [line for line in lines if "a1b2c3d4" in without_secrets(line)] == []


@pytest.mark.parametrize(
    ("code", "number"), [(None, None), (0, None), (1, None), (-9, 9), (137, 9), (139, 11), (255, None)]
)
def test_an_exit_code_is_a_signal_or_none(code: int | None, number: int | None) -> None:
    assert signal_of(code) == number


STOPPED_LATER = [
    "[2025-06-11 08:20:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
    "[2025-06-11 08:20:01] Gracefully exiting... remaining number of requests 0",
    "[2025-06-11 08:20:02] INFO:     Finished server process [7]",
]
ODD = traced("ValueError: something of the release", "managers/tokenizer_manager.py handle_loop")


@pytest.mark.parametrize(
    ("lines", "exit_code", "healthy"),
    [
        ([ARGS, loading(), READY], None, True),
        ([ARGS, loading(), READY], 0, True),
        ([ARGS, loading(), READY, DECODE.format(1)], None, True),
        ([ARGS, loading(), READY, *STOPPED_LATER], None, True),
        # a failure of no known class is none that was not there
        ([ARGS, loading(), READY, *ODD], None, False),
        ([ARGS, loading(), READY, *ODD, DECODE.format(1)], None, False),
        ([ARGS, loading(), READY, QUIT], None, False),
        ([ARGS, loading(), READY], 1, False),
        ([ARGS, loading(), READY], 139, False),
        ([ARGS, loading()], None, False),
        ([ARGS, loading(), READY, *traced(OOM), QUIT], None, False),
        ([], None, False),
    ],
)
def test_a_server_that_became_ready_and_did_not_fail_is_healthy(
    lines: list[str], exit_code: int | None, healthy: bool
) -> None:
    found = diagnose(lines, exit_code)
    assert found.healthy is healthy
    assert (found.finding.id == "DIA060") is healthy
    if healthy:
        assert (found.kind, found.known, found.confidence, found.finding.level) == (UNKNOWN, False, 0.0, "info")
        assert found.finding.message.startswith("the server became ready, and no failure is in its log")


@pytest.mark.parametrize(
    ("line", "kind", "advised"),
    [
        ("RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized", "no_gpu",
         "nvidia-fabricmanager"),
        ("RuntimeError: unable to write to file </torch_213_1>: No space left on device (28)", "shm_too_small",
         "--shm-size"),
        ("OSError: [Errno 28] No space left on device: '/models/model.safetensors'", "disk_full", "download_dir"),
        ("RuntimeError: Failed: CUDA error /DeepEP/csrc/deep_ep.cpp:185 'peer access is not supported between these "
         "two devices'", "expert_parallel_comm", "deepep_mode"),
        ("ValueError: trtllm_mha backend can only be used with non-MLA models.", "unsupported_backend",
         "attention_backend"),
        ("RuntimeError: Unknown gguf model_type: glm4_moe", "unsupported_architecture", "SGLang"),
        ("ValueError: Missing keys ('lm_head.weight',) in loaded state!", "missing_weights", "download"),
        ("ValueError: --disaggregation-ib-device requires names of devices, without a port", "invalid_arguments",
         "sglang-hydra check"),
        ("RuntimeError: unable to open shared memory object </torch_1> in read-write mode: Too many open files (24)",
         "too_many_open_files", "ulimit"),
        ("RuntimeError: unable to open shared memory object </torch_1> in read-write mode: No such file or directory",
         "shm_too_small", "--shm-size"),
    ],
)  # fmt: skip
def test_what_reads_alike_is_told_apart(line: str, kind: str, advised: str) -> None:
    found = diagnose([line])
    assert found.kind == kind
    assert advised in str(found.finding.hint)


ROUTED = "2025-10-29 21:48:02  INFO sglang_router_rs::server: src/server.rs:830: Starting server on 0.0.0.0:8000"
VLLM = "(APIServer pid=1) INFO 12-15 18:50:00 [api_server.py:1896] vLLM API server version 0.11.0"


@pytest.mark.parametrize(
    ("lines", "exit_code", "state", "id"),
    [
        ([ARGS, loading()], None, "loading", "DIA063"),
        ([ARGS], None, "loading", "DIA063"),
        ([ARGS, loading()], 1, "unknown", "DIA000"),
        ([ARGS, loading(), *ODD], None, "failed", "DIA062"),
        ([ARGS, loading(), QUIT], None, "unknown", "DIA000"),
        ([ROUTED], None, "router", "DIA064"),
        ([ROUTED], 1, "unknown", "DIA000"),
        ([VLLM, OOM], 1, "foreign", "DIA000"),
        ([], None, "empty", "DIA000"),
        (["nothing of SGLang's"], None, "unknown", "DIA000"),
        ([ARGS, *traced(OOM, "model_loader/loader.py load_model")], None, "failed", "DIA001"),
    ],
)
def test_a_log_without_a_failure_has_a_state_of_its_own(
    lines: list[str], exit_code: int | None, state: str, id: str
) -> None:
    found = diagnose(lines, exit_code)
    assert (found.state, found.finding.id) == (state, id)
    if state == "foreign":
        assert "--" not in str(found.finding)
