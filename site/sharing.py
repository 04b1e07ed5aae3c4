"""What others see of the site: addresses, the list of its pages, and links to the sources of its data."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from markupsafe import Markup

_SOURCE = re.compile(
    r"\b(?P<repository>[\w-]+/[\w.-]+)(?:@(?P<commit>[0-9a-f]{7,40})|#(?P<number>\d+)| \d[\w.]*)"
    r"(?: (?P<path>[\w./-]+\.\w+))?"
)


def linked(source: str) -> Markup:
    """Returns the name of a source, what it has of GitHub as links: ``OWNER/NAME@COMMIT PATH``, ``OWNER/NAME#NUMBER``
    and ``OWNER/NAME VERSION``."""
    text, at = Markup(), 0
    for found in _SOURCE.finditer(source):
        repository, commit, number, path = found.group("repository", "commit", "number", "path")
        place = f"/issues/{number}" if number else ""
        if commit:
            place = f"/blob/{commit}/{path}" if path else f"/tree/{commit}"
        link = Markup('<a href="https://github.com/{}{}">{}</a>').format(repository, place, found.group())
        text, at = text + source[at : found.start()] + link, found.end()
    return text + source[at:]


def place_of(address: str, name: str) -> str:
    """Returns the address of a page; home has that of the site."""
    return address + ("" if name == "index.html" else name)


def write_shared(out: Path, address: str, names: Iterable[str]) -> None:
    """Writes sitemap.xml, which needs the site's address: the pages ``names`` and the documentation's."""
    if not address:
        print("Without --address: no canonical links, no previews and no sitemap.xml")
        return
    documents = sorted(file.relative_to(out).as_posix() for file in (out / "docs").rglob("*.html"))
    places = [place_of(address, name) for name in [*names, *documents] if not name.endswith("404.html")]
    urls = "".join(Markup("<url><loc>{}</loc></url>\n").format(place) for place in places)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
    (out / "sitemap.xml").write_text(f"{head}{urls}</urlset>\n", encoding="utf-8")
