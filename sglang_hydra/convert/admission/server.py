"""Serves the webhook over HTTPS: threads read and answer, one judges. Every wait and every size has a limit."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sglang_hydra.convert.admission.reviews import Answer, Asked, Judge, asked, response

MOST_BYTES = 3 << 20
"""The most bytes of one review: the object has at most 1.5 MiB, and may occur twice."""
_MOST_CONNECTIONS, _MOST_WAITING = 64, 32
_SOCKET_S = 5.0
_USUAL_S, _LEAST_S, _MOST_S = 8.0, 0.1, 25.0
_ANSWERING_S = 1.0
"""The part of the API server's timeout reserved to send the answer."""
_LATE = Answer(warnings=("sglang-hydra: it was not judged in time",))


class _Job:
    def __init__(self, about: Asked) -> None:
        self.about, self.done, self.answer = about, threading.Event(), _LATE


class Webhook(ThreadingHTTPServer):
    """Listens with the certificate and the key in two files; reads these again after a change. Calls ``said`` with a
    line for each denied object."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, cert: str, key: str, judge: Judge, said: Callable[[str], None]) -> None:
        self._files, self._judge, self._said = (cert, key), judge, said
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._of: tuple[float, ...] = ()
        self._load()
        self._jobs: queue.Queue[_Job] = queue.Queue(_MOST_WAITING)
        self._slots = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__((host, port), _Handler)

    def judge_forever(self, stop: threading.Event | None = None) -> None:
        """Listens, and judges in this thread, whose CPU time is limited while reading."""
        threading.Thread(target=self.serve_forever, daemon=True).start()
        while stop is None or not stop.is_set():
            with contextlib.suppress(queue.Empty):
                self._judge_one(self._jobs.get(timeout=0.2))

    def _judge_one(self, job: _Job) -> None:
        try:
            job.answer = self._judge.answer(job.about.name, job.about.manifest)
        except Exception as bug:  # noqa: BLE001 - a bug of ours must not close the cluster
            job.answer = Answer(warnings=("sglang-hydra: it was not judged, by a bug of the webhook",))
            self._said(f"not judged: {job.about.name}: {type(bug).__name__}: {bug}")
        finally:
            job.done.set()

    def answered(self, about: Asked, seconds: float) -> Answer:
        """Returns the answer to a review: at once for a cached object, else within ``seconds``."""
        answer = self._judge.known(about.manifest) if about.manifest else Answer()
        if answer is None:
            job = _Job(about)
            with contextlib.suppress(queue.Full):
                self._jobs.put_nowait(job)
                job.done.wait(seconds)
            answer = job.answer
        if answer.message:
            self._said(f"denied: {answer.message}")
        return answer

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            request.settimeout(_SOCKET_S)
            self._load()
            super().process_request_thread(self._tls.wrap_socket(request, server_side=True), client_address)
        except (OSError, ssl.SSLError):
            self.shutdown_request(request)  # no handshake, or gone
        finally:
            self._slots.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores a client that went away."""

    def _load(self) -> None:
        of = tuple(os.stat(file).st_mtime for file in self._files)
        if of != self._of:
            self._tls.load_cert_chain(*self._files)
            self._of = of


class _Handler(BaseHTTPRequestHandler):
    server: Webhook
    protocol_version = "HTTP/1.1"
    timeout = _SOCKET_S
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body in one write

    def do_GET(self) -> None:
        """Answers ``/healthz`` for the kubelet."""
        self._send(200 if self.path == "/healthz" else 404, {})

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or len(length) > 8 or int(length) > MOST_BYTES:
            self.close_connection = True
            self._send(413 if length else 411, {"error": f"a review has at most {MOST_BYTES} bytes, and says how many"})
            return
        until = time.monotonic() + self._seconds()
        body = self.rfile.read(int(length))
        try:
            about = asked(body)
        except (ValueError, RecursionError) as failure:
            self._send(400, {"error": str(failure)[:200]})
            return
        self._send(200, response(about.uid, self.server.answered(about, until - time.monotonic())))

    def _seconds(self) -> float:
        """Returns the API server's timeout from its ``?timeout=10s``, less the time to answer, in seconds."""
        stated = parse_qs(urlsplit(self.path).query).get("timeout", [""])[0]
        with contextlib.suppress(ValueError):
            return max(_LEAST_S, min(float(stated.removesuffix("s")), _MOST_S) - _ANSWERING_S)
        return _USUAL_S

    def _send(self, code: int, content: object) -> None:
        body = json.dumps(content).encode("ascii")
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Logs no requests, because their paths come from outside."""
