"""Links of the reference: from a rule to SGLang's lines and to the arguments that it is about, and back."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from sglang_hydra.arguments.fields import FIELDS

TREE = "https://github.com/sgl-project/sglang/blob"
RULES = "0.5.2"
"""The release whose files are cited where none stands before a file."""
_RELEASE = re.compile(r"(0\.5\.\d+(?:\.post\d+)?) $")
_BESIDE_SRT = "kernels/"
_PARTS = re.compile(r"^(What|Why|Upstream|Example): ", re.MULTILINE)
_CITED = re.compile(
    r"(?P<path>[\w/]+\.py)(?:(?::|(?: 0\.5\.2)? lines )(?P<lines>\d+(?:-\d+)?)(?P<more>(?: and \d+(?:-\d+)?)*))?"
)
_AT_THE_TOP = ("server_args.py", "utils.py")
"""What is cited without a folder and lies in none."""


def parts(page: str) -> tuple[str, dict[str, str]]:
    """What stands before the parts of a rule's page, and its parts by their words, each on one line."""
    pieces = _PARTS.split(textwrap.dedent(page).strip())
    lines = [" ".join(piece.split()) for piece in pieces]
    return lines[0], dict(zip(pieces[1::2], lines[2::2], strict=True))


def cited(text: str, plain: Callable[[str], str]) -> str:
    """A text as Markdown whose citations of SGLang's files are links to these lines; ``plain`` writes the rest. They
    are 0.5.2's, but for those behind ``0.5.23 `` up to the next semicolon or full stop. A file without a folder lies in
    that of the one cited before it; where none was, there is no link."""
    made, end, folder, release = [], 0, "", RULES
    for match in _CITED.finditer(text):
        path, between = match["path"], text[end : match.start()]
        named = _RELEASE.search(between)
        release = named[1] if named else RULES if re.search(r"[;.] ", between) else release
        if "/" not in path and path not in _AT_THE_TOP:
            path = f"{folder}{path}" if folder else ""
        elif "/" in path:
            folder = f"{path.rpartition('/')[0]}/"
        if not path or path.startswith("torch/"):
            continue
        made.append(plain(text[end : match.start()]))
        shown = text[match.start() : match.start("more") if match["lines"] else match.end()]
        made.append(_link(plain(shown), path, match["lines"], release))
        for lines in re.findall(r"\d+(?:-\d+)?", match["more"] or ""):
            made.append(f" and {_link(lines, path, lines, release)}")
        end = match.end()
    return "".join([*made, plain(text[end:])])


def _link(shown: str, path: str, lines: str | None, release: str) -> str:
    first, _, last = (lines or "").partition("-")
    place = f"#L{first}" + (f"-L{last}" if last and last != first else "") if first else ""
    folder = "" if path.startswith(_BESIDE_SRT) else "srt/"
    return f"[{shown}]({TREE}/v{release}/python/sglang/{folder}{path}{place})"


def about(page: str) -> list[str]:
    """The arguments that a rule is about: those that its first part names, or else its example."""
    head, by_word = parts(page)
    for text in (by_word.get("What", head), by_word.get("Example", "")):
        named = [name for name in FIELDS if re.search(rf"\b{name}\b", text)]
        if named:
            return named
    return []


def heading(rules: Iterable[Any]) -> Iterator[tuple[str, str, list[Any]]]:
    """For each id the title of its page and the rules that share it: one step may stand at two places."""
    for id, same in groupby(rules, key=lambda rule: rule.id):
        members = list(same)
        name = getattr(members[0], "name", None) or members[0].look.__name__  # a doctor's check has no name of its own
        yield id, f"{id} {name.replace('_', ' ')}", members


def back_links(pages: Mapping[str, Iterable[Any]]) -> dict[str, list[str]]:
    """For each argument the links to the rules and checks about it; ``pages`` are the rules by their file."""
    links: dict[str, list[str]] = {}
    for file, rules in pages.items():
        for id, title, members in heading(rules):
            for name in dict.fromkeys(name for rule in members for name in about(rule.page)):
                links.setdefault(name, []).append(f"[{id}]({file}#{title.lower().replace(' ', '-')})")
    return links
