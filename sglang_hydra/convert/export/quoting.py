"""Quotes words for each language of an artifact: bash, Compose, Kubernetes, a comment.

A model path or a served name may contain anything: quotes, newlines, ``$(...)``, terminal escapes. It reaches SGLang
unchanged, and nothing on the way interprets it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sglang_hydra.arguments.rendering import by_option
from sglang_hydra.text.screen import printable

_BARE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
# Legal inside single quotes, but confusing to shellcheck and people.
_STUMBLING = set("'\\$`!~‘’“”")
_EXPANDED_BY_KUBERNETES = re.compile(r"\$+(?=\()|\${2,}")


@dataclass(frozen=True)
class Variable:
    """A word whose value is known only at run time: a variable with text around it. ``before`` is plain text that no
    shell interprets."""

    name: str
    after: str = ""
    before: str = ""


Word = str | Variable


def bash(word: Word) -> str:
    """Quotes ``word`` for bash, on one line."""
    if isinstance(word, Variable):
        return f'"{word.before}${{{word.name}}}{word.after}"' if word.before or word.after else f'"${word.name}"'
    if _BARE.fullmatch(word):
        return word
    if word.isprintable() and not _STUMBLING & set(word):
        return f"'{word}'"
    return "$'" + "".join(_ansi_c(char) for char in word) + "'"


def typed(word: str) -> str:
    """Quotes ``word`` as people type it in a shell, on one line; only for comments."""
    return shlex.quote(word) if word.isprintable() else bash(word)


def _ansi_c(char: str) -> str:
    if char in "\\'":
        return "\\" + char
    if char.isprintable() and char.isascii():
        return char
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char)
    # Three octal digits always end; another letter may extend a hexadecimal escape.
    return named or "".join(f"\\{byte:03o}" for byte in char.encode("utf-8"))


def compose(word: Word) -> str:
    """Quotes ``word`` for a Compose file, where every ``$`` begins a variable."""
    if isinstance(word, Variable):
        return f"{word.before}${{{word.name}}}{compose(word.after)}"
    return word.replace("$", "$$")


def kubernetes(word: Word) -> str:
    """Quotes ``word`` for the command, args or env of a container: Kubernetes replaces ``$(NAME)`` there and reads
    ``$$`` as one ``$`` (kubernetes, pkg/third_party/forked/golang/expansion)."""
    if isinstance(word, Variable):
        return f"$({word.name}){kubernetes(word.after)}"
    return _EXPANDED_BY_KUBERNETES.sub(lambda found: found[0] * 2, word)


def commented(lines: Iterable[str]) -> str:
    """Writes lines of a comment for bash and YAML."""
    return "".join(f"# {printable(line)}".rstrip() + "\n" for line in lines)


def bash_lines(words: Sequence[Word], indent: str = "  ") -> str:
    """Returns the words of a command with one option and its values per line, joined by continuations."""
    return " \\\n".join(indent + " ".join(map(bash, group)) for group in by_option(words))
