"""Adds to a sweep's findings who set their keys, as findings on a server's arguments do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sglang_hydra.compose.composer import Composer, Composition
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.origins import Origin

SetBy = Mapping[str, Origin | Sequence[Origin]]
"""Maps keys to who set them; the last of several won."""

_GROUPS = ("bench/workload", "sweep")


def set_by(composer: Composer, composition: Composition) -> SetBy:
    """Maps each key other than arguments to who set it: an override, or the file of a chosen load or sweep."""
    found: dict[str, Origin] = {}
    for group in _GROUPS:
        option = composition.choices.get(group)
        for part in composer.preset(group, option).parts if option in composer.options(group) else ():
            node = group.partition("/")[0]
            for keys in part.key_paths():
                found[".".join((node, *keys))] = Origin(group, None, file=part.file or None, keys=keys)
    return {**found, **composition.settings}


def who_set(finding: Finding, *known: SetBy) -> str | None:
    """Returns ``bench.slo.share was set by argument 3; ...``; None if every key concerned has its default."""
    parts = []
    for name in finding.fields:
        for key in _keys(name, known):
            place = next((_place(mapping[key]) for mapping in known if mapping.get(key)), "")
            if place and f"{place}:" not in finding.message:
                parts.append(f"{key} was set by {place}")
    return "; ".join(dict.fromkeys(parts)) or None


def with_setters(findings: Sequence[Finding], *known: SetBy) -> list[Finding]:
    """Appends to each finding's message who set its keys, once."""
    who = [who_set(finding, *known) for finding in findings]
    return [
        replace(finding, message=f"{finding.message} ({words})") if words and words not in finding.message else finding
        for finding, words in zip(findings, who, strict=True)
    ]


@contextlib.contextmanager
def naming_setters(*known: SetBy) -> Iterator[None]:
    """Adds to every ConfigError from the block who set the keys concerned."""
    try:
        yield
    except ConfigError as failure:
        raise ConfigError(*with_setters(failure.findings, *known)) from failure.__cause__


def _keys(name: str, known: Sequence[SetBy]) -> list[str]:
    """Returns the key itself, or the keys below it: ``bench.slo`` means ``bench.slo.ttft_ms``."""
    if any(mapping.get(name) for mapping in known):
        return [name]
    return [key for mapping in known for key in mapping if key.startswith(f"{name}.")]


def _place(given: Origin | Sequence[Origin]) -> str:
    last = given if isinstance(given, Origin) else given[-1]
    return last.place or last.layer
