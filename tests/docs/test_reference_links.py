"""The links of the reference: to lines that SGLang 0.5.2 has, and between rules and arguments in both ways."""

from __future__ import annotations

import re

import pytest

from sglang_hydra.releases import wheels
from sglang_hydra.releases.records import record_of
from tools.reference_links import TREE, cited
from tools.reference_pages import pages

PAGES = pages()
SOURCE = f"{TREE}/v0.5.2/python/sglang/srt"


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("server_args.py 0.5.2 lines 8-9.", f"[server_args.py 0.5.2 lines 8-9]({SOURCE}/server_args.py#L8-L9)."),
        ("utils.py:7 has it", f"[utils.py:7]({SOURCE}/utils.py#L7) has it"),
        (
            "a/b.py:1-2 and 5-6, c.py",
            f"[a/b.py:1-2]({SOURCE}/a/b.py#L1-L2) and [5-6]({SOURCE}/a/b.py#L5-L6), [c.py]({SOURCE}/a/c.py)",
        ),
        (
            "a/b.py; 0.5.23 a/c.py:3 and kernels/d.py; a/e.py",
            f"[a/b.py]({SOURCE}/a/b.py); 0.5.23 [a/c.py:3]({TREE}/v0.5.23/python/sglang/srt/a/c.py#L3) and "
            f"[kernels/d.py]({TREE}/v0.5.23/python/sglang/kernels/d.py); [a/e.py]({SOURCE}/a/e.py)",
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
    links: dict[str, set[str]] = {}
    for page in PAGES.values():
        for release, link in re.findall(re.escape(TREE) + r"/v([\w.]+)/python/(sglang/[^)\s]+)\)", page):
            links.setdefault(release, set()).add(link)
    assert len(links["0.5.2"]) > 100
    for release, found in links.items():
        record = record_of(release)
        assert record is not None
        home = wheels.fetch(record)[record.wheels.index(record.wheel)].resolve()
        wheels.complete(record, {home: {link.partition("#")[0] for link in found}})
        for link in found:
            path, _, lines = link.partition("#L")
            written = (home / path).read_text(encoding="utf-8").splitlines()
            assert not lines or int(lines.rpartition("L")[2]) <= len(written), link
