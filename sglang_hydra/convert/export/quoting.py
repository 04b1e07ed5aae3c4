"""Words of a command line in each language that an artifact is written in: bash, Compose, Kubernetes, a comment.

A model path or a served name can hold anything: quotes, newlines, ``$(...)``, terminal escapes. Whatever it holds
reaches SGLang letter by letter, and nothing on the way reads it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sglang_hydra.arguments.rendering import by_option
from sglang_hydra.text.screen import printable

_BARE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
# Inside single quotes these are what they are, but shellcheck and people stumble over them.
_STUMBLING = set("'\\$`!~‘’“”")
_EXPANDED_BY_KUBERNETES = re.compile(r"\$+(?=\()|\${2,}")


@dataclass(frozen=True)
class Variable:
    """A word that is known only where the artifact runs: the value of a variable, with text around it. ``before`` is
    plain text, of which no shell reads anything."""

    name: str
    after: str = ""
    before: str = ""


Word = str | Variable


def bash(word: Word) -> str:
    """Returns ``word`` for bash, on one line."""
    if isinstance(word, Variable):
        return f'"{word.before}${{{word.name}}}{word.after}"' if word.before or word.after else f'"${word.name}"'
    if _BARE.fullmatch(word):
        return word
    if word.isprintable() and not _STUMBLING & set(word):
        return f"'{word}'"
    return "$'" + "".join(_ansi_c(char) for char in word) + "'"


def typed(word: str) -> str:
    """Returns ``word`` as people type it in a shell, on one line; for comments, where nothing else reads it."""
    return shlex.quote(word) if word.isprintable() else bash(word)


def _ansi_c(char: str) -> str:
    if char in "\\'":
        return "\\" + char
    if char.isprintable() and char.isascii():
        return char
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char)
    # Three octal digits end there; a letter after two hexadecimal ones could be read as a third.
    return named or "".join(f"\\{byte:03o}" for byte in char.encode("utf-8"))


def compose(word: Word) -> str:
    """Returns ``word`` for a value in a Compose file, where every ``$`` begins a variable."""
    if isinstance(word, Variable):
        return f"{word.before}${{{word.name}}}{compose(word.after)}"
    return word.replace("$", "$$")


def kubernetes(word: Word) -> str:
    """Returns ``word`` for the command, args or env of a container: Kubernetes replaces ``$(NAME)`` there and reads
    ``$$`` as one ``$`` (kubernetes, pkg/third_party/forked/golang/expansion)."""
    if isinstance(word, Variable):
        return f"$({word.name}){kubernetes(word.after)}"
    return _EXPANDED_BY_KUBERNETES.sub(lambda found: found[0] * 2, word)


def comment(text: str) -> str:
    """Returns ``text`` for one line of a comment."""
    return printable(text)


def commented(lines: Iterable[str]) -> str:
    """Lines of a comment in bash and YAML."""
    return "".join(f"# {comment(line)}".rstrip() + "\n" for line in lines)


def bash_lines(words: Sequence[Word], indent: str = "  ") -> str:
    """Returns the words of a command, an option and its values to a line, each but the last continued."""
    return " \\\n".join(indent + " ".join(map(bash, group)) for group in by_option(words))
