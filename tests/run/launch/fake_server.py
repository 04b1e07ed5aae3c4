"""A server for tests: starts as SGLang does, has a health page, and the faults that its arguments ask for.

python fake_server.py MARKER PORT [fault ...]

The marker makes it findable. A fault ``STAGE:CRASH`` ends it at a stage of the start (``CRASHES``) with the words that
the software then prints; the others are in ``main``.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

NAP = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
FORK_AND_END = "import os, sys; os.fork() or os.execv(sys.executable, [sys.executable, '-c', sys.argv[2], sys.argv[1]])"

# The lines of a start, in their order; those of 0.5.2.
STAGES = {
    "args": "server_args=ServerArgs(model_path='/models/tiny', tp_size=1, mem_fraction_static=0.88)",
    "ranks": "Init torch distributed begin.",
    "load": "Load weight begin. avail mem=78.58 GB",
    "loaded": "Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.50 GB, mem usage=15.08 GB.",
    "kv": "KV Cache is allocated. #tokens: 430118, K size: 26.25 GB, V size: 26.25 GB",
    "graphs": "Capture cuda graph begin. This can take up to several minutes. avail mem=8.30 GB",
    "graphed": "Capture cuda graph end. Time elapsed: 4.61 s. mem usage=1.02 GB. avail mem=7.28 GB.",
}
MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB "
    "of which 1.05 GiB is free."
)
CRASHES = {
    "memory": [MEMORY],
    "pool": ["RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."],
    "graph": [f"Exception: Capture cuda graph failed: {MEMORY}"],
    "rendezvous": [
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."
    ],
    "shard": ["FileNotFoundError: No such file or directory: '/models/tiny/model-00002-of-00003.safetensors'"],
    "architecture": ["ValueError: Model architectures ['NewForCausalLM'] are not supported for now."],
    "disk": ["OSError: [Errno 28] No space left on device: '/cache/hub/models--tiny/blobs/1.incomplete'"],
    "address": [
        "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use"
    ],
    "flag": [
        "usage: launch_server.py [-h] --model-path MODEL_PATH",
        "launch_server.py: error: unrecognized arguments: --fast",
    ],
    "wordless": [],
}


def main(marker: str, port: str, *faults: str) -> None:
    crashes = dict(fault.split(":") for fault in faults if ":" in fault)
    for fault in faults:
        if fault == "children":
            # Neither ends by itself or at a SIGTERM, and one has left the process group.
            spawn(marker, NAP)
            spawn(marker, NAP, start_new_session=True)
        elif fault == "child":
            spawn(marker, NAP)
        elif fault == "zombies":
            # Some end and are never collected, one has an orphan.
            for _ in range(3):
                spawn(marker, "")
            spawn(marker, FORK_AND_END, NAP)
        elif fault == "stubborn":
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda number, frame: print("I do not stop", file=sys.stderr, flush=True))
        elif fault == "flood":
            threading.Thread(target=flood, daemon=True).start()
        elif fault == "crash":
            print("RuntimeError: out of luck", file=sys.stderr)
            sys.exit(7)
        elif fault == "leave":
            sys.exit(0)
        elif fault == "hang":
            time.sleep(600)
    for stage, line in STAGES.items():
        print(f"[2026-01-02 03:04:05] {line}", file=sys.stderr, flush=True)
        if stage in crashes:
            crash(crashes[stage])
    if "portless" in faults:
        words = f"error while attempting to bind on address ('127.0.0.1', {port}): address already in use"
        print(f"ERROR:    [Errno 98] {words}", file=sys.stderr, flush=True)
        time.sleep(600)
    serve(int(port), faults)


def spawn(marker: str, program: str, *words: str, **settings: bool) -> None:
    import subprocess

    subprocess.Popen([sys.executable, "-S", "-c", program, marker, *words], **settings)  # type: ignore[call-overload]


def crash(how: str) -> None:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "fault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "hang":
        time.sleep(600)
    for line in CRASHES[how]:
        print(line, file=sys.stderr, flush=True)
    if how in ("memory", "pool", "graph", "shard", "architecture"):
        # As SGLang ends where a scheduler fails: its parent is told, and kills everything and itself.
        told = "Received sigquit from a child process. It usually means the child failed."
        print(told, file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(2 if how == "flag" else 1)


def serve(port: int, faults: tuple[str, ...]) -> None:
    import http.server
    import socket

    class Page(http.server.BaseHTTPRequestHandler):
        unhealthy_answers = {"sick": 1 << 30, "slow": 3}.get(next((f for f in faults if f in ("sick", "slow")), ""), 0)
        expected_key: str | None = None

        def do_GET(self) -> None:
            if self.path == "/health":
                Page.unhealthy_answers -= 1
                self._answer(503 if Page.unhealthy_answers >= 0 else 200)
            elif self.path == "/die":
                os._exit(3)
            elif self.path == "/end":
                os._exit(0)
            elif self.headers.get("Authorization") == f"Bearer {Page.expected_key}":
                self._answer(200)
            else:
                self._answer(401)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            print("page", format % args, flush=True)

    if "key" in faults:
        with open(int(os.environ.pop("SGLANG_HYDRA_KEY_FD")), encoding="utf-8") as pipe:
            Page.expected_key = pipe.read()
        print(f"my key is {Page.expected_key}, quoted {Page.expected_key!r}", flush=True)

    class Server(http.server.ThreadingHTTPServer):
        def server_bind(self) -> None:
            if "reuse" in faults:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            super().server_bind()

    server = Server(("127.0.0.1", port), Page)
    # To the same stream as all before it: what is written to two may be read in another order.
    print("The server is fired up and ready to roll!", file=sys.stderr, flush=True)
    server.serve_forever()


def flood() -> None:
    while True:
        print("x" * 1000, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
