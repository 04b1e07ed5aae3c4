"""Formats words for messages: the nearest name, numbers and plurals, shortened texts, shell words."""

from __future__ import annotations

import functools
import os
import re
import shlex
import sys
import unicodedata
from collections.abc import Iterable
from typing import NoReturn

_WIDTH = 100
_MOST_LISTED = 5
_SHORT = 4
"""A name this short matches only candidates that contain it or share its first letter: ``time`` is not ``image``."""
_SIZE = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,15}))?(k|M|G|T|Ki|Mi|Gi|Ti)")
_FACTORS: dict[str, int] = {
    **{letter: 1000**power for power, letter in enumerate("kMGT", 1)},
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGT", 1)},
}


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Returns the name that was surely meant, or None where that is unsure; ``several_near`` then lists candidates."""
    sure = surest(name, names)
    return sure[0] if len(sure) == 1 else None


def surest(name: str, names: Iterable[str]) -> list[str]:
    """Returns the most likely names: one that differs only in punctuation and case, else those that begin with
    ``name``, else those with the fewest typing errors that ``_slip`` allows."""
    slips: dict[str, int] = {}
    begun: dict[str, list[str]] = {}
    for one in names:
        if plain_name(one) == plain_name(name):
            return [one]
        if (rest := _rest(name, one)) is not None:
            begun[one] = rest
        elif (letters := _slip(name, one)) is not None:
            slips[one] = letters
    if begun:
        # A single word does not match where several words would have to follow: token is not tokenizer_path.
        rest, several = next(iter(begun.values())), re.search(r"\w[\W_]+\w", name) is not None
        is_sure = len(rest) == 1 or (len(rest) == 2 and (several or not rest[0]))
        return list(begun) if is_sure or len(begun) > 1 else []
    return [one for one, letters in slips.items() if letters == min(slips.values())]


def several_near(name: str, names: Iterable[str], most: int) -> list[str]:
    """Returns up to ``most`` similar names, the nearest first; one with other punctuation or case comes alone."""
    import difflib

    flat = {plain_name(candidate): candidate for candidate in names}
    wanted = plain_name(name)[:_WIDTH]
    if wanted in flat:
        return [flat[wanted]]
    comparable = [one for one in flat if len(wanted) > _SHORT or one[:1] == wanted[:1] or wanted in one]
    return [flat[close] for close in difflib.get_close_matches(wanted, comparable, n=most)]


def _rest(typed: str, name: str) -> list[str] | None:
    """Returns the words of ``name`` after its prefix ``typed`` (two letters or more); None if it is no prefix."""
    flat = plain_name(typed)
    begun = re.match(r"[\W_]*".join(flat), name.lower()) if len(flat) > 1 else None
    if begun is None:
        return None
    rest, cut = re.split(r"[\W_]+", name[begun.end() :]), re.split(r"[\W_]+", begun[0])
    least = 2 if re.search(r"\w[\W_]+\w", typed) else 3
    is_chance = len(cut) > 1 and rest[0] != "" and len(cut[-1]) < least
    return None if is_chance else rest  # swap is not swa_prefix_tails


def _slip(typed: str, name: str) -> int | None:
    """Counts the wrong letters if ``typed`` is a mistyped ``name``; None if it is another name.

    Each word may have one letter extra, missing, wrong or out of place (two in a long word), or be cut short, without
    its vowels, or in the plural. A word of up to three letters may only have its letters in another order (moe_tp_size
    is not moe_dp_size). The first letter must be right (precision is not revision), and so must the digits, except for
    a repeated one (qwen3_9b is not qwen3_8b)."""
    one, other = plain_name(typed)[:_WIDTH], plain_name(name)
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
    """Counts the letters to insert, delete, replace or swap with the next; 3 if the lengths differ by more than 2."""
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
    """Lists the names: all of a few; else the five nearest, the number of others, and the command that lists them."""
    import difflib

    every = list(names)
    if len(every) <= _MOST_LISTED + 1:
        return ", ".join(every)
    near = difflib.get_close_matches(name[:_WIDTH].lower(), every, n=_MOST_LISTED, cutoff=0.0)
    return f"{', '.join(near)} and {len(every) - len(near)} more: {command}"


def size_of(text: str) -> int | None:
    """Returns the number that SGLang 0.5.10 and later read in ``32k`` (32,000) or ``32Ki`` (32,768); else None.

    Case matters, and ``1.5Ki`` is invalid (sglang/srt/utils/common.py, human_readable_int)."""
    matched = _SIZE.fullmatch(text)
    if matched is None or (matched[2] and matched[3].endswith("i")):
        return None
    fraction = matched[2] or ""
    return int(matched[1] + fraction) * _FACTORS[matched[3]] // int(10 ** len(fraction))


def both_sizes(text: str) -> str:
    """Returns ``32k = 32,000; 32Ki = 32,768`` for either size."""
    other = f"{text[:-1]}{text[-1].upper()}i" if text[-1] != "i" else text[:-1].replace("K", "k")
    return "; ".join(f"{word} = {size:,}" for word in (text, other) if (size := size_of(word)) is not None)


def number(value: object) -> str:
    """Formats 143771.0 as ``143771``: a whole float below 1e15 loses its point; any other value stays as in Python."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def typed(value: object) -> str:
    """Formats a value for a message as users type it: null, true and bare words; any other value as in Python."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) and value else repr(value)


def short(text: str, width: int = _WIDTH) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


_SECRET_FORMS = (
    *(r"hf_[A-Za-z0-9]{20,}", r"gh[pousr]_[A-Za-z0-9]{30,}", r"github_pat_\w{22,}", r"xox[abeprs]-[\w-]{20,}"),
    *(r"glpat-[\w-]{20,}", r"nvapi-[\w-]{20,}", r"sk-[A-Za-z0-9]{20,}", r"sk-(?=[\w-]{0,99}\d)[\w-]{20,}"),
    *(r"A[KS]IA[A-Z0-9]{16}\b", r"eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)?", r"AIza[\w-]{30,}", r"ya29\.[\w-]{20,}"),
    *(r"npm_[A-Za-z0-9]{30,}", r"pypi-[\w-]{50,}", r"hvs\.[\w-]{20,}"),
    *(r"(?:gsk|r8|whsec|dop_v1|shpat|lsv2_pt)_\w{30,}",),
    *(r"SG\.[\w-]{16,}\.[\w-]{16,}", r"[rs]k_(?:live|test)_\w{20,}", r"hooks\.slack\.com/services/[^\s\"'<]{20,}"),
    *(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-\"'<]*", r"(?:AccountKey|SharedAccessKey)=[\w+/=]{20,}"),
    r"(?i:bearer|basic) (?=[\w.~+/=-]{0,999}\d)[\w.~+/=-]{16,}",
)
"""The forms of known tokens and keys, whatever the name beside them is."""


_NAMED = (
    r"(?i:passw(?:or)?d|secret|(?:api|access|private)[_-]?key|(?:hf|auth|access|bearer|refresh)[_-]?token)"
    r"[\\'\"]{0,6} ?[=:] ?[\\'\"]{0,6}(?=[^\s'\"$,&}*]{0,99}\d)[^\s'\"$,&}*<]{6,}"
    r"|(?<=[?&;])(?i:[\w-]{0,20}(?:sig|signature|key|token|auth))=[^&\s'\"$*]{6,}"
)
SECRET_FORM = rf"(?<![A-Za-z0-9])(?:{'|'.join(_SECRET_FORMS)})|{_NAMED}|(?<=://)([^/@:\s]*:)[^/\s\"'*]+(?=@)"
"""The same, the value behind a secret's name, and an address's password behind the user's name (group 1)."""


