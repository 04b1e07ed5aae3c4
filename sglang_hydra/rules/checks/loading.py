"""Checks the type of model_path."""

from __future__ import annotations

import os

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule


@rule("LOD001", (797, 805))
def model_path_is_text(args: ServerArgs, facts: Facts) -> Outcome:
    """What: model_path must be text.
    Why: it names a folder, a file, a repository on the hub or a URL.
    Example: model_path=null -> refused"""
    model_path: object = args.model_path
    if isinstance(model_path, (str, os.PathLike)):
        return None
    return Refusal(
        f"model_path is {model_path!r}; it must be text",
        "model_path",
        hint="the name of a model on the hub, or its folder",
    )
