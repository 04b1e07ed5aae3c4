"""How many reviews a second the webhook answers, over HTTPS on one machine: ``python benchmarks/admission.py``.

First, objects that were judged before, each on a connection that stays open, as an API server has it. Then published
recipes with words that were never asked, under the newest release, whose answers are recorded. Rates are by the CPU
time of this process (webhook and client), which other programs disturb less, and by the clock."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sglang_hydra.arguments.rendering import render
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.recipes import recipes
from sglang_hydra.releases.records import newest_release
from sglang_hydra.text import user_settings
from tests.gate.cluster import Client, container, judge, made, review, webhook

KNOWN, WARM = 2000, 150
"""``WARM`` of the other objects come first: they read the tables of the release and the presets once."""


def recorded(first_port: int) -> Iterator[bytes]:
    """Yields a review of each published recipe with a port of its own."""
    composer, release = Composer(), newest_release()
    for number, (id, recipe) in enumerate(sorted(recipes().items())):
        composition = composer.compose([Request(f"recipe={id}", "benchmark")])
        words = {**composition.intent, "port": first_port + number}
        path = str(words.pop("model_path"))
        try:
            flags = render(words, release)
        except ValueError:  # an argument that the release has no more
            continue
        server = container(*flags, model=path, image=f"lmsysorg/sglang:v{release}")
        stored = made("Deployment", server, name=id.replace("_", "-"))
        stored["spec"]["template"]["spec"]["nodeSelector"] = {"gpu": recipe.gpu}
        yield review(stored)


def measure(name: str, client: Client, bodies: Sequence[bytes]) -> None:
    times, used = [], time.process_time()
    for body in bodies:
        start = time.perf_counter()
        client.post(body)
        times.append(time.perf_counter() - start)
    used = time.process_time() - used
    times.sort()
    by_core, rate, p99 = len(times) / used, len(times) / sum(times), times[int(len(times) * 0.99)] * 1000
    rates = f"{by_core:7.1f} a second of a core  {rate:7.1f} by the clock"
    print(f"{name:14} {len(times):6} reviews  {rates}  p99 {p99:6.1f} ms")


def main() -> int:
    user_settings.begin({"fetch": ["false"]})
    with tempfile.TemporaryDirectory() as made_here:
        os.environ["SGLANG_HYDRA_CACHE"] = made_here  # no wheels, and no answers of earlier runs
        with webhook(Path(made_here), judge("gpu=h100")) as (server, cert, _):
            client = Client(server.server_address[1], cert)
            few = [review(made("Deployment", container(f"--port={30_000 + number}"))) for number in range(10)]
            for body in few:
                client.post(body)
            measure("judged before", client, few * (KNOWN // len(few)))
            for body in [*recorded(20_000)][:WARM]:
                client.post(body)
            measure("other words", client, [*recorded(40_000), *recorded(50_000)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
