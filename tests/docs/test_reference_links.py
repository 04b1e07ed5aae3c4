"""The links of the reference: to lines that SGLang 0.5.2 has, and between rules and arguments in both ways."""

from __future__ import annotations

import re

import pytest

from sglang_hydra.releases import wheels
from sglang_hydra.releases.records import record_of
from tools.reference_links import SOURCE, cited
from tools.reference_pages import pages

PAGES = pages()


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("server_args.py 0.5.2 lines 8-9.", f"[server_args.py 0.5.2 lines 8-9]({SOURCE}/server_args.py#L8-L9)."),
        ("utils.py:7 has it", f"[utils.py:7]({SOURCE}/utils.py#L7) has it"),
        (
            "a/b.py:1-2 and 5-6, c.py",
            f"[a/b.py:1-2]({SOURCE}/a/b.py#L1-L2) and [5-6]({SOURCE}/a/b.py#L5-L6), [c.py]({SOURCE}/a/c.py)",
        ),
        ("nowhere.py and torch/version.py", "nowhere.py and torch/version.py"),
    ],
)
def test_a_citation_becomes_a_link(text: str, made: str) -> None:
    assert cited(text, str) == made


def test_rules_and_arguments_name_each_other() -> None:
    to_arguments, page = set(), ""
    for name in ("rules.md", "checks.md"):
        for line in PAGES[name].splitlines():
            page = re.sub(r"\s", "-", line.lstrip("# ").lower()) if line.startswith("#") else page
            to_arguments |= {(f"{name}#{page}", field) for field in re.findall(r"\(arguments\.md#(\w+)\)", line)}
    to_rules, field = set(), ""
    for line in PAGES["arguments.md"].splitlines():
        field = line.removeprefix("### ") if line.startswith("### ") else field
        to_rules |= {(target, field) for target in re.findall(r"\(((?:rules|checks)\.md#[\w-]+)\)", line)}
    assert to_rules == to_arguments
    assert len(to_rules) > 200


@pytest.mark.registry
def test_every_line_that_is_linked_to_is_there() -> None:
    record = record_of("0.5.2")
    assert record is not None
    (source,) = [path for path in (folder / "sglang" / "srt" for folder in wheels.fetch(record)) if path.is_dir()]
    links = {link for page in PAGES.values() for link in re.findall(re.escape(SOURCE) + r"/([^)\s]+)\)", page)}
    assert len(links) > 100
    for link in links:
        path, _, lines = link.partition("#L")
        written = (source / path).read_text(encoding="utf-8").splitlines()
        assert not lines or int(lines.rpartition("L")[2]) <= len(written), link
