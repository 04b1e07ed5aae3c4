"""A refused command line with the first changes that its findings name, where they make it one that can be launched."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sglang_hydra.arguments.secrets import HIDDEN, is_secret_name
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.topology import has_several_servers
from sglang_hydra.planning.make import plan_composed
from sglang_hydra.text.errors import SglangHydraError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.shell import shell_word

_OVERRIDE = re.compile(r"[A-Za-z_][\w./@-]*=\S*")
_PLAIN = re.compile(r"(?!(?:null|true|false|nan|inf)$)[A-Za-z./][\w./-]*", re.IGNORECASE)
_MEANT = re.compile(r"did you mean ([\w.]+)\?")
_MOST_TRIED = 3


def corrected_requests(
    composer: Composer,
    requests: Sequence[Request],
    findings: Sequence[Finding],
    can_be_launched: Callable[[Sequence[Request]], bool] | None = None,
) -> list[Request] | None:
    """``requests`` with what the hints of the errors say, each in place of what it corrects; None where that leads to
    no plan that can be launched. ``can_be_launched`` judges the words where they are not all that is planned."""
    judge = can_be_launched or (lambda made: _can_be_launched(composer, made))
    errors = [finding for finding in findings if finding.level == "error"]
    known = [found for finding in errors if (found := list(_changes(finding, requests)))]
    together = [word for found in known for word in found[0]]
    alone = known[0][1:] if len(known) == 1 else [found[0] for found in known]
    wrong = frozenset(name for finding in errors for name in finding.fields)
    for words in [together, *alone][:_MOST_TRIED] if together else []:
        for left_out in (frozenset(), wrong):
            made = _in_place(requests, words, left_out)
            if judge(made):
                return made
    return None


def spelled(request: Request) -> str:
    """A request as one types it in a shell, a secret hidden."""
    name, has_value, value = request.text.partition("=")
    if has_value and is_secret_name(name.lstrip("+").rpartition(".")[2]) and "${" not in value:
        return f"{name}={HIDDEN}"
    is_plain = request.key and isinstance(request.value, str) and _PLAIN.fullmatch(request.value)
    return f"{request.key}={request.value}" if is_plain else shell_word(request.text)


def _changes(finding: Finding, requests: Sequence[Request]) -> Iterator[list[str]]:
    """The alternatives of a finding that are overrides and nothing else, the first one first."""
    for offer in finding.offers:
        if not offer.note.startswith(" "):
            yield shlex.split(offer.typed)
    if finding.offers or not finding.hint:
        return
    for alternative in finding.hint.split("; or "):
        meant = _MEANT.match(alternative)
        if meant:
            yield [f"{meant[1]}={item.text.partition('=')[2]}" for item in requests if _key(item) in finding.fields]
            continue
        try:
            words = shlex.split(alternative.partition(": ")[0])
        except ValueError:
            continue
        if words and all(_OVERRIDE.fullmatch(word) for word in words):
            yield words


def _in_place(requests: Sequence[Request], words: Sequence[str], wrong: frozenset[str]) -> list[Request]:
    """``requests`` with each word in place of the one with its key, the others at the end; without ``wrong`` keys."""
    left = {word.partition("=")[0]: word for word in words}
    made = []
    for request in requests:
        word = left.pop(_key(request), None)
        if not request.is_word:  # a file keeps what it says, and a word behind it wins
            made.append(request)
            left |= {} if word is None else {_key(request): word}
        elif word is not None:
            made.append(replace(request, text=word, key=None, value=None))
        elif _key(request) not in wrong:
            made.append(request)
    return [*made, *(Request(word, "a hint") for word in left.values())]


def _can_be_launched(composer: Composer, requests: Sequence[Request]) -> bool:
    try:
        made = plan_composed(composer, requests, composer.compose(requests), with_remedies=False)
        if not has_several_servers(made.nodes):
            return made.launchable
        from sglang_hydra.planning.topology.plan import plan_topology

        return plan_topology(composer, requests, common=made).launchable
    except SglangHydraError:
        return False


def _key(request: Request) -> str:
    return request.key or request.text.partition("=")[0].lstrip("+~")
