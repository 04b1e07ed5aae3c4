"""Stands in for SGLang's load generator: the flags that matter, real requests, a result as it writes it."""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import random
import time
from typing import Any
from urllib.parse import urlsplit


def post(base: str, path: str, body: dict[str, Any] | None = None) -> bytes:
    place = urlsplit(base)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
    try:
        connection.request("POST", path, json.dumps(body) if body else None)
        return connection.getresponse().read()
    finally:
        connection.close()


async def main(args: argparse.Namespace) -> None:
    draw, free = random.Random(args.seed), asyncio.Semaphore(args.max_concurrency)
    latencies: list[float] = []
    errors: list[str] = []

    async def ask() -> None:
        ids = [draw.randrange(1000) for _ in range(args.random_input_len)]
        body = {"input_ids": ids, "sampling_params": {"max_new_tokens": args.random_output_len}, "stream": False}
        async with free:
            began = time.perf_counter()
            try:
                await asyncio.to_thread(post, args.base_url, "/generate", body)
                errors.append("")
            except (OSError, http.client.HTTPException) as failure:
                errors.append(str(failure) or "no answer")
            latencies.append(time.perf_counter() - began)

    post(args.base_url, "/flush_cache")
    began = time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(args.num_prompts)))
    count = args.num_prompts
    record = {
        "duration": time.perf_counter() - began,
        "input_lens": [args.random_input_len] * count,
        "output_lens": [args.random_output_len if not error else 0 for error in errors],
        "ttfts": latencies,
        "itls": [[0.0] * (args.random_output_len - 1)] * count,
        "errors": errors,
    }
    with open(args.output_file, "w", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for flag in ("--seed", "--max-concurrency", "--random-input-len", "--random-output-len", "--num-prompts"):
        parser.add_argument(flag, type=int)
    for flag in ("--base-url", "--output-file"):
        parser.add_argument(flag)
    asyncio.run(main(parser.parse_known_args()[0]))
