"""Says whether a tag can be released: it is the version of the package, and CHANGELOG.md has a dated section for it.

    python tools/release_check.py vX.Y.Z [--notes]

With ``--notes`` the section's text is printed, for the release's page. The exit code is 1 where something is missing.
It runs before anything is installed, so it needs nothing but Python.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_VERSION = re.compile(r'^version = "([^"]+)"$', re.MULTILINE)
_SECTION = re.compile(
    r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d\d-\d\d))?\n(?P<text>.*?)(?=^## |\Z)", re.M | re.S
)


def version() -> str:
    """The version in pyproject.toml. Raises ValueError where it is not one line of the project's table."""
    found = _VERSION.findall((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if len(found) != 1:
        raise ValueError("pyproject.toml has no single version line")
    return str(found[0])


def sections(changelog: str) -> dict[str, tuple[str | None, str]]:
    """The date and the text of every section by its version, ``Unreleased`` among them."""
    return {match["version"]: (match["date"], match["text"].strip()) for match in _SECTION.finditer(changelog)}


def problems(tag: str, changelog: str) -> list[str]:
    """Why ``tag`` cannot be released; empty where it can."""
    found = []
    if tag != f"v{version()}":
        found.append(f"the tag is {tag}, and pyproject.toml has version {version()}: the tag must be v{version()}")
    date, text = sections(changelog).get(tag.removeprefix("v"), (None, ""))
    if date is None or not text:
        found.append(f"CHANGELOG.md has no section '## [{tag.removeprefix('v')}] - YYYY-MM-DD' with text")
    return found


def main(arguments: list[str]) -> int:
    tags = [word for word in arguments if not word.startswith("-")]
    if len(tags) != 1:
        print(__doc__, file=sys.stderr)
        return 1
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = problems(tags[0], changelog)
    for line in found:
        print(line, file=sys.stderr)
    if not found and "--notes" in arguments:
        print(sections(changelog)[tags[0].removeprefix("v")][1])
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
