"""For all tests: neither how the run was started nor the settings of whoever started it decide what they see."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# What changes plans, screens and programs. An interpreter that the tests are told of stays, as SGLANG_PYTHON.
SETTINGS_OF_OTHERS = (
    *("SGLANG_", "HYDRA_", "SLURM_", "SBATCH_", "CUDA_", "NVIDIA_", "HIP_", "ROCR_", "ASCEND_", "HF_TOKEN", "GIT_"),
    *("COLUMNS", "LINES", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "TTY_", "PYTHONWARNINGS"),
)
SAMPLE = 8
"""Of the rows of a corpus, make test takes every eighth."""
LOOPBACK = "127.0.0.1,localhost,::1"

# Examples are the same on every machine, and none fails for the time it took.
settings.register_profile(
    "same everywhere", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same everywhere")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rows",
        choices=("all", "sample", "rest"),
        default="all",
        help="every row of every test; the part that make test runs; the part that make test-rest runs",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("--rows")
    if wanted == "all":
        return
    seen: Counter[str] = Counter()
    kept, left = [], []
    for item in items:
        test = item.nodeid.partition("[")[0]
        is_left = item.get_closest_marker("thorough") is not None
        is_other_row = item.get_closest_marker("corpus") is not None and seen[test] % SAMPLE != 0
        seen[test] += 1
        is_in_sample = not is_left and not is_other_row
        (kept if is_in_sample == (wanted == "sample") else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def pytest_configure() -> None:
    """Before anything is imported that reads the environment; every program that a test starts inherits it."""
    for name in [name for name in os.environ if name.startswith(SETTINGS_OF_OTHERS) and not name.endswith("_PYTHON")]:
        del os.environ[name]
    os.environ |= {
        "SGLANG_HYDRA_SETTINGS": "",
        "SGLANG_HYDRA_OFFLINE": "1",
        "SGLANG_HYDRA_CACHE": os.environ.get("TESTS_CACHE_OF_SGLANG_HYDRA") or _private_cache(),
        "HF_HUB_OFFLINE": "1",
        "LC_ALL": "C.UTF-8",
        "NO_PROXY": LOOPBACK,
        "no_proxy": LOOPBACK,
    }
    # nohup and background shells start programs with signals ignored, and every child inherits that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _private_cache() -> str:
    """A cache of this run, which its workers share: the releases that are on a machine decide nothing."""
    folder = tempfile.mkdtemp(prefix="sglang_hydra-tests-")
    os.environ["TESTS_CACHE_OF_SGLANG_HYDRA"] = folder
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@pytest.fixture(autouse=True)
def _no_key_is_left() -> Iterator[None]:
    """A key that a test types goes into the environment of its process: the next test must not find it there."""
    yield
    os.environ.pop("SGLANG_HYDRA_API_KEY", None)
