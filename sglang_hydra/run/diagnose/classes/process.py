"""How processes live and end: hangs, crashes, stops."""

from __future__ import annotations

import re

from sglang_hydra.run.diagnose.failure_class import FailureClass, Stage, Weight, exited, sign

_TIMEOUT = re.compile(r"watchdog_timeout=([\d.]+)")


def _seconds(line: str) -> str | None:
    found = _TIMEOUT.search(line)
    return f"no step finished within {found[1].rstrip('.')} s" if found else None


CLASSES = (
    FailureClass(
        "DIA052",
        "watchdog_timeout",
        "the scheduler did not finish a step in time, and its watchdog ended the server",
        "One batch took longer than watchdog_timeout. Inferred: a kernel or a collective that hangs, compiling at the "
        "first batch of a shape, or a very long prefill on slow hardware.",
        "watchdog_timeout=1200, where the step is only slow; or the stack that the watchdog prints (py-spy must be "
        "installed); or disable_overlap_schedule=true and another attention_backend, where it hangs",
        (
            sign("atchdog timeout", r"(?i)watchdog timeout(?! is)(?!.*soft=True)"),
            sign("did not finish within the watchdog", None, Weight.GENERAL),
        ),
        retryable=True,
        fields=("watchdog_timeout",),
        details=_seconds,
    ),
    FailureClass(
        "DIA053",
        "health_check",
        "the health check failed: the server answers no more, or not within the limit of who asks",
        "/health of 0.5.2 asks for one token and looks once a second whether anything came back, the first time after "
        "one second; after 20 s (SGLANG_HEALTH_CHECK_TIMEOUT) it answers 503. A probe that allows one second, as those "
        "of Kubernetes do by default, is too short for it. Inferred: a scheduler that hangs, long batches and "
        "compiling kernels make it late.",
        "a time-out of 20 s or more for the probe, and a startupProbe for the time of loading; or the log of the "
        "scheduler before it, for what hangs; or SGLANG_HEALTH_CHECK_TIMEOUT=60",
        (
            sign(
                "Health check failed. Server couldn't get a response from detokenizer",
                None,
                Weight.GENERAL,
                request=True,
            ),
            sign("Liveness probe failed", None, Weight.GENERAL),
            sign("Startup probe failed", None, Weight.GENERAL),
            sign("failed liveness probe", None, Weight.GENERAL),
            sign("failed startup probe", None, Weight.GENERAL),
            sign("is unhealthy", r"(?i)container .* is unhealthy", Weight.GENERAL),
            sign(
                '" 503',
                r"\"GET /health(?:_generate)? HTTP/[\d.]+\" 503",
                Weight.EFFECT,
                stage=Stage.SERVE,
                request=True,
            ),
            sign("Signal SIGTERM received while health check failed", None, Weight.GENERAL),
        ),
        retryable=True,
    ),
    FailureClass(
        "DIA054",
        "warmup_failed",
        "the server's own first request failed",
        "After loading, SGLang sends itself a request, with a limit of 600 s. Inferred: a proxy in the environment "
        "that catches 127.0.0.1, a host name that leads elsewhere, or a first batch that takes too long makes it fail "
        "although the model is loaded.",
        "NO_PROXY=127.0.0.1,localhost, where HTTP_PROXY is set; or skip_server_warmup=true; or the error of the "
        "scheduler above, if there is one",
        (
            sign("Initialization failed. warmup error", None, Weight.EFFECT),
            sign("Initialization failed. Warmup error", None, Weight.EFFECT),
            sign("Prefill disaggregation mode warm Up Failed", None, Weight.EFFECT),
        ),
        retryable=True,
        fields=("skip_server_warmup", "host"),
    ),
    FailureClass(
        "DIA055",
        "pool_leak",
        "the scheduler's count of KV cache slots did not add up",
        "SGLang compares what is free, cached and in use whenever it is idle, and stops where slots are lost. "
        "Inferred: it is a bug of the release with the features in use (speculative decoding, hierarchical cache, "
        "pages, LoRA).",
        "a later release; or the feature that is in use switched off: disable_radix_cache=true, page_size=1 or no "
        "speculative_algorithm, one at a time",
        (
            sign("memory leak detected"),
            sign("Mem Leak Detected"),
            sign("em leak detected", r"(?i)pool.*leak"),
            sign("available_size=", r"AssertionError.*available_size"),
        ),
        retryable=True,
        fields=("page_size", "disable_radix_cache", "speculative_algorithm"),
    ),
    FailureClass(
        "DIA056",
        "spawn_without_main",
        'a script starts the engine without `if __name__ == "__main__"`',
        "The engine's processes are spawned: each imports the script again, which would start the engine again.",
        'put the engine, and what uses it, into a function that is called below if __name__ == "__main__":',
        (
            sign("process has finished its bootstrapping phase", None, Weight.EFFECT),
            sign("if __name__ == '__main__':", None, Weight.GENERAL, exception=False),
            sign("Cannot re-initialize CUDA in forked subprocess"),
        ),
    ),
    FailureClass(
        "DIA057",
        "crash",
        "a process died of a bug in compiled code",
        "A segmentation fault, an abort or an illegal instruction ends Python without an exception; an abort often has "
        "a message of C++ above it. Inferred: extensions built for another torch or another CPU are the usual reason.",
        "PYTHONFAULTHANDLER=1, for the place in Python; or the message of C++ above, if there is one; or a fresh "
        "environment with the release's own versions; or ulimit -c unlimited and gdb, for the place in C++",
        (
            sign("Fatal Python error", r"Fatal Python error: (?!Aborted)", Weight.GENERAL),
            sign("Segmentation fault", None, Weight.GENERAL),
            sign("SIGSEGV", None, Weight.EFFECT),
            sign("built for CPUs supporting at least the", None, Weight.GENERAL),
            sign("Illegal instruction (core dumped)", None, Weight.GENERAL),
            sign("SIGILL", None, Weight.EFFECT),
            sign("core dumped", None, Weight.EFFECT),
            sign("double free or corruption", None, Weight.GENERAL),
            sign("malloc(): ", None, Weight.GENERAL),
            sign("free(): invalid", None, Weight.GENERAL),
            sign("stack smashing detected", None, Weight.GENERAL),
            sign("terminate called after throwing an instance of", None, Weight.EFFECT),
            sign("Fatal Python error: Aborted", None, Weight.EFFECT),
            sign("!!!!!!! Segfault encountered !!!!!!!", None, Weight.GENERAL),
            sign("Caught signal 11", None, Weight.GENERAL),
            sign("exitcode=", r"exitcode=(?:11|139|134|6|4|132)\b", Weight.EFFECT),
            sign("with an exit code", r"with an exit code (?:11|139|134|6|4|132)\b", Weight.EFFECT),
            sign("xit code: -", r"xit code: -(?:11|6|4)\b", Weight.EFFECT),
            sign("xit code -", r"xit code -(?:11|6|4)\b", Weight.EFFECT),
            sign("terminated with -", r"terminated with -(?:11|6|4)\b", Weight.EFFECT),
            sign("xit", exited(139), Weight.END),
            sign("xit", exited(134), Weight.END),
        ),
        retryable=True,
        signals=(11, 6, 4, 8),
    ),
    FailureClass(
        "DIA058",
        "stopped",
        "the server was asked to stop",
        "SIGTERM or SIGINT came, which by itself is no failure of the server. Inferred: somebody, a time limit, an "
        "eviction or a probe ended it; who asked is in the events of Kubernetes or the log of Slurm.",
        "kubectl describe pod, or sacct -j JOB, for who stopped it; or a longer --time, where a limit ended it",
        (
            sign("DUE TO TIME LIMIT", None, Weight.GENERAL),
            sign("DUE TO PREEMPTION", None, Weight.GENERAL),
            sign("DUE TO NODE", None, Weight.GENERAL),
            sign("CANCELLED AT", None, Weight.GENERAL),
            sign("The node was low on resource", None, Weight.GENERAL),
            sign("Signal SIGTERM received", None, Weight.EFFECT),
            sign("Received SIGTERM", None, Weight.EFFECT),
            sign("SIGTERM received", None, Weight.EFFECT),
            sign("KeyboardInterrupt", None, Weight.EFFECT),
            sign("Gracefully exiting", None, Weight.END),
            sign("xit", exited(143), Weight.END),
        ),
        retryable=True,
        signals=(15, 2, 1),
    ),
)
