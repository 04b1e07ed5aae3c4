"""The machine under the server: ports, disks, rights, limits."""

from __future__ import annotations

import re

from sglang_hydra.run.diagnose.failure_class import FailureClass, Weight, sign

_PORT = re.compile(
    r"address \('?([\w.:-]*)'?, (\d{1,5})"
    r"|(?:port:? ?|tcp://[\w.*:\[\]-]{1,80}:|:)(\d{2,5})\b(?=.{0,200}(?:in use|EADDRINUSE))"
    r"|[Pp]ort (\d{2,5})|tcp://\S{1,80}:(\d{2,5})"
)
_PATH = re.compile(r"(?:Errno \d+\] [\w ]+: |denied: |device: )['\"]([^'\"]{1,300})['\"]")


def _port(line: str) -> str | None:
    found = _PORT.search(line)
    if found is None:
        return None
    number = next(number for number in (found[2], found[3], found[4], found[5]) if number)
    return f"port {number}" + (f" on {found[1]}" if found[1] else "")


def _path(line: str) -> str | None:
    found = _PATH.search(line)
    return found[1] if found else None


CLASSES = (
    FailureClass(
        "DIA042",
        "port_in_use",
        "a port that the server needs is taken",
        "Beside the HTTP port there are dist_init_addr, nccl_port and the bootstrap port of disaggregation. Inferred: "
        "another server has it, an earlier one that was not stopped, or a second one with the same ports.",
        "port=0, for one that is free; or ss -ltnp, to see who listens there; or another port in dist_init_addr, "
        "nccl_port or disaggregation_bootstrap_port, whichever the line names",
        (
            sign("ddress already in use"),
            sign("EADDRINUSE"),
            sign("is already in use", r"(?i)\bport\b(?!.*trying port)", exception=False),
            sign("No free port available"),
            sign("is not available in", r"at \d+ is not available in [\d.]+ seconds"),
            sign("Port is already in use"),
            sign("port is already allocated"),
            sign("Could not bind port"),
            sign("Only one usage of each socket address"),
        ),
        retryable=True,
        fields=("port", "dist_init_addr", "nccl_port"),
        details=_port,
    ),
    FailureClass(
        "DIA043",
        "bad_address",
        "the server cannot listen on this address",
        "host must be an address of this machine: 127.0.0.1 for this machine only, 0.0.0.0 for all of its networks. "
        "Linux leaves ports below 1024 to root unless it is set up otherwise (ip_unprivileged_port_start).",
        "host=0.0.0.0, or host=127.0.0.1; or port=30000",
        (
            sign("annot assign requested address"),
            sign("[Errno 99]"),
            sign("error while attempting to bind on address", r"(?!.*already in use)", Weight.GENERAL),
            sign("Errno 13", r"attempting to bind"),
            sign(
                "gaierror",
                r"gaierror.*(?:Name or service not known|nodename nor servname|Temporary failure)",
                Weight.GENERAL,
                frame=r"uvicorn|asyncio|zmq|network\.py",
            ),
            sign("No such device (addr="),
            sign("Invalid argument (addr="),
        ),
        fields=("host", "port"),
    ),
    FailureClass(
        "DIA044",
        "disk_full",
        "a disk is full",
        "Inferred: downloads, compiled kernels, logs or dumps did not fit. In a container it is often a small overlay "
        "and not the disk that was meant; inodes and quotas count too.",
        "df -h and df -i, where the path of the line lies; or download_dir=/large/disk, or HF_HOME=/large/disk; or "
        "TRITON_CACHE_DIR, FLASHINFER_WORKSPACE_BASE and TMPDIR on it",
        (
            sign("No space left on device"),
            sign("Disk quota exceeded"),
            sign("Not enough free disk space", None, Weight.EFFECT, in_warning=True),
            sign("not enough disk space"),
            sign("ephemeral-storage", r"(?i)exceed|evict|low on resource|limit"),
            sign("DiskPressure"),
        ),
        fields=("download_dir", "file_storage_path"),
        details=_path,
    ),
    FailureClass(
        "DIA045",
        "too_many_open_files",
        "the limit of open files was reached",
        "Each connection and pipe is an open file. SGLang raises the limit to 65,535; where the hard limit is lower "
        "the attempt fails and the old limit stays. Inferred: a container or a service manager set it.",
        "ulimit -n 65535 before the start; or docker run --ulimit nofile=65535; or LimitNOFILE in a systemd unit",
        (
            sign("Too many open files"),
            sign("EMFILE"),
            sign("[Errno 24]"),
        ),
    ),
    FailureClass(
        "DIA046",
        "permission_denied",
        "a file or folder may not be read or written",
        "Inferred: the server runs as another user than the one that owns the cache or the model, or the mount is "
        "read-only.",
        "chown or chmod for the user of the server; or HF_HOME, TRITON_CACHE_DIR and TMPDIR in a folder that it may "
        "write; or the mount without :ro",
        (
            sign(
                "Permission denied",
                r"(?i)errno 13|permission denied: |cannot open|mkdir|PermissionError|failed to open|"
                r"can't (?:open|create)",
            ),
            sign("PermissionError"),
            sign("Read-only file system"),
            sign("Operation not permitted", r"Errno 1\b"),
        ),
        fields=("download_dir", "model_path"),
        details=_path,
    ),
    FailureClass(
        "DIA047",
        "too_many_processes",
        "the limit of processes and threads was reached",
        "Inferred: each rank starts many threads (OpenMP, tokenizers, NCCL), and a container's pids limit or the "
        "user's nproc forbids more.",
        "docker run --pids-limit -1, or pids limit of the Pod; or ulimit -u unlimited; or OMP_NUM_THREADS=8",
        (
            sign("can't start new thread"),
            sign("pthread_create failed", in_warning=True),
            sign("libgomp: Thread creation failed"),
            sign("Resource temporarily unavailable", None, Weight.GENERAL),
            sign("BlockingIOError: [Errno 11]"),
            sign("retry: Resource temporarily unavailable"),
            sign("std::system_error", r"Resource temporarily"),
        ),
    ),
    FailureClass(
        "DIA048",
        "storage_error",
        "reading from the disk or the network file system failed",
        "The device or the file server gave an error instead of the data. Inferred: a mount that went away does the "
        "same.",
        "the mount and its server; or the model copied to a local disk; or dmesg, for a disk that fails",
        (
            sign("Input/output error"),
            sign("[Errno 5]"),
            sign("Stale file handle"),
            sign("[Errno 116]"),
            sign("Transport endpoint is not connected"),
            sign("[Errno 121] Remote I/O error"),
            sign("Structure needs cleaning"),
        ),
        retryable=True,
        fields=("model_path", "download_dir"),
    ),
)
