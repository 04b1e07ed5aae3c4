"""Builds the last line for a refused command: the whole command line with the corrections of its findings, to paste."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.secrets import HIDDEN, holds_secret, masked_word
from sglang_hydra.cli.invocation import Invocation, read_invocation
from sglang_hydra.cli.proved import STARTING, keeps
from sglang_hydra.cli.reading import read_words, refused
from sglang_hydra.cli.shared import composer_of, typed_flags
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.nodes import has_several_servers
from sglang_hydra.planning.making.make import make_plan, plan_composed
from sglang_hydra.planning.making.replan import key_of, typed_in_place
from sglang_hydra.releases.fetching import nothing_fetched
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.text.budget import LAST_S, OverBudget, allow_more
from sglang_hydra.text.errors import ConfigError, SglangHydraError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.flags import BY_NAME, VERBS
from sglang_hydra.text.screen import VERBATIM, Line, folded, room, text
from sglang_hydra.text.words import is_digits, nearest, program, shell_word

if TYPE_CHECKING:
    from sglang_hydra.measure.sweep.axes import Axis

_MOST_ROUNDS, _MOST_CORRECTED = 3, 3
_PLAIN = re.compile(r"(?!(?:null|true|false|nan|inf)$)[A-Za-z./][\w./-]*", re.IGNORECASE)
_CHOSEN = ("gpu", "engine.version")
"""What a correction never changes if it was typed."""
_VERBS = ("serve", "plan", "check", "fit", "export")


def corrected_lines(
    invocation: Invocation, findings: Sequence[Finding], composer: Composer | None = None
) -> list[Line]:
    """Returns ``Corrected`` and the command; empty if no remedy leads to a plan that can be launched."""
    if invocation.verb not in _VERBS or invocation.has("multirun") or not findings:
        return []
    names = [item.text for item in invocation.requests if _is_name(item)]
    if any(finding.typed for finding in findings) and all(item.key is None for item in invocation.requests):
        return corrected_words(_line_of(invocation, [item.text for item in invocation.requests]), findings)
    if len(names) > (invocation.verb == "export"):
        return []  # files of check: corrected_file
    return _corrected(invocation, composer or composer_of(invocation), names, findings)


def corrected_file(
    invocation: Invocation,
    name: str,
    findings: Sequence[Finding],
    is_good: Callable[[Sequence[Request]], bool],
    composer: Composer,
) -> list[Line]:
    """Returns the same for one file of ``check``; ``is_good`` judges that file with other words beside it."""
    if not any(_is_name(item) and item.text == name for item in invocation.requests):
        return []  # a file of a folder, or a server of a file
    return _corrected(invocation, composer, [name], findings, is_good)


def _corrected(
    invocation: Invocation,
    composer: Composer,
    names: Sequence[str],
    findings: Sequence[Finding],
    is_good: Callable[[Sequence[Request]], bool] | None = None,
    *,
    adds_only: bool = False,
) -> list[Line]:
    first = next((one.said for finding in findings for one in finding.remedies if one.kind == "shell"), None)
    if first is not None:
        return _shown_as(_line_of(invocation, map(_word, invocation.requests)), first=f"{first} && ")
    try:
        requests = [item for item in invocation.requests if not _is_name(item)]
        good = is_good or partial(_can_be_launched, composer)
        made = _corrected_requests(composer, requests, findings, good, adds_only=adds_only)
    except OverBudget:  # of the whole command
        allow_more(LAST_S)
        return []
    except ConfigError:
        return []
    title, other = "Corrected", None
    if made is None and (other := _other_gpu(findings)) is not None:
        title, made = "For example, on another GPU", typed_in_place(composer, requests, other)
    if made is None:
        return []
    file = [invocation.file] if invocation.file is not None else []
    typed = [request for request in made if request.layer == "cli"]
    line = _line_of(invocation, [*names, *file, *map(_word, typed)])
    own = [request for request in requests if request.layer == "cli"]
    before = _line_of(invocation, [*names, *file, *map(_word, own)])
    left = refused(line)
    if not keeps(before, line, findings, map(_key_of, other or ())) or not _lacks_image_alone(left):
        return []
    if left:
        return _of_next(line, left)
    shown = _shown_as(line, title)
    added = [request.text for request in typed if request not in requests] if adds_only else []
    error = next((finding for finding in findings if finding.level == "error"), None)
    why = f"{' '.join(added)} is added, because else {error.message} ({error.id})" if added and error else ""
    return [*folded([text(why)], room()), *shown] if why else shown


def _other_gpu(findings: Sequence[Finding]) -> Sequence[str] | None:
    """Returns the words for another GPU that helps where one error is all there is. A CPU is none."""
    errors = [finding for finding in findings if finding.level == "error"]
    chosen = (one.words for one in errors[0].offers if one.choice and one.words[0].startswith("gpu="))
    chosen = (words for words in chosen if words[0] != "gpu=cpu")
    return next(chosen, None) if len(errors) == 1 else None


def _corrected_requests(
    composer: Composer,
    requests: Sequence[Request],
    findings: Sequence[Finding],
    is_good: Callable[[Sequence[Request]], bool],
    *,
    adds_only: bool,
) -> list[Request] | None:
    """Returns ``requests`` with the remedy of one error, else with those of all errors, each replacing the word it
    corrects; None if no result satisfies ``is_good``."""
    errors = [finding for finding in findings if finding.level == "error"]
    errors.sort(key=lambda one: one.about == "refused_by_release")  # a rule knows what was meant
    known = [found for finding in errors if (found := list(_changes(finding, requests, adds_only=adds_only)))]
    together = [word for found in known for word in found[0]]
    tried = known[0] if len(known) == 1 else [*(found[0] for found in known[: _MOST_CORRECTED - 1]), together]
    for words in tried[:_MOST_CORRECTED] if together else []:
        made = typed_in_place(composer, requests, words)
        with nothing_fetched():  # a correction may name any release
            good = is_good(made)
        if good:
            return made
    return None


def _changes(finding: Finding, requests: Sequence[Request], *, adds_only: bool) -> Iterator[list[str]]:
    """Yields the remedies of a finding that are overrides and leave no choice, the first one first. Skips a remedy that
    unsets a typed word or names another GPU than the typed one, and with ``adds_only`` one that changes the value of a
    typed word or the release."""
    own = [item for item in requests if item.layer == "cli" and not item.text.endswith("=null")]
    typed = {key_of(item): item.text.partition("=")[2] for item in own}
    for remedy in finding.offers or finding.remedies:
        new = {key: value for key, _, value in (word.partition("=") for word in remedy.words)}
        if any(value == "null" and key in typed for key, value in new.items()):
            continue
        if any(key in typed and new.get(key, typed[key]) not in ("auto", typed[key]) for key in _CHOSEN):
            continue
        if any(new[key] not in (typed.get(key, new[key]), "auto") and key not in finding.fields for key in new):
            return  # what is typed contradicts itself
        of_model = "model_path" in new and "model" in typed  # other weights
        if adds_only and (
            "engine.version" in new or of_model or not all(_is_spelling(typed.get(key), new[key]) for key in new)
        ):
            continue
        if remedy.renames:
            old = [item for item in requests if key_of(item) in finding.fields]
            yield [
                *(f"~{key_of(item)}" for item in old),
                *(f"{remedy.renames}={item.text.partition('=')[2]}" for item in old),
            ]
        elif remedy.words and not remedy.choice and all("=" in word[1:] and word[0] != "-" for word in remedy.words):
            yield [*([f"~{remedy.instead_of}"] if remedy.instead_of else []), *remedy.words]


def _is_spelling(typed: str | None, value: str) -> bool:
    """Returns whether a value is the typed one in any spelling, or nothing was typed (``typed`` is None)."""
    return typed in (None, value) or (not is_digits(value) and nearest(typed, [value]) is not None)


def _can_be_launched(composer: Composer, requests: Sequence[Request]) -> bool:
    try:
        made = plan_composed(composer, requests, composer.compose(requests), with_remedies=False)
        if not has_several_servers(made.nodes):
            return made.launchable is not False
        from sglang_hydra.planning.topology.plan import plan_topology

        return plan_topology(composer, requests, common=made).launchable is not False
    except SglangHydraError:
        return False


def _line_of(invocation: Invocation, words: Iterable[str]) -> list[str]:
    return [invocation.verb, *words, *typed_flags(invocation)]


def _word(request: Request) -> str:
    """Returns a request as typed, without quotes of Hydra's grammar that its value does not need."""
    is_plain = request.key and isinstance(request.value, str) and _PLAIN.fullmatch(request.value)
    return f"{request.key}={request.value}" if is_plain else request.text


