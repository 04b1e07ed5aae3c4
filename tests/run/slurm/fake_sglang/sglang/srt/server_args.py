"""Stands in for SGLang's arguments: the few that the stand-in server needs."""

from __future__ import annotations

import argparse


def prepare_server_args(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-path")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--dist-init-addr")
    parser.add_argument("--tp-size", type=int, default=1)
    parser.add_argument("--api-key")
    known, _ = parser.parse_known_args(argv)
    return known
