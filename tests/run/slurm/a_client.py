"""A function that is submitted as a job: it starts a server there, asks it, and leaves what it was answered."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

from sglang_hydra.run.launch.slurm.inside import ServerSpec, server_of


def ask_in_job(spec: ServerSpec, count: int) -> None:
    with server_of(spec) as server:
        address = urlsplit(server.launch.url)
        statuses = []
        for _ in range(count):
            connection = http.client.HTTPConnection(str(address.hostname), address.port or 80, timeout=60)
            connection.request("POST", "/v1/chat/completions", "{}")
            statuses.append(str(connection.getresponse().status))
            connection.close()
        (spec.folder / "answers.txt").write_text("\n".join(statuses))
