"""NVIDIA's management library, opened and closed again."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class NoNvml(Exception):
    """The library cannot be used; the text is why, in a clause."""


@contextmanager
def nvml_library() -> Iterator[Any]:
    """The module ``pynvml``, started, while the block lasts. Raises NoNvml where it cannot be imported or started, and
    for what it raises within the block."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an outdated package of the same name warns when imported
            import pynvml
    except ImportError as failure:
        raise NoNvml(f"the package nvidia-ml-py cannot be imported ({failure})") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as failure:
        raise NoNvml(str(failure)) from None
    try:
        yield pynvml
    except pynvml.NVMLError as failure:
        raise NoNvml(str(failure)) from None
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
