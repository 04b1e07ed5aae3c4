"""The quality check: its questions, what counts as an answer, and files of questions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglang_hydra.measure.bench.checks import _words, check_quality, questions
from sglang_hydra.text.errors import ConfigError
from tests.measure.bench.conftest import Start


@pytest.mark.parametrize(
    ("answer", "said", "right"),
    [
        ("paris", "Paris.", True),
        ("7", "The answer is 7!", True),
        ("7", "17", False),
        ("7", "<think>7?</think> 8", False),
        ("d", "**D**", True),
        ("d", "dog", False),
        ("two words", "It is: two, words", True),
    ],
)
def test_an_answer_is_found_as_a_word(answer: str, said: str, right: bool) -> None:
    assert (_words(answer) in _words(said)) is right


def test_a_file_of_questions_is_asked(start: Start, tmp_path: Path) -> None:
    rows = [{"prompt": "What is 2 plus 3?", "answer": 5}, {"prompt": "What is 2 plus 2?", "answer": "5"}]
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    found = check_quality(start(), str(file))
    assert (found["asked"], found["right"], found["passed"]) == (2, 1, False)
    assert "What is 2 plus 2?" in found["why"]
    assert len(found["wrong"]) == 1


def test_a_server_that_does_not_answer_is_wrong_everywhere(start: Start) -> None:
    found = check_quality(start(key="secret"), True)
    assert (found["right"], found["passed"]) == (0, False)


@pytest.mark.parametrize("content", ["", "{", '{"prompt": "x"}', "[1]", "3", '{"prompt": "x", "answer": "?!"}'])
def test_files_that_hold_no_questions_say_so(tmp_path: Path, content: str) -> None:
    file = tmp_path / "questions"
    file.write_text(content)
    with pytest.raises(ConfigError, match="BEN004"):
        questions(str(file))
