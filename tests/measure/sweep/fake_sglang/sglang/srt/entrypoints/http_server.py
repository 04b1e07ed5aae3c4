"""Stands in for SGLang's server: the one of the tests of bench/, with its prefix cache and its faults."""

from __future__ import annotations

import argparse
import asyncio
import json
import os

from tests.measure.bench import fake_sglang


def launch_server(args: argparse.Namespace) -> None:
    options = json.loads(os.environ.get("FAKE_SGLANG", "{}"))
    fake_sglang.count_start(options)
    asyncio.run(fake_sglang.serve(args.port, options))
