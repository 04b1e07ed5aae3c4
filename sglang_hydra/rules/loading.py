"""Rules for the source and the format of the weights."""

from __future__ import annotations

import os
import re

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule
from sglang_hydra.text.json_types import Json

_REMOTE = re.compile(r".+://")


def is_remote(model_path: Json) -> bool:
    """Returns whether ``model_path`` is a URL such as s3://bucket/model. Raises TypeError for other types."""
    return not isinstance(model_path, os.PathLike) and _REMOTE.match(model_path) is not None


@rule("LOD003", (804, 805))
def load_from_remote(args: ServerArgs, facts: Facts) -> Outcome:
    """What: a model_path with :// in it sets load_format=remote, also over a given one.
    Why: only the remote loader reads weights through a connector (s3, redis, ...).
    Example: model_path=s3://bucket/model load_format=safetensors -> load_format=remote"""
    if not is_remote(args.model_path):
        return None
    return Change(f"{args.model_path} is remote", load_format="remote")
