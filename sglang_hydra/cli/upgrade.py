"""The verb ``upgrade --to VERSION OVERRIDES|FILE|COMMAND``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from sglang_hydra.arguments.tables.order import release_key
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.output_files import paths_of, refuse_existing, write_new
from sglang_hydra.cli.shared import composer_of, config_flags
from sglang_hydra.compose.composer import Composer
from sglang_hydra.convert.upgrade.content import YAML, content_of, kind_of
from sglang_hydra.convert.upgrade.inputs import EXPERIMENT, IMPORTED, subjects_of
from sglang_hydra.convert.upgrade.releases import release_named
from sglang_hydra.convert.upgrade.screen import record, upgrade_screen
from sglang_hydra.convert.upgrade.upgraded import Upgrade, upgraded
from sglang_hydra.planning.recorded.input_files import content_of as content_of_file
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.text.budget import SERVER_S, allow_more
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.locations import file_of
from sglang_hydra.text.screen import Line, print_json, text, write
from sglang_hydra.text.whole_file import write_whole
from sglang_hydra.text.words import program, short


def run(invocation: Invocation) -> int:
    """Shows what changes, and the new command or file; writes it with ``-o``. Returns 2 if something breaks."""
    words = [item.text for item in invocation.requests]
    named = [word.removeprefix("from=").removeprefix("to=") for word in words]
    bare = [at for at, word in enumerate(named) if release_key(word) is not None]
    if invocation.value("to") is None and bare:  # 0.5.23, to 0.5.23, to=0.5.23, 0.5.2 0.5.23, from 0.5.2 to 0.5.23
        first, last = bare[0] - (words[bare[0] - 1 : bare[0]] in (["to"], ["from"])), bare[-1]
        flags = ["--from", named[bare[0]]] if len(bare) > 1 else []
        between = [words[at] for at in range(first, last) if at not in bare and words[at] not in ("from", "to")]
        fix = shlex.join([*flags, "--to", named[last], *between])
        message = f"{named[last]} has no --to before it"
        raise ConfigError.of("UPG001", message, typed=tuple(words[first : last + 1]), fix=fix)
    version = release_named(invocation.value("to"), "--to")
    since = invocation.value("since")
    written_for = None if since is None else release_named(since, "--from")
    composer = composer_of(invocation)
    file = invocation.value("output")
    output = None if file is None else Path(file)
    variables = invocation.variables
    subjects = subjects_of(invocation.requests, invocation.argv, written_for, composer, variables)
    allow_more(5 * SERVER_S * len(subjects))  # each is planned by both releases, written, and judged again
    made = [
        upgraded(
            composer,
            one,
            version,
            written_for=written_for,
            flags=config_flags(invocation),
            with_steps=invocation.has("steps"),
        )
        for one in subjects
    ]
    if invocation.has("in_place"):
        return _in_place(invocation, made, composer)
    kinds = [kind_of(one, output) for one in made]
    paths = paths_of(output, [one.subject.name for one in made])
    contents = [
        content_of(one, kind, composer) if kind is not None else None for one, kind in zip(made, kinds, strict=True)
    ]
    refuse_existing(paths, "UPG005")
    for path, content in zip(paths, contents, strict=False):
        write_new(path, content or "", "UPG005")
    if invocation.has("json"):
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
    """Shows what changes and the file's diff, then writes the file. Returns 2, and writes nothing, for an error."""
    from sglang_hydra.convert.upgrade.in_place import changed_text, difference, image_findings, refusals

    word = next((item.text for item in invocation.requests if Path(file_of(item.text)).is_file()), "")
    file = Path(file_of(word)) if word else None
    if file is not None and str(file) != word:
        message = f"--in-place changes all servers of a file; {short(word)} names one of them"
        hint = f"{program()} upgrade --to {made[0].version} --in-place {short(str(file))}"
        raise ConfigError.of("UPG007", message, hint=hint)
    if file is None or made[0].subject.kind not in (EXPERIMENT, IMPORTED):
        hint = f"{program()} upgrade --to {made[0].version} --in-place deploy.yaml"
        raise ConfigError.of("UPG007", "--in-place takes a file that starts servers", hint=hint)
    before = content_of_file(file)
    found: list[Finding] = []
    if made[0].subject.kind == EXPERIMENT:
        after = content_of(made[0], YAML, composer) or ""
        found += made[0].plan.errors
    else:
        after = changed_text(file, before, made, composer, invocation.variables)
        typed = [item for item in invocation.requests if item.text != word]
        found += image_findings(file, after, made, composer)
        if not any(finding.level == "error" for finding in found):
            found += refusals(file, after, composer, typed, invocation.variables)
    lines = difference(str(file), before, after)
    refused = [finding for finding in found if finding.level == "error"]
    if refused and invocation.has("json"):
        raise ConfigError(*refused)
    if invocation.has("json"):
        print_json(record(made, [(YAML, file, after)] * len(made)))
    else:
        for one in made:
            write(upgrade_screen(one, changes=one is made[0]))
        write([[text(line)] for line in lines] or [[text(f"{file}: nothing changes")]])
    write(finding_lines(found), sys.stderr)
    if refused:
        write([[], [text(f"Nothing is written: {file} stays as it is", "bold red")]], sys.stderr)
        return 2
    if lines:
        write_whole(file.resolve(), after, mode=file.stat().st_mode & 0o777)
    if lines and not invocation.has("json"):
        write([[], [text(f"Written to {file}")]])
    return 0 if all(one.ok for one in made) else 2
