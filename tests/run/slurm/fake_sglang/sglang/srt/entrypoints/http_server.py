"""Stands in for SGLang's server: ranks meet at the head's address, then the first one answers and the others only tell
their health. FAKE_FAULT in the environment asks for a fault, FAKE_FAULT_RANK for the rank that has it.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import signal
import socket
import sys
import time

DEADLINE_S = 60.0


class Page(http.server.BaseHTTPRequestHandler):
    key: str | None = None
    rank = 0
    arguments: dict[str, object] = {}
    seen: list[str] = []

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(200, {})
        elif self.path == "/get_model_info" and Page.rank == 0:
            self.answer(200, {"model_path": Page.arguments["model_path"], "is_generation": True})
        elif self.path == "/get_server_info" and Page.rank == 0:
            self.answer(200, {**Page.arguments, "version": "0.5.2"})
        elif self.path == "/die":
            os._exit(9)
        else:
            self.answer(404, {})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))) or "{}")
        if Page.rank != 0:
            self.answer(404, {})
        elif Page.key is not None and self.headers.get("Authorization") != f"Bearer {Page.key}":
            self.answer(401, {})
        else:
            answer = {"choices": [{"message": {"content": "hello"}}], "model": Page.arguments["model_path"]}
            environment = {name: os.environ.get(name) for name in ("HF_TOKEN", "CUDA_VISIBLE_DEVICES", "PYTHONPATH")}
            told = {name: value for name, value in asked.items() if name.startswith("bootstrap")}
            node = os.environ.get("SLURMD_NODENAME")
            self.answer(200, {**answer, "ranks": Page.seen, "env": environment, "bootstrap": told, "node": node})

    def answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


def launch_server(args: argparse.Namespace) -> None:
    Page.key, Page.rank, Page.arguments = args.api_key, args.node_rank, vars(args)
    say(f"server_args={args!r} cuda={os.environ.get('CUDA_VISIBLE_DEVICES')} node={os.environ.get('SLURMD_NODENAME')}")
    faulty = os.environ.get("FAKE_FAULT_RANK", "0") == str(args.node_rank)
    fault = os.environ.get("FAKE_FAULT", "") if faulty else ""
    if fault == "crash":
        sys.exit("RuntimeError: out of luck")
    if fault == "memory":
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79.10 GiB in all.")
    if fault == "stubborn":
        signal.signal(signal.SIGTERM, lambda number, frame: say("I do not stop"))
    if args.nnodes > 1:
        meet(args)
    say("Load weight begin")
    # The nodes of a test's Slurm are one machine, and an exported script gives all ranks one port.
    port = 0 if args.node_rank > 0 and "SLURM_PROCID" in os.environ else args.port
    server = http.server.ThreadingHTTPServer((args.host, port), Page)
    say("The server is fired up and ready to roll!")
    try:
        server.serve_forever()
    finally:
        say("stopped")


def meet(args: argparse.Namespace) -> None:
    """Rank 0 waits for one line of every other rank at the head's address."""
    host, _, port = args.dist_init_addr.rpartition(":")
    if args.node_rank == 0:
        with socket.create_server((host.strip("[]"), int(port))) as listener:
            listener.settimeout(DEADLINE_S)
            while len(Page.seen) < args.nnodes - 1:
                connection, _ = listener.accept()
                with connection, connection.makefile() as lines:
                    # Whoever only looks whether somebody listens says nothing.
                    Page.seen += [line.strip() for line in [lines.readline()] if line]
        return
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=5) as connection:
                name = os.environ.get("SLURMD_NODENAME")
                connection.sendall(f"{args.node_rank} {name} {os.environ.get('CUDA_VISIBLE_DEVICES')}\n".encode())
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def say(text: str) -> None:
    print(text, flush=True)
