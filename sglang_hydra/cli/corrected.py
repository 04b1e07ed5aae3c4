"""The last line of what is refused: the whole command line with the correction that its findings name, to paste."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sglang_hydra.arguments.secrets import HIDDEN, is_secret_name
from sglang_hydra.cli.invocation import Invocation, read_invocation
from sglang_hydra.cli.reading import read_words, refused
from sglang_hydra.cli.shared import composer_of, config_flags
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.planning.corrected import corrected_requests, spelled
from sglang_hydra.text.errors import ConfigError, SglangHydraError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.flags import MULTIRUN_VERBS, VERBS
from sglang_hydra.text.screen import VERBATIM, Line, text
from sglang_hydra.text.shell import shell_word
from sglang_hydra.text.words import program

if TYPE_CHECKING:
    from sglang_hydra.measure.sweep.axes import Axis

_MOST_ROUNDS = 3
_VERBS = ("serve", "plan", "check", "fit", "export")


def corrected_lines(
    invocation: Invocation, findings: Sequence[Finding], composer: Composer | None = None
) -> list[Line]:
    """``Corrected`` and the command; nothing where no hint leads to a plan that can be launched."""
    if invocation.verb not in _VERBS or invocation.multirun or not findings:
        return []
    names = [item.text for item in invocation.requests if _is_name(item)]
    if any(finding.typed for finding in findings) and all(item.key is None for item in invocation.requests):
        words = [invocation.verb, *(item.text for item in invocation.requests), *config_flags(invocation)]
        return corrected_words(words, findings)
    if len(names) > (invocation.verb == "export"):
        return []  # files of check: corrected_file
    return _corrected(invocation, composer or composer_of(invocation), names, findings)


def corrected_file(
    invocation: Invocation, name: str, findings: Sequence[Finding], is_good: Callable[[Sequence[Request]], bool]
) -> list[Line]:
    """The same for one file of ``check``; ``is_good`` judges that file with other words beside it."""
    if not any(_is_name(item) and item.text == name for item in invocation.requests):
        return []  # a file of a folder, or a server of a file
    return _corrected(invocation, composer_of(invocation), [name], findings, is_good)


def _corrected(
    invocation: Invocation,
    composer: Composer,
    names: Sequence[str],
    findings: Sequence[Finding],
    is_good: Callable[[Sequence[Request]], bool] | None = None,
) -> list[Line]:
    try:
        requests = [item for item in invocation.requests if not _is_name(item)]
        made = corrected_requests(composer, requests, findings, is_good)
    except ConfigError:
        return []
    if made is None:
        return []
    file = [invocation.file] if invocation.file is not None else []
    typed = [request for request in made if request.layer == "cli"]
    line = [*names, *file, *(request.text for request in typed)]
    if refused([invocation.verb, *line, *config_flags(invocation)]):
        return []
    words = [spelled(request) for request in typed]
    return _shown_as([*map(shell_word, [*names, *file]), *words], invocation)


def corrected_sweep(
    invocation: Invocation, axes: Sequence[Axis], points: Sequence[tuple[Sequence[Request], bool]]
) -> list[Line]:
    """``Corrected`` and the sweep without the values that no point can be launched with; nothing where none is left,
    or where more than typed lists varies. ``points`` are each point's words and whether it can be launched."""
    words, dropped = [request.text for request in invocation.requests], False
    for axis in axes:
        at = [place for place, word in enumerate(words) if len(axis.keys) == 1 and _key_of(word) == axis.keys[0]]
        good = [one.text for own, can in points for one in own if can and _key_of(one.text) == axis.keys[0]]
        every = {one.text for own, _ in points for one in own if _key_of(one.text) == axis.keys[0]}
        if not at or not good:
            return []
        if len(kept := dict.fromkeys(good)) < len(every):
            words[at[-1]] = f"{axis.keys[0]}={','.join(word.partition('=')[2] for word in kept)}"
            dropped = True
    return [[], *_shown_as(["-m", *map(_shown, words, ["", *words])], invocation)] if dropped else []


def corrected_words(words: Sequence[str], findings: Sequence[Finding]) -> list[Line]:
    """``Corrected`` and the command with other words in place of the wrong ones, secrets hidden; nothing where what to
    type is not known for one of the errors, or where it is refused too.

    ``words`` is the command line after the program's name. The fix of a finding, else the first of its offers, takes
    the place of the words that it is about, else of the override for its first field. What is refused of the new line
    is corrected as well.
    """
    line = list(words)
    for _ in range(_MOST_ROUNDS):
        for finding in (item for item in findings if item.level == "error"):
            if not _correct(line, finding):
                return []
        if not (findings := refused(line)):
            return _launchable(line)
    return []


