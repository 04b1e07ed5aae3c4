"""API keys that were typed: out of everything that a sweep keeps or carries elsewhere."""

from __future__ import annotations

import os
from dataclasses import replace

from sglang_hydra.arguments.secrets import hide_typed_keys
from sglang_hydra.compose.overrides import Request
from sglang_hydra.measure.sweep.points import Sweep


def without_keys(sweep: Sweep) -> Sweep:
    """The sweep with every API key that was typed replaced by its reference: words are kept in files, and a job may be
    carried elsewhere as one. The key itself goes into this process's environment, which jobs inherit."""
    source = replace(sweep.source, requests=tuple(_without_key(request) for request in sweep.source.requests))
    groups = tuple(
        replace(
            group,
            requests=tuple(_without_key(request) for request in group.requests),
            points=tuple(replace(point, words=_hidden(point.words)) for point in group.points),
        )
        for group in sweep.groups
    )
    left_out = tuple((_hidden(words), ids) for words, ids in sweep.left_out)
    return replace(sweep, source=source, groups=groups, words=_hidden(sweep.words), left_out=left_out)


def _hidden(words: tuple[str, ...]) -> tuple[str, ...]:
    changed = list(words)
    hide_typed_keys(changed, os.environ)
    return tuple(changed)


def _without_key(request: Request) -> Request:
    (text,) = _hidden((request.text,))
    return request if text == request.text else Request(text, request.place, request.layer)
