"""Small words for messages: the nearest name, a number or a plural as people write it, a long text cut short."""

from __future__ import annotations

import functools
import os
import re
import shlex
import sys
import unicodedata
from collections.abc import Iterable

_WIDTH = 100
_MOST_LISTED = 5
_SHORT = 4
"""Names this short match only candidates that start with or contain them: ``time`` is not ``image``."""
_SIZE = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,15}))?(k|M|G|T|Ki|Mi|Gi|Ti)")
_FACTORS: dict[str, int] = {
    **{letter: 1000**power for power, letter in enumerate("kMGT", 1)},
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGT", 1)},
}


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Returns the name that was surely meant; None where that is not sure: ``several_near`` has the names to list."""
    sure = surest(name, names)
    return sure[0] if len(sure) == 1 else None


def surest(name: str, names: Iterable[str]) -> list[str]:
    """Returns the name that is only spelled otherwise, else the only one that begins so, else those with the fewest
    slips of the fingers, up to those that ``_slip`` allows."""
    slips: dict[str, int] = {}
    begun: dict[str, list[str]] = {}
    for one in names:
        if _flat(one) == _flat(name):
            return [one]
        if (rest := _rest(name, one)) is not None:
            begun[one] = rest
        elif (letters := _slip(name, one)) is not None:
            slips[one] = letters
    if begun:
        # A single word is not cut where another word follows: token is no tokenizer_path.
        rest, several = next(iter(begun.values())), re.search(r"\w[\W_]+\w", name) is not None
        is_sure = len(rest) == 1 or (len(rest) == 2 and (several or not rest[0]))
        return list(begun) if is_sure or len(begun) > 1 else []
    return [one for one, letters in slips.items() if letters == min(slips.values())]


def several_near(name: str, names: Iterable[str], most: int) -> list[str]:
    """Returns the names that may have been meant, the nearest first; one that is only spelled otherwise is alone."""
    import difflib

    flat = {_flat(candidate): candidate for candidate in names}
    wanted = _flat(name)[:_WIDTH]
    if wanted in flat:
        return [flat[wanted]]
    comparable = [one for one in flat if len(wanted) > _SHORT or one[:1] == wanted[:1] or wanted in one]
    return [flat[close] for close in difflib.get_close_matches(wanted, comparable, n=most)]


def _rest(typed: str, name: str) -> list[str] | None:
    """Returns what of the words of ``name`` follows where it begins with ``typed``, two letters or more; else None."""
    flat = _flat(typed)
    begun = re.match(r"[\W_]*".join(flat), name.lower()) if len(flat) > 1 else None
    if begun is None:
        return None
    rest, cut = re.split(r"[\W_]+", name[begun.end() :]), re.split(r"[\W_]+", begun[0])
    least = 2 if re.search(r"\w[\W_]+\w", typed) else 3
    is_chance = len(cut) > 1 and rest[0] != "" and len(cut[-1]) < least
    return None if is_chance else rest  # swap is no swa_prefix_tails


def _slip(typed: str, name: str) -> int | None:
    """Returns how many letters are wrong where ``typed`` is ``name`` mistyped; None where it is another name.

    Each word is one of the name with a letter too many, too few, wrong or in another place, two of them in a long word,
    or is cut short, without its vowels, or in the plural. A word of up to three letters has no other letter
    (moe_tp_size is not moe_dp_size). The first letter is right (precision is not revision), and so are the digits but
    for a repeated one (qwen3_9b is not qwen3_8b)."""
    one, other = _flat(typed)[:_WIDTH], _flat(name)
    if one[:1] != other[:1] or _numbers(one) != _numbers(other):
        return None
    mine, theirs = (re.split(r"[\W_]+", text.lower()) for text in (typed[:_WIDTH], name))
    if len(mine) != len(theirs):
        letters = _edits(one, other)
        return letters if letters < 2 < len(one) else None
    wrong = [_wrong_letters(*pair) for pair in zip(mine, theirs, strict=True)]
    return None if None in wrong else sum(filter(None, wrong))


def _wrong_letters(word: str, meant: str) -> int | None:
    if len(word) > 2 and word != meant and word in (meant[: len(word)], re.sub("[aeiou]", "", meant), f"{meant}s"):
        return 1
    letters, most = _edits(word, meant), 2 if len(meant) > 6 and word[:1] == meant[:1] else 1
    is_short = len(word) < 3 or len(meant) < 4
    return None if letters > most or (is_short and set(word) != set(meant)) else letters


def _edits(one: str, other: str) -> int:
    """Returns how many letters to put in, take out, replace or exchange with the next make one word of the other."""
    if abs(len(one) - len(other)) > 2:
        return 3
    rows = [list(range(len(other) + 1))]
    for at, letter in enumerate(one, 1):
        row = [at]
        for to, meant in enumerate(other, 1):
            row.append(min(rows[-1][to] + 1, row[-1] + 1, rows[-1][to - 1] + (letter != meant)))
            if at > 1 and to > 1 and one[at - 2 : at] == other[to - 2 : to][::-1]:
                row[-1] = min(row[-1], rows[-2][to - 2] + 1)
        rows.append(row)
    return rows[-1][-1]


def _numbers(flat: str) -> list[str]:
    return [re.sub(r"(.)\1+", r"\1", digits) for digits in re.findall(r"\d+", flat)]


def some_of(name: str, names: Iterable[str], command: str) -> str:
    """Returns the names that there are: all of a few, else the five nearest, how many more, and what lists them."""
    import difflib

    every = list(names)
    if len(every) <= _MOST_LISTED + 1:
        return ", ".join(every)
    near = difflib.get_close_matches(name[:_WIDTH].lower(), every, n=_MOST_LISTED, cutoff=0.0)
    return f"{', '.join(near)} and {len(every) - len(near)} more: {command}"


def size_of(text: str) -> int | None:
    """Returns the number that SGLang 0.5.10 and later read in ``32k`` (32,000) or ``32Ki`` (32,768); else None.

    Case counts, and ``1.5Ki`` is none (sglang/srt/utils/common.py, human_readable_int).
    """
    matched = _SIZE.fullmatch(text)
    if matched is None or (matched[2] and matched[3].endswith("i")):
        return None
    fraction = matched[2] or ""
    return int(matched[1] + fraction) * _FACTORS[matched[3]] // int(10 ** len(fraction))


def both_sizes(text: str) -> str:
    """Returns ``32k = 32,000; 32Ki = 32,768`` for a size."""
    other = f"{text[:-1]}{text[-1].upper()}i" if text[-1] != "i" else text[:-1].replace("K", "k")
    return "; ".join(f"{word} = {size:,}" for word in (text, other) if (size := size_of(word)) is not None)


def number(value: object) -> str:
    """Writes ``143771`` for 143771.0: a float that is whole loses its point; else as Python writes it."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def typed(value: object) -> str:
    """Returns a value as one types it, for a message: null, true and bare words; else as Python writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) and value else repr(value)


def short(text: str, width: int = _WIDTH) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def program() -> str:
    """Returns how this program was started, for commands that a message suggests."""
    return "python serve.py" if os.path.basename(sys.argv[0]) == "serve.py" else "sglang-hydra"


def install_command(extra: str) -> str:
    """Returns the command that adds an extra: to the package that is installed, which asks no registry for it, or to
    that of the checkout in which ``serve.py`` was started."""
    return f"pip install '{'sglang-hydra' if program() == 'sglang-hydra' else '.'}[{extra}]'"


@functools.lru_cache(maxsize=8192)
def _flat(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def is_digits(text: str) -> bool:
    """Returns whether ``int`` reads ``text`` as a whole number, 0 or above. ``"²".isdigit()`` is true, and Python
    refuses to read more than 4300 digits."""
    return re.fullmatch(r"[0-9]{1,18}", text) is not None


_DASHES = "\u00df\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\uff0d"
_QUOTES = "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u00ab\u00bb\uff02\uff07"
_WIDE = {**{0xFEE0 + sign: sign for sign in range(0x21, 0x7F)}, 0x3000: 0x20, 0x3001: 0x2C, 0x3002: 0x2E}
"""Full-width signs, and the space, comma and stop of Chinese, as ASCII has them."""
_UNSEEN = "\u00a0\u200b\u200c\u200d\u202f\u2060\ufeff"
_LEADING_DASHES = re.compile(f"-?[{_DASHES}][{_DASHES}-]*")
_AROUND = re.compile(rf"(=|^)[{_QUOTES}](.*?)[{_QUOTES}]?$", re.DOTALL)


def as_meant(word: str) -> str:
    """Returns ``word`` with the signs that a shell knows: ``--`` for dashes at its begin, no quotes that no shell takes
    away, no spaces that nobody sees."""
    plain = "".join(sign for sign in word if sign not in _UNSEEN)
    found = _LEADING_DASHES.match(plain)
    if found is not None:
        plain = f"--{plain[found.end() :]}"
    return _AROUND.sub(r"\1\2", plain).translate(_WIDE)


def foreign_sign(word: str) -> str:
    """Returns the first of such signs in a word, by its name: ``an em dash (U+2014)``."""
    sign = next(sign for sign in word if sign in f"{_DASHES}{_QUOTES}{_UNSEEN}" or ord(sign) in _WIDE)
    name = unicodedata.name(sign).lower()
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name} (U+{ord(sign):04X})"


def shell_word(word: str) -> str:
    """Returns one word for a shell. Terminal controls are spelled out in quotes of bash, zsh and ksh."""
    if word.isprintable():
        return shlex.quote(word)
    spelled = "".join(_ansi_c(char) for char in word)
    return f"$'{spelled}'"


def _ansi_c(char: str) -> str:
    if char in "'\\":
        return "\\" + char
    if char.isprintable():
        return char
    errors = "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", errors))
