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


@rule("LOD002", (797, 801))
def recognise_gguf(args: ServerArgs, facts: Facts) -> Outcome:
    """What: load_format auto or gguf, with a model_path that is a GGUF file, sets load_format and quantization to gguf.
    Why: such a file holds its own quantized tensors. SGLang knows it by its extension or its first four bytes.
    Example: model_path=tiny.gguf -> load_format=gguf quantization=gguf"""
    if args.load_format not in ("auto", "gguf") or not facts.model.gguf:
        return None
    return Change(f"{args.model_path} is a GGUF file", load_format="gguf", quantization="gguf")


@rule("LOD003", (804, 805))
def load_from_remote(args: ServerArgs, facts: Facts) -> Outcome:
    """What: a model_path with :// in it sets load_format=remote, also over a given one.
    Why: only the remote loader reads weights through a connector (s3, redis, ...).
    Example: model_path=s3://bucket/model load_format=safetensors -> load_format=remote"""
    if not is_remote(args.model_path):
        return None
    return Change(f"{args.model_path} is remote", load_format="remote")


@rule("LOD004", (806, 807))
def no_custom_weight_loader(args: ServerArgs, facts: Facts) -> Outcome:
    """What: custom_weight_loader, if unset, is the empty list.
    Why: code that iterates over the loaders needs no test for null.
    Example: gpu=h100 -> custom_weight_loader=[]"""
    if args.custom_weight_loader is not None:
        return None
    return Change("none was named", custom_weight_loader=[])
