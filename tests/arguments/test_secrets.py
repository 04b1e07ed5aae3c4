"""Which variables hold a secret, by their names."""

from __future__ import annotations

import pytest

from sglang_hydra.arguments.secrets import is_secret_name
from sglang_hydra.arguments.tables.table import known_versions, release
from tests.security.attacks import SECRET_NAMES


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "AWS_SESSION_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "MY_TOKEN",
        "MYTOKEN",
        "HF_TOKEN_2",
        "API_TOKENS",
        "SGLANG_TOKEN",
        "SGLANG_AUTH_TOKEN",
        "SGLANG_API_KEY",
        "DB_PASSWORD",
        "DB_PASSWD",
        "TLS_PRIVATE_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        *SECRET_NAMES,
    ],
)
def test_what_lets_somebody_in_is_a_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "PWD",
        "KEYBOARD",
        "COMPASS",
        "AUTHOR",
        "URL",
        "DB_HOST",
        "TOKENIZERS_PARALLELISM",
        "MAX_TOKENS",
        "VLLM_MAX_TOKENS_PER_EXPERT",
        "NCCL_DEBUG",
    ],
)
def test_pieces_of_text_are_none(name: str) -> None:
    assert not is_secret_name(name)


def test_no_setting_of_any_release_is_taken_for_a_secret() -> None:
    named = {name for version in known_versions() for name in release(version).variables}
    assert "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK" in named
    hidden = {name for name in named if is_secret_name(name)}
    assert hidden == set()
