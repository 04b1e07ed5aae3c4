"""Program that runs in the engine's interpreter: SGLang's server or its router, with the API key from a pipe.

    python child_sglang.py [SGLang's own flags]
    python child_sglang.py router [the router's own flags]

SGLang takes its key only from ``--api-key``, which everyone on the machine can read. Here the environment variable
SGLANG_HYDRA_KEY_FD gives the number of an inherited pipe, and the key comes through it. The rest equals ``python -m
sglang.launch_server`` and ``python -m sglang_router.launch_router``. Imports nothing of this package, because it is run
by its path."""

from __future__ import annotations

import os
import sys

KEY_FD = "SGLANG_HYDRA_KEY_FD"
ROUTER = "router"


class Masked(str):
    """A text whose ``repr`` is hidden: SGLang logs all its arguments at startup."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return (str, (str(self),))


def read_key() -> str | None:
    """Reads the key from the pipe that the environment names; None without one."""
    number = os.environ.pop(KEY_FD, None)
    if number is None:
        return None
    with open(int(number), "rb") as pipe:
        return pipe.read().decode()


def run_server(argv: list[str], key: str | None) -> None:
    from sglang.srt.entrypoints.http_server import launch_server
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    server_args = prepare_server_args(argv)
    if key is not None:
        server_args.api_key = Masked(key)
    try:
        launch_server(server_args)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


def run_router(argv: list[str], key: str | None) -> None:
    from sglang_router.launch_router import launch_router, parse_router_args

    args = parse_router_args(argv)
    # The first releases have no key.
    if key is not None and hasattr(args, "api_key"):
        args.api_key = key
    launch_router(args)


def main(argv: list[str]) -> None:
    key = read_key()
    # This folder must not be an import path; `python -m` puts the current folder first.
    if os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):
        sys.path[0] = os.getcwd()
    if argv[:1] == [ROUTER]:
        run_router(argv[1:], key)
    else:
        run_server(argv, key)


if __name__ == "__main__":
    main(sys.argv[1:])
