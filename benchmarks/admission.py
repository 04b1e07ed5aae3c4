"""How many reviews a second the webhook answers, over HTTPS on one machine: ``python benchmarks/admission.py``.

Objects that were judged before, each on a connection that stays open, as an API server has it; then new objects.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.gate.cluster import Client, container, judge, made, review, webhook

KNOWN, NEW = 2000, 10


def main() -> int:
    with tempfile.TemporaryDirectory() as made_here, webhook(Path(made_here), judge("gpu=h100")) as (server, cert, _):
        client = Client(server.server_address[1], cert)
        few = [review(made("Deployment", container(f"--port={30_000 + number}"))) for number in range(10)]
        more = [review(made("Deployment", container(f"--port={31_000 + number}"))) for number in range(NEW)]
        for body in few:
            client.post(body)
        for name, bodies in (("judged before", few * (KNOWN // len(few))), ("new", more)):
            times = []
            for body in bodies:
                start = time.perf_counter()
                client.post(body)
                times.append(time.perf_counter() - start)
            times.sort()
            rate, p99 = len(times) / sum(times), times[int(len(times) * 0.99)] * 1000
            print(f"{name:14} {len(times):6} reviews  {rate:8.1f} a second  p99 {p99:7.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