def corrected_sweep(
    invocation: Invocation, axes: Sequence[Axis], points: Sequence[tuple[Sequence[Request], bool]]
) -> list[Line]:
    """Returns ``Corrected`` and the sweep without the values that cannot be launched at any point; empty if none is
    left or other axes vary than typed lists. ``points`` are each point's words and whether it can be launched."""
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
    typed = _line_of(invocation, ["-m", *(request.text for request in invocation.requests)])
    line, keys = _line_of(invocation, ["-m", *words]), {axis.keys[0] for axis in axes}
    return [[], *_shown_as(line)] if dropped and keeps(typed, line, (), keys) else []


def corrected_words(words: Sequence[str], findings: Sequence[Finding]) -> list[Line]:
    """Returns ``Corrected`` and the command with the wrong words replaced and secrets hidden; empty if an error has no
    known replacement. If the new line is refused too and cannot be corrected, returns the errors that follow.

    ``words`` is the command line after the program's name. The fix of a finding, else its first offer, replaces the
    words of the finding, else the override for its first field. Errors in the new line are corrected as well."""
    line = list(words)
    for number in range(_MOST_ROUNDS):
        before = list(line)
        for finding in (item for item in findings if item.level == "error"):
            if not _correct(line, finding):
                return _of_next(before, findings) if number else []
        if not keeps(before, line, findings):
            return []
        findings = refused(line)
        if _lacks_image_alone(findings):
            return [] if _loses_an_item(line) else _launchable(line, findings)
    return []


