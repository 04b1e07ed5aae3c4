"""An environment that looks like one with SGLang 0.5.2 and is none: its server answers what a router asks.

``environment(folder)`` makes it and gives its interpreter. The server takes SGLang's flags, remembers what was posted
(GET /seen). With ``FAKE_CRASH=FILE`` in its environment one of them, the first that makes the file, ends before it
listens; with ``FAKE_HANG`` set none is ever ready, with ``FAKE_SILENT`` none says what it runs with.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_SERVER = """
import http.server, json, os, sys, threading


def flags(argv):
    words, values = list(argv), {}
    while words:
        name = words.pop(0)[2:].replace("-", "_")
        values[name] = words.pop(0) if words and not words[0].startswith("--") else True
    return values


class Args:
    def __init__(self, argv):
        self.values = flags(argv)
        self.api_key = None


class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    args = None
    seen = []
    lock = threading.Lock()

    def do_GET(self):
        if self.path == "/health":
            self.answer(200, {})
        elif not self.allowed():
            self.answer(401, {"error": "Unauthorized"})
        elif self.path == "/seen":
            with Page.lock:
                self.answer(200, list(Page.seen))
        elif os.environ.get("FAKE_SILENT"):
            self.answer(500, {})
        elif self.path in ("/get_server_info", "/get_model_info"):
            self.answer(200, {"model_path": self.values["model_path"], "tp_size": 1, "dp_size": 1, "version": "0.5.2"})
        elif self.path == "/get_load":
            self.answer(200, [{"load": 0}])
        else:
            self.answer(404, {})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.allowed():
            self.answer(401, {"error": "Unauthorized"})
            return
        with Page.lock:
            Page.seen.append({"path": self.path, "body": body})
        words = [self.values["port"], "says", "hello"]
        if not body.get("stream"):
            self.answer(200, {"choices": [{"message": {"role": "assistant", "content": " ".join(words)}}]})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for word in words:
            self.chunk(json.dumps({"choices": [{"index": 0, "delta": {"content": word}}]}))
        self.chunk("[DONE]")
        self.wfile.write(b"0\\r\\n\\r\\n")

    def chunk(self, data):
        event = f"data: {data}\\n\\n".encode()
        self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(event), event))
        self.wfile.flush()

    def allowed(self):
        key = Page.args.api_key
        return key is None or self.headers.get("Authorization") == f"Bearer {key}"

    def answer(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @property
    def values(self):
        return Page.args.values

    def log_message(self, format, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, address):
        if not isinstance(sys.exc_info()[1], OSError):  # a client that has gone
            super().handle_error(request, address)


def first_at(file):
    try:
        open(file or "", "x").close()
    except OSError:
        return False
    return True


def launch_server(args):
    port = args.values.get("port", "30000")
    args.values["port"] = port
    if first_at(os.environ.get("FAKE_CRASH")):
        print("RuntimeError: made to fail", file=sys.stderr, flush=True)
        sys.exit(7)
    if os.environ.get("FAKE_HANG"):
        print("Load weight begin", flush=True)
        threading.Event().wait()
    Page.args = args
    print("Load weight begin", flush=True)
    Server((args.values.get("host", "127.0.0.1"), int(port)), Page).serve_forever()
"""

_MODULES = {
    "sglang/__init__.py": "",
    "sglang/srt/__init__.py": "",
    "sglang/srt/entrypoints/__init__.py": "",
    "sglang/srt/entrypoints/http_server.py": _SERVER,
    "sglang/srt/server_args.py": (
        "def prepare_server_args(argv):\n"
        "    from sglang.srt.entrypoints.http_server import Args\n"
        "    return Args(argv)\n"
    ),
    "sglang/srt/utils.py": "def kill_process_tree(pid, include_parent=True):\n    pass\n",
    "sglang-0.5.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.2\n",
}


def environment(folder: Path) -> Path:
    """Makes the environment in ``folder``; its interpreter."""
    packages = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for name, content in _MODULES.items():
        file = packages / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    (folder / "pyvenv.cfg").write_text("include-system-site-packages = false\n", encoding="utf-8")
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{sys.executable}" "$@"\n', encoding="utf-8")
    os.chmod(python, 0o755)
    return python
