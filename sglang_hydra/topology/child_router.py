"""Program that runs inside the router's interpreter: sglang-router, with the API key from a pipe.

    python child_router.py [the router's own flags]

The router takes its key from ``--api-key`` only, where everyone on the machine can read it. Here the environment names
an inherited pipe (SGLANG_HYDRA_KEY_FD, a number) and the key comes through it. The rest is what
``python -m sglang_router.launch_router`` does. Imports nothing of this package: it is run by its path.
"""

from __future__ import annotations

import os
import sys

KEY_FD = "SGLANG_HYDRA_KEY_FD"


def read_key() -> str | None:
    """The key from the pipe that the environment names; None where it names none."""
    number = os.environ.pop(KEY_FD, None)
    if number is None:
        return None
    with open(int(number), "rb") as pipe:
        return pipe.read().decode()


def main(argv: list[str]) -> None:
    key = read_key()
    # This folder is no place to import from; `python -m` has the current one first.
    if os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):
        sys.path[0] = os.getcwd()
    from sglang_router.launch_router import launch_router, parse_router_args

    args = parse_router_args(argv)
    # The first releases have no key.
    if key is not None and hasattr(args, "api_key"):
        args.api_key = key
    launch_router(args)


if __name__ == "__main__":
    main(sys.argv[1:])
