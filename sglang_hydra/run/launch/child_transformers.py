"""Program that runs in the engine's interpreter: ``transformers serve``, with the setup that it needs.

    python child_transformers.py MODEL FOLDER NAME [flags of transformers serve]

NAME is the name to serve the model under. The server knows a local model only by its path, so this program makes FOLDER
with a link NAME in it and changes into FOLDER. Imports nothing of this package, because it is run by its path."""

from __future__ import annotations

import contextlib
import os
import sys


def under_name(model: str, folder: str, name: str) -> str:
    """Makes ``name`` a link to the model in ``folder``, and changes into ``folder``."""
    link = os.path.join(folder, name)
    os.makedirs(os.path.dirname(link), exist_ok=True)
    # The folder belongs to this pair of model and name: an existing link is the same.
    with contextlib.suppress(FileExistsError):
        os.symlink(model, link)
    os.chdir(folder)
    return name


def main(model: str, folder: str, name: str, *flags: str) -> None:
    if os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):
        sys.path[0] = os.getcwd()
    from huggingface_hub import constants

    # /v1/models fails without this folder. If it cannot be made, only that page is lost.
    with contextlib.suppress(OSError):
        os.makedirs(constants.HF_HUB_CACHE, exist_ok=True)
    # Its own main() would first query the package index for a newer release.
    from transformers.cli.transformers import app

    sys.argv = ["transformers", "serve", under_name(model, folder, name) if name else model, *flags]
    app()


if __name__ == "__main__":
    main(*sys.argv[1:])
