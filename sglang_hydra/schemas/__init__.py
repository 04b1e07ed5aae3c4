"""The JSON Schemas of every file and every ``--json`` output that others may read: NAME.schema.json.

A record says which one it follows: ``{"schema": "sglang_hydra.plan/3", ...}``. What is added raises nothing; what is
renamed or removed raises the number.
"""

from __future__ import annotations

from sglang_hydra.text.json_types import JsonDict


def schema_of(kind: str = "plan") -> JsonDict:
    """Returns the JSON schema of a file or a ``--json`` output: ``plan`` of plan.json, ``check``, ``fit``, ``export``
    and the others of ``docs/reference/files.md``. Raises FileNotFoundError for another kind."""
    import json
    from importlib.resources import files

    text = (files(__name__) / f"{kind}.schema.json").read_text(encoding="utf-8")
    schema: JsonDict = json.loads(text)
    return schema
