"""Prompts: exact lengths, the same for the same seed and different for every other; and files of them."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_hydra.measure.bench.prompts import TextMaker, make_prompts, point_seed
from sglang_hydra.text.errors import ConfigError, MachineError
from tests.measure.bench.conftest import load


@given(st.integers(1, 300), st.integers(1, 50), st.floats(0.01, 1), st.integers(0, 1 << 48))
def test_lengths_are_within_what_was_asked(input_len: int, output_len: int, ratio: float, seed: int) -> None:
    asked = load(input_len=input_len, output_len=output_len, range_ratio=ratio)
    for prompt in make_prompts(asked, 5, seed, 2048):
        assert len(prompt.ids) == prompt.input_len
        assert max(1, int(input_len * ratio)) <= len(prompt.ids) <= input_len
        assert max(1, int(output_len * ratio)) <= prompt.output_len <= output_len
        assert all(256 <= token < 2048 for token in prompt.ids)


def test_one_seed_is_one_set_of_prompts() -> None:
    first, again, other = (make_prompts(load(), 20, seed, 2048) for seed in (1, 1, 2))
    assert first == again
    assert not {prompt.ids[:4] for prompt in first} & {prompt.ids[:4] for prompt in other}


def test_random_prompts_use_the_whole_vocabulary_evenly() -> None:
    tokens = [token for prompt in make_prompts(load(input_len=2000), 20, 1, 1280) for token in prompt.ids]
    assert set(tokens) == set(range(256, 1280))
    lower = sum(token < 768 for token in tokens)
    assert abs(lower - len(tokens) / 2) < 5 * len(tokens) ** 0.5


def test_every_point_and_repeat_has_a_seed_of_its_own() -> None:
    seeds = {point_seed(seed, point, repeat) for seed in (1, 2) for point in ("a", "b") for repeat in (1, 2, 3)}
    assert len(seeds) == 12


def test_shared_prefixes_stay_the_same_over_a_run() -> None:
    asked = load(dataset="shared_prefix", input_len=64, prefix_len=48, prefix_groups=3)
    first = make_prompts(asked, 12, 1, 2048, shared=1)
    later = [prompt for seed in range(2, 30) for prompt in make_prompts(asked, 1, seed, 2048, shared=1)]
    prefixes = {prompt.ids[:48] for prompt in first}
    assert len(prefixes) == 3
    assert {prompt.ids[:48] for prompt in later} == prefixes
    assert len({prompt.ids[48:] for prompt in first + later}) == len(first) + len(later)


def write(path: Path, content: str) -> str:
    path.write_text(content, encoding="utf-8")
    return str(path)


SHARE_GPT = [
    {"conversations": [{"from": "human", "value": "one"}, {"from": "gpt", "value": "x"}]},
    {"conversation": [{"value": "two"}]},
    {"messages": [{"role": "user", "content": "three"}]},
]
USER = [{"role": "user", "content": "three"}]
SAID = {("one", 8), ("two", 8), ("three", 8)}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"prompt": "a", "output_len": 3}\n\n{"text": "b"}\n', {("a", 3), ("b", 8)}),
        ('{"prompt": "line\u2028end"}\n', {("line\u2028end", 8)}),
        (json.dumps(SHARE_GPT), {("one", 8), ("two", 8), ("three", 8)}),
        (json.dumps(SHARE_GPT, indent=2), {("one", 8), ("two", 8), ("three", 8)}),
        ("\ufeff" + json.dumps({"prompt": "日本"}), {("日本", 8)}),
        (json.dumps([*SHARE_GPT, {"conversations": []}, {"messages": [{"role": "system", "content": "x"}]}]), SAID),
        (json.dumps([{"messages": [{"role": "system", "content": "x"}, *USER]}]), {("three", 8)}),
    ],
)
def test_files_of_prompts(tmp_path: Path, content: str, expected: set[tuple[str, int]]) -> None:
    asked = load(dataset="file", path=write(tmp_path / "p", content))
    prompts = make_prompts(asked, 7, 1, 2048)
    assert len(prompts) == 7
    assert {(prompt.text, prompt.output_len) for prompt in prompts} == expected


def test_a_file_is_sent_to_its_end_before_it_is_repeated(tmp_path: Path) -> None:
    file = tmp_path / "p"
    asked = load(dataset="file", path=write(file, "\n".join(json.dumps({"prompt": f"p{n}"}) for n in range(20))))
    parts = [make_prompts(asked, 4, seed, 2048, shared=7, start=4 * seed) for seed in range(10)]
    sent = [str(prompt.text) for part in parts for prompt in part]
    assert sorted(sent[:20]) == sorted(sent[20:]) == sorted(f"p{n}" for n in range(20))
    assert sent[:20] == sent[20:] != sorted(sent[:20])
    write(file, '{"prompt": "another"}')
    assert make_prompts(asked, 1, 1, 2048, shared=7)[0].text == "another"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"", "holds no prompt"),
        (b"[]", "holds no prompt"),
        (b"hello", "neither JSON nor JSON lines"),
        (b'[{"prompt": "a"}', "neither JSON nor JSON lines"),
        (b"[" * 100_000, "neither JSON nor JSON lines"),
        (b"[1, 2]", "entry 1: no text"),
        (b'{"prompt": "a"}\n{"prompt": 3}', "entry 2: no text"),
        (b'{"prompt": ""}', "entry 1: no text"),
        (b'{"prompt": "a", "output_len": 0}', "no output_len above 0"),
        (b'{"prompt": "a", "output_len": true}', "no output_len above 0"),
        (b'[{"conversations": []}]', "holds no prompt"),
        (b'[{"conversations": [{"value": 3}]}]', "entry 1: no text"),
    ],
)
def test_files_that_hold_no_prompts_say_so(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "prompts"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match="BEN003") as raised:
        make_prompts(load(dataset="file", path=str(file)), 1, 1, 2048)
    assert said in raised.value.findings[0].message
    assert raised.value.findings[0].fields == ("bench.path",)


def test_a_tokenizer_that_is_not_there_says_so(tmp_path: Path) -> None:
    prompts: list[Any] = make_prompts(load(), 1, 1, 2048)
    with closing(TextMaker("false", str(tmp_path))) as maker, pytest.raises(MachineError, match="BEN011"):
        maker.texts(prompts, 1)