def without_secret_forms(text: str) -> str:
    """Replaces every token and every password of an address by ``***``; keeps the user's name."""
    return re.sub(SECRET_FORM, lambda found: f"{found[1] or ''}***", text) if len(text) > 6 else text


def plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def program() -> str:
    """Returns the name that started this program, for commands in messages."""
    return "python serve.py" if os.path.basename(sys.argv[0]) == "serve.py" else "sglang-hydra"


def install_command(extra: str) -> str:
    """Returns the pip command that installs an extra: of the installed package or the checkout under ``serve.py``."""
    return f"pip install '{'sglang-hydra' if program() == 'sglang-hydra' else '.'}[{extra}]'"


@functools.lru_cache(maxsize=8192)
def plain_name(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def is_digits(text: str) -> bool:
    """Returns whether ``text`` is 1 to 18 ASCII digits. ``"²".isdigit()`` is true too, and Python refuses to convert
    more than 4300 digits."""
    return re.fullmatch(r"[0-9]{1,18}", text) is not None


_DASHES = "\u00df\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\uff0d"
_QUOTES = "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u00ab\u00bb\uff02\uff07"
_WIDE = {**{0xFEE0 + sign: sign for sign in range(0x21, 0x7F)}, 0x3000: 0x20, 0x3001: 0x2C, 0x3002: 0x2E}
"""Full-width characters, and the Chinese space, comma and full stop, each with its ASCII character."""
_UNSEEN = "\u00a0\u200b\u200c\u200d\u202f\u2060\ufeff\r"
_LEADING_DASHES = re.compile(f"-?[{_DASHES}][{_DASHES}-]*")
_AROUND = re.compile(rf"(=|^)[{_QUOTES}](.*?)[{_QUOTES}]?$", re.DOTALL)


def as_meant(word: str) -> str:
    """Replaces pasted typography in a typed word: dashes at the start become ``--``; curly quotes around the value and
    invisible spaces are removed; full-width characters become ASCII."""
    plain = "".join(sign for sign in word if sign not in _UNSEEN)
    found = _LEADING_DASHES.match(plain)
    if found is not None:
        plain = f"--{plain[found.end() :]}"
    return _AROUND.sub(r"\1\2", plain).translate(_WIDE)


def foreign_sign(word: str) -> str:
    """Names the first such character in a word: ``an em dash (U+2014)``."""
    sign = next(sign for sign in word if sign in f"{_DASHES}{_QUOTES}{_UNSEEN}" or ord(sign) in _WIDE)
    name = unicodedata.name(sign, "carriage return").lower()
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name} (U+{ord(sign):04X})"


def shell_word(word: str) -> str:
    """Quotes one word for a shell. Control characters become escapes in ``$'...'`` of bash, zsh and ksh."""
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


def no_attribute(of: object, name: str, where: str = "") -> NoReturn:
    """Raises AttributeError for an unknown attribute of our object. The message names the attribute that shares the
    most words with ``name``; ``where`` replaces this."""
    words = {word.rstrip("s") for word in name.split("_") if word}
    public = [one for one in (*getattr(type(of), "__dataclass_fields__", ()), *dir(type(of))) if one[0] != "_"]
    shared = {one: len(words & {word.rstrip("s") for word in one.split("_")}) for one in public}
    near = max(shared, key=lambda one: (shared[one], -len(one)), default="")
    where = where or (f"; did you mean {near}?" if shared.get(near) else f"; it has {', '.join(public[:20])}")
    raise AttributeError(f"a {type(of).__name__} has no attribute {name!r}{where}", name=name, obj=of)
