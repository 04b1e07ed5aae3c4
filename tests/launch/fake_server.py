"""A server for tests: a health page, and the faults that its arguments ask for. The marker makes it findable.

python fake_server.py MARKER PORT [fault ...]
"""

from __future__ import annotations

import http.server
import os
import signal
import subprocess
import sys
import threading
import time

NAP = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


class Page(http.server.BaseHTTPRequestHandler):
    unhealthy_answers = 0
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


def main(marker: str, port: str, *faults: str) -> None:
    for fault in faults:
        if fault == "crash":
            print("RuntimeError: out of luck", file=sys.stderr)
            sys.exit(7)
        elif fault == "leave":
            sys.exit(0)
        elif fault == "hang":
            time.sleep(600)
        elif fault == "sick":
            Page.unhealthy_answers = 1 << 30
        elif fault == "slow":
            Page.unhealthy_answers = 3
        elif fault == "stubborn":
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda number, frame: print("I do not stop", file=sys.stderr, flush=True))
        elif fault == "child":
            subprocess.Popen([sys.executable, "-c", NAP, marker])
        elif fault == "children":
            # Neither ends by itself or at a SIGTERM, and one has left the process group.
            subprocess.Popen([sys.executable, "-c", NAP, marker])
            subprocess.Popen([sys.executable, "-c", NAP, marker], start_new_session=True)
        elif fault == "flood":
            threading.Thread(target=flood, daemon=True).start()
        elif fault == "key":
            with open(int(os.environ.pop("SGLANG_HYDRA_KEY_FD")), encoding="utf-8") as pipe:
                Page.expected_key = pipe.read()
            print(f"my key is {Page.expected_key}, quoted {Page.expected_key!r}", flush=True)
    print("Load weight begin", flush=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Page)
    server.serve_forever()


def flood() -> None:
    while True:
        print("x" * 1000, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
