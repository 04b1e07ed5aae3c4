"""Stands in for the program that exported scripts start."""

from __future__ import annotations

import sys

from sglang.srt.entrypoints.http_server import launch_server
from sglang.srt.server_args import prepare_server_args

if __name__ == "__main__":
    launch_server(prepare_server_args(sys.argv[1:]))
