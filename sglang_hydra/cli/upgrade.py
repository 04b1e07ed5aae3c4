"""The verb ``upgrade --to VERSION OVERRIDES|FILE|COMMAND``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.output_files import paths_of, refuse_existing, write_new
from sglang_hydra.cli.shared import composer_of, config_flags
from sglang_hydra.compose.composer import Composer
from sglang_hydra.convert.upgrade.content import YAML, content_of, kind_of
from sglang_hydra.convert.upgrade.inputs import EXPERIMENT, IMPORTED, subjects_of
from sglang_hydra.convert.upgrade.record import record
from sglang_hydra.convert.upgrade.releases import release_named
from sglang_hydra.convert.upgrade.screen import upgrade_screen
from sglang_hydra.convert.upgrade.upgraded import Upgrade, upgraded
from sglang_hydra.planning.input_files import content_of as content_of_file
from sglang_hydra.planning.upstream.ask import Authority, find_authority
from sglang_hydra.releases.order import release_key, same_release
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.locations import file_of
from sglang_hydra.text.screen import Line, print_json, text, write
from sglang_hydra.text.whole_file import write_whole
from sglang_hydra.text.words import program, short


def run(invocation: Invocation) -> int:
    """Shows what changes, and the new command or file; writes it with ``-o``. 2 where something breaks."""
    authority = _authority(invocation)
    wanted = invocation.to or (authority.version if authority else None)
    bare = next((item.text for item in invocation.requests if release_key(item.text) is not None), None)
    if wanted is None and bare is not None:
        message, fix = f"{bare} has no --to before it", f"--to {bare}"
        raise ConfigError(Finding("error", "UPG001", message, hint=fix, typed=(bare,), fix=fix))
    version = release_named(wanted, "--to")
    _refuse_another(authority, version)
    written_for = release_named(invocation.since, "--from") if invocation.since is not None else None
    composer = composer_of(invocation)
    output = Path(invocation.output) if invocation.output is not None else None
    variables = invocation.variables
    subjects = subjects_of(invocation.requests, invocation.argv, written_for, composer, variables)
    made = [
        upgraded(
            composer,
            one,
            version,
            written_for=written_for,
            authority=authority,
            flags=config_flags(invocation),
            with_steps=invocation.steps,
        )
        for one in subjects
    ]
    if invocation.in_place:
        return _in_place(invocation, made, composer)
    kinds = [kind_of(one, output) for one in made]
    paths = paths_of(output, [one.subject.name for one in made])
    contents = [
        content_of(one, kind, composer, output) if kind is not None else None
        for one, kind in zip(made, kinds, strict=True)
    ]
    refuse_existing(paths, "UPG005")
    for path, content in zip(paths, contents, strict=False):
        write_new(path, content or "", "UPG005")
    if invocation.json:
        written: Sequence[Path | None] = paths or [None for _ in made]
        print_json(record(made, list(zip(kinds, written, contents, strict=True))))
    else:
        _show(made, contents, paths)
    return 0 if all(one.ok for one in made) else 2


def _show(made: Sequence[Upgrade], contents: Sequence[str | None], paths: Sequence[Path]) -> None:
    seen: set[tuple[str, str]] = set()
    for number, (one, content) in enumerate(zip(made, contents, strict=True)):
        way = (one.start.version, one.plan.gpu.name)
        lines: list[Line] = [[]] if number else []
        shown = upgrade_screen(one, changes=way not in seen)
        seen.add(way)
        if content is not None and not paths:
            *before, last = shown
            lines += [*before, [text("The new file", "bold")]]
            lines += [[text(f"  {line}", "")] for line in content.splitlines()]
            lines += [[], last]
        else:
            lines += shown
        write(lines)
    write([[text(f"Written to {path}")] for path in paths], sys.stdout)


def _in_place(invocation: Invocation, made: Sequence[Upgrade], composer: Composer) -> int:
    """Shows what changes in the file and its diff, then writes the file."""
    from sglang_hydra.convert.upgrade.in_place import changed_text, difference, kept_images

    word = next((item.text for item in invocation.requests if Path(file_of(item.text)).is_file()), "")
    file = Path(file_of(word)) if word else None
    if file is not None and str(file) != word:
        message = f"--in-place changes all servers of a file, and {short(word)} is one of them"
        hint = f"{program()} upgrade --to {made[0].version} --in-place {short(str(file))}"
        raise ConfigError(Finding("error", "UPG007", message, hint=hint))
    if file is None or made[0].subject.kind not in (EXPERIMENT, IMPORTED):
        hint = f"{program()} upgrade --to {made[0].version} --in-place deploy.yaml"
        raise ConfigError(Finding("error", "UPG007", "--in-place takes a file that starts servers", hint=hint))
    before = content_of_file(file)
    if made[0].subject.kind == EXPERIMENT:
        after = content_of(made[0], YAML, composer, file)
    else:
        after = changed_text(file, before, made, composer, invocation.variables)
    lines = difference(str(file), before, after)
    write(finding_lines(kept_images(after, made)), sys.stderr)
    if invocation.json:
        print_json(record(made, [(YAML, file, after)] * len(made)))
    else:
        for one in made:
            write(upgrade_screen(one, changes=one is made[0]))
        write([[text(line)] for line in lines] or [[text(f"{file}: nothing changes")]])
    if lines:
        write_whole(file.resolve(), after, mode=file.stat().st_mode & 0o777)
    if lines and not invocation.json:
        write([[], [text(f"Written to {file}")]])
    return 0 if all(one.ok for one in made) else 2


def _authority(invocation: Invocation) -> Authority | None:
    """The SGLang that ``--against`` names, if it was given."""
    if invocation.against is None:
        return None
    typed = [request.text for request in invocation.requests if request.text.startswith("engine.python=")]
    return find_authority(invocation.against, typed[-1].partition("=")[2].strip("'\"") if typed else None)


def _refuse_another(authority: Authority | None, version: str) -> None:
    if authority is not None and not same_release(authority.version, version):
        message = f"--against {authority.name} has SGLang {authority.version}, and --to is {version}"
        hint = f'--to {authority.version}, or an environment with it: pip install "sglang=={version}"'
        raise ConfigError(Finding("error", "UPG003", message, hint=hint))
