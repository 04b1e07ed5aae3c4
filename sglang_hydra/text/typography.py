"""Signs that an editor, a chat or a Chinese keyboard puts in place of those that a shell knows: dashes, quotes, spaces,
full-width letters."""

from __future__ import annotations

import re
import unicodedata

_DASHES = "\u00df\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\uff0d"
_QUOTES = "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u00ab\u00bb\uff02\uff07"
_WIDE = {**{0xFEE0 + sign: sign for sign in range(0x21, 0x7F)}, 0x3000: 0x20, 0x3001: 0x2C, 0x3002: 0x2E}
"""Full-width signs, and the space, comma and stop of Chinese, as ASCII has them."""
_UNSEEN = "\u00a0\u200b\u200c\u200d\u202f\u2060\ufeff"
_LEADING_DASHES = re.compile(f"-?[{_DASHES}][{_DASHES}-]*")
_AROUND = re.compile(rf"(=|^)[{_QUOTES}](.*?)[{_QUOTES}]?$", re.DOTALL)


def as_meant(word: str) -> str:
    """``word`` with the signs that a shell knows: ``--`` for dashes at its begin, no quotes that no shell takes away,
    no spaces that nobody sees."""
    plain = "".join(sign for sign in word if sign not in _UNSEEN)
    found = _LEADING_DASHES.match(plain)
    if found is not None:
        plain = f"--{plain[found.end() :]}"
    return _AROUND.sub(r"\1\2", plain).translate(_WIDE)


def foreign_sign(word: str) -> str:
    """The first of such signs in a word, by its name: ``an em dash (U+2014)``."""
    sign = next(sign for sign in word if sign in f"{_DASHES}{_QUOTES}{_UNSEEN}" or ord(sign) in _WIDE)
    name = unicodedata.name(sign).lower()
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name} (U+{ord(sign):04X})"
