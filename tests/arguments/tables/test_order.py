"""Which versions are one release."""

import pytest

from sglang_hydra.arguments.tables.order import same_release


@pytest.mark.parametrize(
    ("version", "other", "same"),
    [
        ("0.5.23", "0.5.23", True),
        ("0.5.23", "v0.5.23", True),
        ("0.5.23", "0.5.23.0", True),
        ("0.5.23+cu129", "0.5.23", True),
        ("0.5.23+rocm7.2", "0.5.23+cu129", True),
        ("0.5.23+mine", "0.5.23", False),
        ("0.5.23+mine", "0.5.23+yours", False),
        ("0.5.23+cu129.mine", "0.5.23", False),
        ("0.5.23rc1", "0.5.23", False),
        ("main", "main", True),
        ("main", "0.5.23", False),
    ],
)
def test_a_build_for_other_hardware_is_the_release_and_a_fork_is_not(version: str, other: str, same: bool) -> None:
    assert same_release(version, other) is same