def _launchable(line: Sequence[str]) -> list[Line]:
    """The corrected command, with what else it takes for a plan that can be launched; nothing where no hint of its plan
    leads there."""
    from sglang_hydra.planning.make import make_plan

    shown = _shown_as(list(map(_shown, line, ["", *line])))
    try:
        invocation = read_invocation(line)
        if invocation.version or invocation.help or invocation.hydra:
            return shown
        read_words(invocation)
        names = [item.text for item in invocation.requests if _is_name(item)]
        if invocation.verb not in _VERBS or invocation.multirun or names[invocation.verb == "export" :]:
            return shown
        composer = composer_of(invocation)
        made = make_plan(composer, [item for item in invocation.requests if not _is_name(item)])
        return shown if made.launchable else _corrected(invocation, composer, names, made.errors)
    except SglangHydraError:
        return shown


def _correct(line: list[str], finding: Finding) -> bool:
    """Whether ``line`` could be corrected for one finding."""
    if finding.id == "CLI007" and finding.fix is None and line[:1] in ([verb] for verb in MULTIRUN_VERBS):
        line[1:1] = [] if "-m" in line else ["-m"]
        return True
    if len(finding.typed) == 1 and finding.typed[0] in VERBS and finding.typed[0] in line[1:]:
        verb = line.pop(line.index(finding.typed[0], 1))
        line[:0] = [] if line[0] in VERBS else [verb]
        return True
    fix = finding.fix if finding.fix is not None else next((offer.typed for offer in finding.offers), None)
    place = _place_of(finding, line)
    if fix is None:
        return False
    if place is None:
        return _correct_item(line, finding, shlex.split(fix))
    line[place] = shlex.split(fix)
    return True


def _correct_item(line: list[str], finding: Finding, fix: Sequence[str]) -> bool:
    """Whether one value of a list (``gpu=h200,h300``) could be corrected."""
    key, _, value = (finding.typed[0] if len(finding.typed) == 1 else "").partition("=")
    for at, word in enumerate(line):
        items = word.partition("=")[2].split(",")
        if key and _key_of(word) == key and value in items and len(fix) == 1 and _key_of(fix[0]) != key:
            if not fix[0].endswith(f"={value}"):
                return False
            line[at] = f"{_key_of(fix[0])}={word.partition('=')[2]}"
            return True
        if key and _key_of(word) == key and value in items and [_key_of(one) for one in fix] == [key]:
            meant = [fix[0].partition("=")[2] if item == value else item for item in items]
            line[at] = f"{key}={','.join(dict.fromkeys(meant))}"
            return True
    return False


def _is_name(request: Request) -> bool:
    return request.key is None and "=" not in request.text


def _key_of(word: str) -> str:
    return word.lstrip("+").partition("=")[0] if "=" in word else ""


def _shown_as(words: Sequence[str], invocation: Invocation | None = None) -> list[Line]:
    before, behind = [program()], []
    if invocation is not None:
        against = [word for where in invocation.asked for word in ("--against", shell_word(where))]
        before, behind = [program(), invocation.verb], [*config_flags(invocation), *against]
    return [[text("Corrected", "bold")], [text("  "), text(" ".join([*before, *words, *behind]), VERBATIM)]]


def _place_of(finding: Finding, line: Sequence[str]) -> slice | None:
    """Where the words stand in a line that a finding is about."""
    typed, width = list(finding.typed), len(finding.typed)
    keys = [_key_of(word) or None for word in line]
    if not typed:
        at = next((at for at, key in reversed(list(enumerate(keys))) if key in finding.fields[:1]), None)
        return None if at is None else slice(at, at + 1)
    return next((slice(at, at + width) for at in range(len(line)) if list(line[at : at + width]) == typed), None)


def _shown(word: str, before: str) -> str:
    """A word as one types it, a secret hidden: its own value, or the one of the flag before it."""
    key, equals, value = word.partition("=")
    if not word.startswith("-") and _is_secret(before) and before.startswith("-"):
        return HIDDEN
    return f"{key}={HIDDEN}" if equals and value and _is_secret(key) else shell_word(word)


def _is_secret(key: str) -> bool:
    return is_secret_name(key.lstrip("+-").replace("-", "_").rpartition(".")[2])
