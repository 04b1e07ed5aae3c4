"""For the tests of the command line: runs it in this process and judges what it writes for machines."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jsonschema
import pytest
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for

from sglang_hydra.cli.main import entry
from sglang_hydra.schemas import schema_of
from tests.plans import without_accelerator, without_engines

H200 = ["gpu=h200", "model=qwen3_8b"]


class Printed(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Printed]


OF_THE_RUN = ("SGLANG_HYDRA_CACHE", "SGLANG_HYDRA_OFFLINE", "SGLANG_HYDRA_RELEASE")
"""What the tests themselves set: the cache is their own, no wheel is fetched, some are of one release."""


def runner(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs command lines as on a machine without an engine, an accelerator and SGLANG_* variables."""
    without_engines(monkeypatch)
    without_accelerator(monkeypatch)
    for name in [name for name in os.environ if name.startswith("SGLANG_") and name not in OF_THE_RUN]:
        monkeypatch.delenv(name)

    def of(*words: str) -> Printed:
        code = entry(words)
        return Printed(code, *capsys.readouterr())

    return of


def must_follow(record: object, kind: str) -> None:
    """Raises jsonschema.ValidationError for a record that does not follow our schema of this kind."""
    error = jsonschema.exceptions.best_match(_validator_of(kind).iter_errors(record))
    if error is not None:
        raise error


@functools.cache
def _validator_of(kind: str) -> Validator:
    schema = schema_of(kind)
    validator = validator_for(schema)
    validator.check_schema(schema)
    return validator(schema)


def valid(kind: str, text: str) -> Any:
    """The record in ``text``, which is JSON and follows its schema."""
    record = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    must_follow(record, kind)
    return record
