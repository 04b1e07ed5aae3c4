"""Detects the apps that ``@hydra.main`` starts, and Hydra's refusals.

Like hydra_internals.py, this file uses unpublished parts of Hydra.

- ``watch_apps``, ``take_starting_app``: the function that ``@hydra.main`` calls to start an app. Hydra tells a
  search-path plugin neither the command line nor the name of the primary config; callbacks come only after the app
  has been composed, and a decorator below ``@hydra.main`` comes even later. So we decorate that function.
  test_an_app_that_starts_*, tests/run/test_app_main.py
- ``composed_words``, and in ``watch_apps`` ``run_and_report``: Hydra prints its composition errors itself and ends the
  process, so we catch them earlier; only the frames of the loader have the overrides of that composition.
  tests/run/test_app_main.py"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from importlib import import_module
from typing import Any, NamedTuple

from hydra._internal.config_loader_impl import ConfigLoaderImpl


class StartingApp(NamedTuple):
    """An app that ``@hydra.main`` starts: its task, the name of its primary config, and the parsed command line."""

    task: object
    config_name: str | None
    args: Any


_STARTING: ContextVar[StartingApp | None] = ContextVar("starting", default=None)


def watch_apps(refused: Callable[[Exception, Sequence[str] | None], None]) -> None:
    """Decorates the function with which ``@hydra.main`` starts every app, once per process; does nothing if Hydra lacks
    it. Calls ``refused`` with an exception that ends the run of a task of ours, before Hydra prints it, and with the
    overrides of the failed composition (``composed_words``)."""
    main, utils = import_module("hydra.main"), import_module("hydra._internal.utils")
    start, report = getattr(main, "_run_hydra", None), utils.run_and_report
    if start is None or hasattr(start, "__wrapped__"):
        return

    def observed(act: Any, *positional: Any, **named: Any) -> object:
        try:
            return act(*positional, **named)
        except Exception as failure:
            refused(failure, composed_words(failure))
            raise

    @functools.wraps(start)
    def watched(*positional: Any, **named: Any) -> Any:
        args, task = named.get("args"), named.get("task_function")
        name = getattr(args, "config_name", None) or named.get("config_name")
        token = _STARTING.set(StartingApp(task, name, args))
        try:
            if not getattr(task, "plans", False):
                return start(*positional, **named)
            utils.__dict__["run_and_report"] = lambda act: report(functools.partial(observed, act))
            return observed(start, *positional, **named)
        finally:
            utils.__dict__["run_and_report"] = report
            _STARTING.reset(token)

    main.__dict__["_run_hydra"] = watched


def composed_words(failure: BaseException) -> list[str] | None:
    """Returns the overrides of the composition in which Hydra's loader raised ``failure``; empty if another part of
    Hydra raised it, None if a job did."""
    found = None
    for frame, _ in traceback.walk_tb(failure.__traceback__):
        if frame.f_code.co_name in ("run_job", "return_value"):
            return None
        if not found and frame.f_globals.get("__name__") == ConfigLoaderImpl.__module__:
            words = frame.f_locals.get("sweep_overrides", frame.f_locals.get("overrides"))
            found = [str(word) for word in words] if isinstance(words, list) else None
    return found or []


def take_starting_app() -> StartingApp | None:
    """Returns the starting app once, because later search paths belong to others; else None."""
    app = _STARTING.get()
    _STARTING.set(None)
    return app
