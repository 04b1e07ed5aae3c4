"""The texts use the words of docs/glossary.md: messages, help, screens, docs, and docstrings that begin with a verb.

``KEPT`` is a ratchet: lower a number when texts get better, never raise one.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from sglang_hydra.text.budget import quick_load

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "sglang_hydra"
KEPT = {"pages": 0, "messages": 0, "docstrings": 0, "openings": 5}
"""How many findings may be left of each kind: the openings say "Groups", which is a verb and a noun."""
GENERATED = ("sglang_hydra/schemas/config.schema.json", "docs/reference/", "sglang_hydra/arguments/fields/defaults")
_TABLE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").partition("## Words we avoid")[2]
AVOIDED = [word for row in re.findall(r"^\| ([a-z ,]+) \|", _TABLE, re.MULTILINE)[1:] for word in row.split(", ")]
WORDS = re.compile(rf"\b({'|'.join(AVOIDED)})\b(?!-in)", re.IGNORECASE)
_ROOM_AS_PACKAGE = ("docs/architecture.md", "CONTRIBUTING.md", "docs/glossary.md")
_FENCED = re.compile(r"^```.*?^```|`[^`\n]*`|\]\([^)]*\)|^##+ [A-Z]{3}\d{3} .*?$", re.MULTILINE | re.DOTALL)
"""What is no prose: code, targets of links, headings made from the names of rules."""
NO_VERBS = "This Its Always As Less Plus Bytes Tokens Seconds Rows Requests Arguments Groups Thus Besides"
VERB = re.compile(rf"(?!(?:{NO_VERBS.replace(' ', '|')})\b)[A-Z][a-z]+s\b")
"""The first word of a docstring: ``Reads``, ``Returns``."""


def pages() -> Iterator[tuple[str, str]]:
    """Yields the prose of each page with its place."""
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        name = page.relative_to(ROOT).as_posix()
        prose = _FENCED.sub("", page.read_text(encoding="utf-8").partition("## Words we avoid")[0])
        yield name, re.sub(r"\brooms?\b", "", prose) if name in _ROOM_AS_PACKAGE else prose


def texts_of_code() -> tuple[list[tuple[str, str]], list[tuple[str, str, bool]]]:
    """Returns the texts of the package's code, each with its place: those that are no docstrings, and the docstrings
    with whether each is a function's. Reads each file once, because that takes long."""
    messages, docstrings = [], []
    for file in PACKAGE.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        bare = {id(each.value) for each in nodes if isinstance(each, ast.Expr)}
        for node in nodes:
            place = f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
                messages.append((place, node.value))
            elif isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node)
                docstrings += [(place, text, not isinstance(node, (ast.Module, ast.ClassDef)))] if text else []
    return [(place, text) for place, text in messages if " " in text], docstrings


def texts_of_data() -> Iterator[tuple[str, str]]:
    """Yields the texts of the package's data files with their places."""
    for file in [*PACKAGE.rglob("*.json"), *PACKAGE.rglob("*.yaml")]:
        name = file.relative_to(ROOT).as_posix()
        if name not in GENERATED and file.stat().st_size < 400_000:
            text = file.read_text(encoding="utf-8")
            yield from (
                (name, each) for each in _texts(json.loads(text) if file.suffix == ".json" else quick_load(text))
            )


def _texts(data: object) -> Iterator[str]:
    """Yields every text in plain data that holds several words."""
    if isinstance(data, str) and " " in data:
        yield data
    for part in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from _texts(part)


def found() -> dict[str, list[str]]:
    """Finds what is left of each kind, by its place."""
    messages, docstrings = texts_of_code()
    of_functions = [(place, text) for place, text, is_function in docstrings if is_function and "\nWhy:" not in text]
    texts = {
        "pages": pages(),
        "messages": [*messages, *texts_of_data()],
        "docstrings": ((place, re.sub(r"``.*?``", "", text)) for place, text, _ in docstrings),
    }
    words = {
        kind: [f"{place}: {match[0]}" for place, text in each for match in WORDS.finditer(text)]
        for kind, each in texts.items()
    }
    return words | {"openings": [f"{place}: {text[:60]}" for place, text in of_functions if not VERB.match(text)]}


def test_no_more_words_are_left_than_before() -> None:
    left = found()
    assert {kind: len(each) for kind, each in left.items() if len(each) > KEPT[kind]} == {}, left


if __name__ == "__main__":
    left = found()
    for kind, each in left.items():
        print(kind, len(each), Counter(re.split(r"[/:]", place.removeprefix("sglang_hydra/"))[0] for place in each))
