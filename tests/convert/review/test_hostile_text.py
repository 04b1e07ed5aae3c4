"""Text from outside in a comment: it can neither format, link, mention, end a cell nor hide what follows."""

from __future__ import annotations

import re
from pathlib import Path

import markdown_it
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_hydra.convert.review.markdown import MARK, code, word
from tests.commands import Run, runner
from tests.plans import written

HOSTILE = [
    "x` @everyone ` y",
    "| a | b |",
    "a\\",
    "<script>alert(1)</script>",
    "</pre></code><img src=x onerror=alert(1)>",
    "![x](https://example.org/x.png) [y](javascript:alert(1))",
    "www.example.org https://example.org",
    "#1 owner/repo#2 @org/team",
    "<!-- " + "-->",
    "``` ~~~ ``` ",
    "\x1b[31mred\x07 \u202egnp.exe",
    "line\r\n\n# heading\n- [ ] task",
    "**bold** __bold__ ~~gone~~ :tada: $x$",
    "&lt;b&gt; &#60;b&#62;",
    "",
    " ",
    "é" * 500,
]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def rendered(markdown: str) -> str:
    return str(markdown_it.MarkdownIt("gfm-like", {"linkify": False}).render(markdown))


def tags(html: str) -> set[str]:
    return set(re.findall(r"</?([a-zA-Z][\w-]*)", html))


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=60) | st.sampled_from(HOSTILE))
def test_any_text_is_one_piece_of_code_in_one_cell(content: str) -> None:
    for said in (code(content), word(content)):
        assert "\n" not in said
        assert "|" not in said
        html = rendered(f"| a | b |\n| --- | --- |\n| {said} | kept |\n")
        assert tags(html) <= {"table", "thead", "tbody", "tr", "th", "td", "code"}
        assert html.count("<td>") == 2
        assert "<td>kept</td>" in html


@pytest.mark.parametrize("content", HOSTILE)
def test_nothing_of_it_acts_in_a_comment(
    content: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import yaml

    monkeypatch.chdir(tmp_path)
    record = {"gpu": "l40s", "model_path": content, "tokenizer_path": content, "tpsize": content}
    own = yaml.safe_dump({"gpu": "l40s", "model": "qwen3_8b", "served_model_name": content, "chat_template": content})
    written(tmp_path, {"base/a.yaml": "gpu: l40s\nmodel: qwen3_8b\n", "a.yaml": own, "b.yaml": yaml.safe_dump(record)})
    printed = run("check", "--base", "base", "--format", "markdown", "a.yaml", "b.yaml").out
    assert printed.startswith(MARK)
    without_ours = printed.replace(MARK, "")
    assert not re.search(r"<(?!/?(?:code|pre|details|summary)>)", without_ours)
    assert "@" not in without_ours
    assert "\x1b" not in printed
    assert "\u202e" not in printed
    assert not re.search(r"https?://|www\.", re.sub(r"<pre>.*?</pre>", "", without_ours, flags=re.DOTALL))


def test_a_file_name_is_text_from_outside_too(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, {"x`@all`<b>|.yaml": "gpu: h100\nmodel: deepseek_v3\ntp_size: 8\n"})
    printed = run("check", "--format", "markdown", ".").out
    assert "#### ❌ <code>x&#96;&#64;all&#96;&#60;b&#62;&#124;&#46;yaml</code>" in printed


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the CPU limit may stop an opening file
def test_a_comment_is_never_longer_than_a_forge_takes(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    long = "gpu: h100\nmodel: deepseek_v3\ntp_size: 8\nserved_model_name: " + "<" * 3000 + "\n"
    more = "".join(f"nosuch{number}: {'<' * 90}\n" for number in range(20))
    written(tmp_path, {f"launch/{number:03}.yaml": long + more for number in range(50)})
    printed = run("check", "--format", "markdown", "launch").out
    assert len(printed) < 65536
    assert "too long for a comment" in printed