def _of_next(line: Sequence[str], findings: Sequence[Finding]) -> list[Line]:
    """Returns the correction of a line that follows the hints and is refused too; without one what refuses it then."""
    try:
        invocation = read_invocation(line)
        read_words(invocation)
        corrected = corrected_lines(invocation, findings)
    except SglangHydraError:
        corrected = []
    return [[text("Then", "bold")], *finding_lines(findings)[1:], *corrected]


def _lacks_image_alone(findings: Sequence[Finding]) -> bool:
    """Returns whether nothing is wrong with a line but that no image is known for its export."""
    return all(item.about == "image_open" for item in findings)


def _loses_an_item(line: Sequence[str]) -> bool:
    """Returns whether two words set one list, where the last one wins: a shell made them of {a,b}."""
    lists = [key for key in map(_key_of, line) if key in EVERY and (EVERY[key].is_list or EVERY[key].kind == "Any")]
    return len(set(lists)) < len(lists)


def _launchable(line: Sequence[str], left: Sequence[Finding]) -> list[Line]:
    """Returns the corrected command with what is missing for a plan that can be launched; without it if no remedy of
    its plan helps. ``left`` is what an export of the plan lacks."""
    shown = _shown_as(line)
    try:
        invocation = read_invocation(line)
        if invocation.has("version") or invocation.has("help") or invocation.hydra or invocation.verb == "fit":
            return shown  # fit asks whether it fits
        read_words(invocation)
        names = [item.text for item in invocation.requests if _is_name(item)]
        if invocation.verb not in _VERBS or invocation.has("multirun") or names[invocation.verb == "export" :]:
            return shown
        composer = composer_of(invocation)
        with nothing_fetched():
            made = make_plan(composer, [item for item in invocation.requests if not _is_name(item)])
        if made.launchable is not False:
            return _of_next(line, left) if left else shown
        return _corrected(invocation, composer, names, made.errors, adds_only=True)
    except SglangHydraError:
        return shown


def _correct(line: list[str], finding: Finding) -> bool:
    """Corrects ``line`` for one finding; returns False if that is impossible."""
    if len(finding.typed) == 1 and finding.typed[0] in VERBS and finding.typed[0] in line[1:]:
        verb = line.pop(line.index(finding.typed[0], 1))
        if line[0] not in VERBS:
            line[:0] = [verb]
        elif line[0] in STARTING:  # of two verbs, the one that starts nothing
            line[0] = verb
        return True
    verb = finding.remedies[0].said if finding.remedies else ""
    if verb in VERBS and finding.typed[0].startswith("-"):  # a flag that asks for another verb: serve ... --dry-run
        line.remove(finding.typed[0])
        line[: line[0] in VERBS if line else 0] = [verb]
        return True
    remedy = next((one for one in finding.remedies if one.kind == "fix"), None) or next(
        (one for one in finding.remedies if one.flag or one.kind != "advice"), None
    )
    if remedy is None:
        return False
    if remedy.flag:
        line[1:1] = [] if remedy.flag in line else [remedy.flag]
        return line[0] in BY_NAME[remedy.flag.partition("=")[0]].verbs
    place = _place_of(finding, line)
    if place is None:
        return _correct_item(line, finding, remedy.words)
    line[place] = remedy.words
    added = {_key_of(word) for word in remedy.words[1:]} - {""}
    line[:] = [word for word in line if _key_of(word) not in added or word in remedy.words]
    return True


def _correct_item(line: list[str], finding: Finding, fix: Sequence[str]) -> bool:
    """Corrects one value of a list (``gpu=h200,h300``) in ``line``; returns False if that is impossible."""
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


def _shown_as(words: Sequence[str], title: str = "Corrected", first: str = "") -> list[Line]:
    """Returns a command line as typed in a shell, with secrets hidden, below its title."""
    typed = " ".join(map(_shown, words, ["", *words]))
    return [[text(title, "bold")], [text("  "), text(f"{first}{program()} {typed}", VERBATIM)]]


def _place_of(finding: Finding, line: Sequence[str]) -> slice | None:
    """Returns where in a line the words of a finding are; None if they are not there."""
    typed, width = list(finding.typed), len(finding.typed)
    keys = [_key_of(word) or None for word in line]
    if not typed:
        at = next((at for at, key in reversed(list(enumerate(keys))) if key in finding.fields[:1]), None)
        return None if at is None else slice(at, at + 1)
    return next((slice(at, at + width) for at in range(len(line)) if list(line[at : at + width]) == typed), None)


def _shown(word: str, before: str) -> str:
    """Returns a word as typed in a shell, with a secret hidden in its value or after the flag before it."""
    if not word.startswith("-") and holds_secret(before) and before.startswith("-"):
        return HIDDEN
    shown = masked_word(word)
    return shell_word(word) if shown == word else shown
