"""Sizes as SGLang reads them, short lists, and signs that no shell knows."""

from __future__ import annotations

import pytest

from sglang_hydra.text.words import as_meant, both_sizes, foreign_sign, nearest, size_of, some_of


@pytest.mark.parametrize(
    ("typed", "size"),
    [
        ("32k", 32_000),
        ("32Ki", 32_768),
        ("25.6k", 25_600),
        ("1M", 1_000_000),
        ("1Mi", 2**20),
        ("2G", 2 * 10**9),
        ("1.5Ki", None),
        ("32K", None),
        ("32ki", None),
        ("32", None),
        ("-1k", None),
        ("k", None),
    ],
)
def test_a_size_is_read_as_sglang_reads_it(typed: str, size: int | None) -> None:
    assert size_of(typed) == size


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("32k", "32k = 32,000; 32Ki = 32,768"),
        ("8Ki", "8Ki = 8,192; 8k = 8,000"),
        ("1M", "1M = 1,000,000; 1Mi = 1,048,576"),
        ("1.5k", "1.5k = 1,500"),
    ],
)
def test_a_size_is_shown_with_the_other_one(typed: str, said: str) -> None:
    assert both_sizes(typed) == said


def test_a_list_has_at_most_five_and_says_how_many_more() -> None:
    names = [f"name_{number}" for number in range(20)]
    assert some_of("name_7", names, "list them").startswith("name_7, ")
    assert some_of("name_7", names, "list them").endswith(" and 15 more: list them")
    assert some_of("name_7", names[:6], "list them") == ", ".join(names[:6])


@pytest.mark.parametrize(
    ("word", "meant", "sign"),
    [
        ("—tp", "--tp", "an em dash (U+2014)"),
        ("–-tp", "--tp", "an en dash (U+2013)"),
        ("—", "--", "an em dash (U+2014)"),
        ("“tp_size=4”", "tp_size=4", "a left double quotation mark (U+201C)"),
        ("tp_size=‘4’", "tp_size=4", "a left single quotation mark (U+2018)"),
        ("tp_size=4\u00a0", "tp_size=4", "a no-break space (U+00A0)"),
        ("tp_size=\uff18", "tp_size=8", "a fullwidth digit eight (U+FF18)"),
        ("tp_size=4\uff1bdp_size=2", "tp_size=4;dp_size=2", "a fullwidth semicolon (U+FF1B)"),
        ("tp_size=4\u3001dp_size=2", "tp_size=4,dp_size=2", "an ideographic comma (U+3001)"),
        ("\u00df\u00dftp", "--tp", "a latin small letter sharp s (U+00DF)"),
    ],
)
def test_a_sign_of_an_editor_is_named_with_what_is_meant(word: str, meant: str, sign: str) -> None:
    assert as_meant(word) == meant
    assert foreign_sign(word) == sign


@pytest.mark.parametrize("word", ["tp_size=4", "--tp", "model=org/a—b", "it's", "served_model_name=日本"])
def test_other_words_stay_as_they_are(word: str) -> None:
    assert as_meant(word) == word


NAMES = ("tp_size", "dp_size", "moe_dp_size", "tokenizer_path", "kv_cache_dtype", "kv_canary", "max_running_requests")
NAMES += ("enable_ep_moe", "chunked_prefill_size", "plan", "fit", "qwen3_8b", "h100", "revision", "log_level")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("TP-Size", "tp_size"), ("tpsize", "tp_size"), ("tp_szie", "tp_size"), ("tp", "tp_size"), ("pan", "plan")),
        *(("max_runing_request", "max_running_requests"), ("chunk_prefill_size", "chunked_prefill_size")),
        *(("kv_cache", "kv_cache_dtype"), ("h1000", "h100"), ("lgo_lvl", "log_level"), ("tokenizer", "tokenizer_path")),
        *(("np_size", None), ("moe_tp_size", None), ("token", None), ("kv", None), ("fix", None), ("qwen3_9b", None)),
        *(("enable_moe", None), ("min_running_requests", None), ("precision", None)),
    ],
)
def test_a_name_is_taken_for_another_only_where_it_is_a_slip_of_that_one(typed: str, meant: str | None) -> None:
    assert nearest(typed, NAMES) == meant
