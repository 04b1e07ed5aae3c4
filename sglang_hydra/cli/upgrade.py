"""The verb ``upgrade --to VERSION OVERRIDES|FILE|COMMAND``."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sglang_hydra.compose.schema import PRIMARY_NAME
from sglang_hydra.convert.upgrade.content import content_of, kind_of, write_new
from sglang_hydra.convert.upgrade.inputs import subjects_of
from sglang_hydra.convert.upgrade.releases import release_named
from sglang_hydra.convert.upgrade.screen import upgrade_screen
from sglang_hydra.convert.upgrade.upgraded import Upgrade, upgraded
from sglang_hydra.releases.order import same_release
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import Line, text, write

if TYPE_CHECKING:
    from sglang_hydra.cli.invocation import Invocation
    from sglang_hydra.planning.upstream.ask import Authority


def run(invocation: Invocation) -> int:
    """Shows what changes, and the new command or file; writes it with ``-o``. 2 where something breaks."""
    from sglang_hydra.cli.shared import composer_of
    from sglang_hydra.text.screen import print_json

    authority = _authority(invocation)
    wanted = invocation.to or (authority.version if authority else None)
    version = release_named(wanted, "--to")
    _refuse_another(authority, version)
    written_for = release_named(invocation.since, "--from") if invocation.since is not None else None
    composer = composer_of(invocation)
    output = Path(invocation.output) if invocation.output is not None else None
    subjects = subjects_of(invocation.requests, invocation.argv, written_for, composer)
    made = [
        upgraded(composer, one, version, written_for=written_for, authority=authority, flags=_flags(invocation))
        for one in subjects
    ]
    kinds = [kind_of(one, output) for one in made]
    paths = _paths(output, made)
    contents = [
        content_of(one, kind, composer, output) if kind is not None else None
        for one, kind in zip(made, kinds, strict=True)
    ]
    if output is not None:
        write_new(paths, [content for content in contents if content is not None])
    if invocation.json:
        from sglang_hydra.convert.upgrade.record import record

        written: Sequence[Path | None] = paths or [None for _ in made]
        print_json(record(made, list(zip(kinds, written, contents, strict=True))))
    else:
        _show(made, contents, paths)
    return 0 if all(one.ok for one in made) else 2


def _show(made: Sequence[Upgrade], contents: Sequence[str | None], paths: Sequence[Path]) -> None:
    told: set[tuple[str, str]] = set()
    for number, (one, content) in enumerate(zip(made, contents, strict=True)):
        way = (one.start.version, one.plan.gpu.name)
        lines: list[Line] = [[]] if number else []
        shown = upgrade_screen(one, changes=way not in told)
        told.add(way)
        if content is not None and not paths:
            *before, last = shown
            lines += [*before, [text("The new file", "bold")]]
            lines += [[text(f"  {line}", "")] for line in content.splitlines()]
            lines += [[], last]
        else:
            lines += shown
        write(lines)
    write([[text(f"Written to {path}")] for path in paths], sys.stdout)


def _flags(invocation: Invocation) -> list[str]:
    """Where the configs of the command are."""
    flags = [word for folder in invocation.config_dirs for word in ("--config-dir", folder)]
    if invocation.config_name not in (None, PRIMARY_NAME):
        flags += ["--config-name", str(invocation.config_name)]
    return flags


def _authority(invocation: Invocation) -> Authority | None:
    """The SGLang that ``--against`` names, if it was given."""
    if invocation.against is None:
        return None
    from sglang_hydra.planning.upstream.ask import find_authority

    typed = [request.text for request in invocation.requests if request.text.startswith("engine.python=")]
    return find_authority(invocation.against, typed[-1].partition("=")[2].strip("'\"") if typed else None)


def _refuse_another(authority: Authority | None, version: str) -> None:
    if authority is not None and not same_release(authority.version, version):
        message = f"--against {authority.name} has SGLang {authority.version}, and --to is {version}"
        hint = f'--to {authority.version}, or an environment with it: pip install "sglang=={version}"'
        raise ConfigError(Finding("error", "UPG003", message, hint=hint))


def _paths(output: Path | None, made: Sequence[Upgrade]) -> list[Path]:
    """One file for each server."""
    if output is None:
        return []
    whole = output if output.suffix else output.with_suffix(".yaml")
    if len(made) == 1:
        return [whole]
    names = [re.sub(r"[^\w.-]", "_", one.subject.name)[:80] or "server" for one in made]
    return [whole.with_name(f"{whole.stem}-{name}{whole.suffix}") for name in names]
