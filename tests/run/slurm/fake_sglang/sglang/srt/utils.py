"""Stands in for what SGLang does at the end of its process."""

from __future__ import annotations


def kill_process_tree(pid: int, include_parent: bool = True) -> None:
    """It has started none."""
