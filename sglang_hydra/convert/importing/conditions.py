"""The conditions of a shell script: what is known is evaluated, and each answer to the rest is a reading of its own."""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sglang_hydra.convert.importing.expansion import text_of
from sglang_hydra.convert.importing.launches import is_open, without_marks
from sglang_hydra.convert.importing.shell import ASSIGNMENT, Shell
from sglang_hydra.convert.importing.statements import Branches, Loop, Node
from sglang_hydra.convert.importing.syntax import Command, commands_of
from sglang_hydra.text.words import is_digits, short

_LEAVING = ("exit", "return")
_NEGATED = {"!=": "=", "-ne": "=", "-lt": "-ge", "-le": "-gt", "-z": "-n", "<": "-ge", "<=": "-gt"}
_SAME = {"==": "=", "-eq": "=", ">": "-gt", ">=": "-ge"}
_MOST_CHOICES = 24
_NUMERIC: Mapping[str, Callable[[int, int], bool]] = {"-ge": operator.ge, "-gt": operator.gt}
_NAME = re.compile(r"\"?\$?\{?([A-Za-z_]\w*)(?::?-[^{}]*)?\}?\"?", re.ASCII)
_COMPARED = re.compile(r"(.+?)\s*(==|!=|<=|>=|<|>)\s*(.+)")

Key = tuple[str, str, str]
"""A condition: a name, ``=``, ``-ge``, ``-gt``, ``-n`` or another operator, and what the name is compared with."""


@dataclass
class Choices:
    """What one reading of a script assumes of conditions that only its caller knows. ``wanted`` are answers other than
    the likely ones; ``made`` are all that were needed, ``free`` those that did not follow from others before."""

    wanted: Mapping[Key, bool] = field(default_factory=dict)
    made: dict[Key, bool] = field(default_factory=dict)
    free: list[Key] = field(default_factory=list)

    def holds(self, key: Key, likely: bool) -> bool:
        """Whether a condition holds: as it is wanted or as the others imply, else ``likely``."""
        if key not in self.made and len(self.made) >= _MOST_CHOICES:
            return likely
        if key not in self.made:
            known = {other: answer for other, answer in self.made.items() if other[0] == key[0]}
            answers = [answer for answer in (likely, not likely) if _is_possible({**known, key: answer})]
            self.made[key] = self.wanted.get(key, answers[0]) if len(answers) == 2 else answers[0]
            self.free += [key] if len(answers) == 2 else []
        return self.made[key]


_SHOWN = {"=": ("=", "!="), "-ge": (">=", "<"), "-gt": (">", "<="), "-n": ("is set", "is not set")}


def shown(answers: Mapping[Key, bool]) -> list[str]:
    """Answers for people, without those that follow from the others: ``TP >= 8``, ``A != b``."""
    kept = dict(answers)
    for key, holds in answers.items():
        if not _is_possible({**kept, key: not holds}):
            del kept[key]
    return [_shown(key, holds) for key, holds in kept.items()]


def _shown(key: Key, holds: bool) -> str:
    name, sign, other = key
    if sign not in _SHOWN:
        return short(" ".join(word for word in ("" if holds else "not", name, sign.strip("?"), other) if word), 60)
    return short(" ".join(word for word in (name, _SHOWN[sign][not holds], other) if word), 60)


def _is_possible(answers: Mapping[Key, bool]) -> bool:
    """Whether there can be values for which all these answers are true."""
    for name in {key[0] for key in answers}:
        facts = [(sign, other, answer) for (of, sign, other), answer in answers.items() if of == name]
        if any(sign not in ("=", "-n", *_NUMERIC) for sign, _, _ in facts):
            continue
        tried = {"", "\0", *(other for _, other, _ in facts)}
        tried |= {str(int(other) + step) for _, other, _ in facts if is_digits(other) for step in (-1, 1)}
        if not any(all(_compare(value, sign, other) == answer for sign, other, answer in facts) for value in tried):
            return False
    return True


def _compare(value: str, sign: str, other: str) -> bool | None:
    """Compares two known values; None for an operator that is not supported here."""
    if sign == "=":
        return fnmatch.fnmatchcase(value, other) if set(other) & set("*?[") else value == other
    if sign == "-n":
        return value != ""
    if sign in _NUMERIC:
        return is_digits(value) and is_digits(other) and _NUMERIC[sign](int(value), int(other))
    return None


