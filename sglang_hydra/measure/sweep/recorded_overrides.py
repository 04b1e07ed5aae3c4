"""Turns the overrides of a file into the words that a sweep's folder keeps, so that later changes of the file do not
matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sglang_hydra.arguments.secrets import SECRET_FIELDS, is_secret_name
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.grammar import has_interpolation
from sglang_hydra.compose.overrides import Request, read_requests
from sglang_hydra.measure.sweep.axes import axis_of
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import program, short


def as_words(composer: Composer, requests: Sequence[Request]) -> list[Request]:
    """``requests`` with those of a file as words that mean the same when they are read again. A key that was typed,
    too, is left to what was typed. What cannot be read is left as it is: composing it reports the error.

    Raises ConfigError for a value that only a file can spell, and for a secret that would be kept.
    """
    typed = {_key(request.text) for request in requests if request.is_word}
    words = []
    for request in requests:
        if request.is_word:
            words.append(request)
        elif _key(request.text) not in typed:
            words.append(_as_word(composer, request))
    return words


def _as_word(composer: Composer, request: Request) -> Request:
    word = Request(request.text, request.place, request.layer)
    meant = _meaning(composer, request)
    if meant is None:
        return request
    for name in _secrets_in(_key(request.text), request.value):
        message = f"{request.place}: {name} is a secret, which a sweep's folder would keep"
        raise ConfigError(Finding("error", "SWP010", message, hint=f"{name}: ${{oc.env:NAME}} refers to a variable"))
    if _meaning(composer, word) != meant or axis_of(word, composer.options) is not None:
        message = f"{request.place}: {short(request.text)} cannot be kept as a word, which resume needs"
        hint = f"{program()} bench -m --config-dir DIR experiment=NAME ..., with the file as DIR/experiment/NAME.yaml"
        raise ConfigError(Finding("error", "SWP010", message, hint=hint))
    return word


def _meaning(composer: Composer, request: Request) -> list[tuple[str, object, str | None]] | None:
    """The overrides that a request stands for; None for what is refused."""
    wanted, findings = read_requests([request], group_options=composer.options)
    if findings:
        return None
    return [(item.override.key_or_group, item.override.value(), item.secret) for item in wanted]


def _secrets_in(key: str, value: object) -> Iterator[str]:
    """The keys whose value is a secret itself. An API key that is kept is its reference."""
    name = key.rpartition(".")[2]
    if isinstance(value, Mapping):
        for inner, item in value.items():
            yield from _secrets_in(f"{key}.{inner}", item)
    elif value is not None and is_secret_name(name) and name not in SECRET_FIELDS and not has_interpolation(value):
        yield key


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+")
