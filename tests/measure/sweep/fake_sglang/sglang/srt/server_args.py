"""Stands in for SGLang's arguments: the few that the stand-in server needs."""

from __future__ import annotations

import argparse


def prepare_server_args(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    known, _ = parser.parse_known_args(argv)
    return known