def is_test(words: Sequence[str]) -> bool:
    """Whether a command is ``[ ... ]``, ``[[ ... ]]``, ``(( ... ))`` or ``test ...``."""
    return bool(words) and (words[0] in ("[", "test") or words[0].startswith(("[[", "((")))


def tested(command: Command, shell: Shell, choices: Choices, sides: Sequence[Sequence[Node]]) -> bool | None:
    """The answer of a test. ``sides`` are the commands that run where it holds, and where it does not; None inside a
    loop that ends by a condition, where each turn may have another answer."""
    if shell.loops:
        return None
    words = [word for word in command.words if word != "!"]
    text = " ".join(words)
    arithmetic = text.startswith("((")
    inner = text[2:-2] if text.startswith(("[[", "((")) else text.removeprefix("test").strip("[] ")
    parts = commands_of(re.sub(r"([<>]=?)", r" '\1' ", inner))
    holds = True
    for part in parts:
        if not (part.joined and holds == (part.after == "||")):
            only = sides if len(parts) == 1 else ((), ())
            holds = compared(part.words, shell, choices, only, arithmetic=arithmetic)
    return holds != (len(words) != len(command.words))


def compared(
    words: Sequence[str], shell: Shell, choices: Choices, sides: Sequence[Sequence[Node]], *, arithmetic: bool = False
) -> bool:
    """Evaluates one comparison where both of its values are known, else chooses its answer."""
    negated = words[:1] == ["!"]
    words = [word.strip("'") if word.strip("'")[:1] in "<>" else word for word in words[negated:]]
    if arithmetic and (match := _COMPARED.fullmatch(" ".join(words))):
        words = [part.strip() for part in match.groups()]
    left, sign, right = words if len(words) == 3 else (" ".join(words), "?", "")
    if len(words) == 1 or (len(words) == 2 and words[0] in ("-n", "-z")):
        left, sign = words[-1], words[0] if len(words) == 2 else "-n"
    negated ^= sign in _NEGATED
    sign = _NEGATED.get(sign, _SAME.get(sign, sign))
    (value, is_sure), (other, is_known) = (_known(word, shell, arithmetic) for word in (left, right))
    name = _NAME.fullmatch(left)
    key = (name[1] if name else without_marks(left.strip('"')), sign, without_marks(other))
    answer = _compare(value, sign, other)
    if answer is None or not (is_sure and is_known):
        likely = answer if answer is not None and not is_open(value) else sign != "-n" and not negated
        sides = sides[::-1] if negated else sides
        if sign == "-n" and name and name[1] in assigned(sides[1]):
            answer = False  # it gets a default there
        else:
            answer = chosen(key, choices, sides, likely=likely)
        if answer and name and sign == "=" and not set(other) & set("*?["):
            shell.variables[name[1]] = other
    return answer != negated


def chosen(key: Key, choices: Choices, sides: Sequence[Sequence[Node]], *, likely: bool = True) -> bool:
    """Chooses an answer; never the one that only ends the script."""
    leaves = [any(map(_leaves, side)) for side in sides]
    return leaves[1] if leaves[0] != leaves[1] else choices.holds(key, likely)


def assigned(nodes: Sequence[Node]) -> set[str]:
    """The variables that statements assign, whatever stands around it."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, Command):
            found |= {match[1] for word in node.words if (match := ASSIGNMENT.fullmatch(word))}
        else:
            bodies = [node.body] if isinstance(node, Loop) else [body for _, body in node.options]
            found |= {name for body in bodies for name in assigned(body)}
    return found


def _leaves(node: Node) -> bool:
    if isinstance(node, Branches):
        return node.options[0][0] is None and any(map(_leaves, node.options[0][1]))
    return isinstance(node, Command) and node.words[0] in _LEAVING


def _known(word: str, shell: Shell, arithmetic: bool) -> tuple[str, bool]:
    """A word's text, and whether it is the same for every caller."""
    if arithmetic and not is_digits(word):
        word = word if "$" in word else f"${word}" if word.isidentifier() else f"$(({word}))"
    text = text_of(word, shell.variables)
    return text, not is_open(text) and not shell.is_soft(word)
