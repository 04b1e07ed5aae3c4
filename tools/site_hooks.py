"""What the site has beside docs/: the changelog, how to contribute, the colours, and files of the repository that pages
link to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "tokens.css": "sglang_hydra/measure/report/tokens.css",
}
_OUTSIDE = re.compile(r"\]\((?:\.\./)+((?:conf|examples)/[\w./-]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages above, and each file below conf/ or examples/ that a page links to."""
    for name, source in PAGES.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    linked = {
        target
        for page in Path(config.docs_dir).rglob("*.md")
        for target in _OUTSIDE.findall(page.read_text(encoding="utf-8"))
    }
    for target in sorted(linked):
        files.append(File.generated(config, _in_site(target), abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links that leave docs/ lead to the copy in the site."""
    up = "../" * page.file.src_uri.count("/")
    return _OUTSIDE.sub(lambda match: f"]({up}{_in_site(match[1])})", markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """The theme's search is a dialog; screen readers need a name for it."""
    return output.replace('role="dialog">', 'role="dialog" aria-label="Search">')


def _in_site(target: str) -> str:
    """Where the copy of a file is: a site has no folders whose names begin with a dot."""
    return f"repository/{target.replace('/.', '/')}"
