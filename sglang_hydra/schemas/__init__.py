"""The JSON Schemas of every file and ``--json`` output for other programs: NAME.schema.json.

A record names its schema: ``{"schema": "sglang_hydra.plan/3", ...}``. Additions keep the number; renaming or removing a
key raises it."""

from __future__ import annotations

from sglang_hydra.text.json_types import JsonDict


def schema_of(kind: str = "plan") -> JsonDict:
    """Returns the JSON schema of a file or a ``--json`` output: ``plan`` of plan.json, ``check``, ``fit``, ``export``
    and others in ``docs/reference/files.md``. Raises FileNotFoundError for an unknown kind."""
    import json
    from importlib.resources import files

    names = sorted(file.name[:-12] for file in files(__name__).iterdir() if file.name.endswith(".schema.json"))
    if kind not in names:
        raise FileNotFoundError(f"there is no schema {kind!r}; there are {', '.join(names)}")
    text = (files(__name__) / f"{kind}.schema.json").read_text(encoding="utf-8")
    schema: JsonDict = json.loads(text)
    return schema
