"""Compares running servers, or their saved /server_info, with a plan. Changes nothing on a server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from sglang_hydra.arguments.secrets import API_KEY_VARIABLE
from sglang_hydra.arguments.tables.order import same_release
from sglang_hydra.planning.comparing.actual import UNNAMED, Comparison, compare, record_of
from sglang_hydra.planning.comparing.difference import Difference
from sglang_hydra.planning.plan import NOT_IDENTITY, Plan
from sglang_hydra.run.launch.as_planned import failing
from sglang_hydra.run.launch.server_info import NoServerInfo, read_server_info
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import RECORD_BYTES, read_text
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict, JsonObject
from sglang_hydra.text.words import short

SCHEMA = "sglang_hydra.drift/1"
_PORTS = {"http": 80, "https": 443}
_LEAST_SHARE = 0.9
"""A server that reports a smaller share of the planned arguments does not prove anything."""
_LIKE_INFO = ("internal_states", "max_total_num_tokens")


@dataclass(frozen=True)
class Drift:
    """One server and its differences from the plan. ``problem``: why it could not be read, or why it reports too little
    to compare."""

    name: str
    compared: Comparison | None
    fields: tuple[Difference, ...] = ()
    problem: str | None = None

    def is_as_planned(self, plan: Plan) -> bool:
        """Returns whether the server was read, has the release of the plan, and matches every field."""
        if self.compared is None or self.fields or self.problem:
            return False
        return self.compared.version == UNNAMED or same_release(self.compared.version, plan.engine.version)

    def to_json(self, plan: Plan) -> JsonDict:
        known = self.compared
        return {
            "name": self.name,
            "as_planned": self.is_as_planned(plan),
            "version": known.version if known else None,
            "same": known.same if known else None,
            "of": known.of if known else None,
            "differences": [record_of(item) for item in self.fields],
            "problem": self.problem,
        }


def is_url(word: str) -> bool:
    return word.startswith(("http://", "https://"))


def is_saved_info(word: str) -> bool:
    """Returns whether a word names a file with a saved /server_info."""
    if not word.endswith(".json") or not os.path.isfile(word):
        return False
    try:
        record = _saved(word)
    except NoServerInfo:
        return False
    return "model_path" in record and any(key in record for key in _LIKE_INFO)


def drift_of(plan: Plan, words: list[str]) -> Iterator[Drift]:
    """Compares each server with the plan, by its address or its saved /server_info. Ignores the address that it listens
    on and a randomly drawn seed."""
    for word in words:
        try:
            compared = compare(plan, asked(word, plan.engine.version) if is_url(word) else _saved(word))
        except (NoServerInfo, ValueError) as failure:
            yield Drift(word, None, problem=str(failure))
            continue
        ignored = NOT_IDENTITY | ({"random_seed"} if plan.seed_drawn else set())
        fields = tuple(item for item in failing(plan, compared) if item.key not in ignored)
        planned = compared.of + len(compared.absent)
        tells = fields or compared.of >= _LEAST_SHARE * planned
        problem = None if tells else f"it reports {compared.of} of {planned} planned arguments, too few to tell"
        yield Drift(word, compared, fields, problem)


def asked(word: str, version: str = "") -> JsonObject:
    """Asks a server for its arguments, with the key from the environment; ``version`` selects the page to ask. Raises
    ConfigError (DIF002) for an invalid address, NoServerInfo for a server that does not answer."""
    try:
        url = urlsplit(word)
        host, port = url.hostname, url.port or _PORTS[url.scheme]
    except ValueError:
        host, port, url = None, 0, urlsplit("")
    if host is None or url.path.strip("/") or url.query or url.username:
        message = f"{short(word)} is no address of a server"
        raise ConfigError(Finding("error", "DIF002", message, hint="http://HOST:PORT, without a path"))
    key = os.environ.get(API_KEY_VARIABLE)
    return read_server_info(host, port, key, version, secure=url.scheme == "https")


def _saved(word: str) -> Mapping[str, object]:
    try:
        record = read_json(read_text(Path(word), RECORD_BYTES), "record")
    except (OSError, ValueError, RecursionError) as failure:
        why = failure.strerror if isinstance(failure, OSError) else "it is no JSON"
        raise NoServerInfo(f"it cannot be read: {why}") from failure
    if not isinstance(record, dict):
        raise NoServerInfo("it holds no mapping")
    return record
