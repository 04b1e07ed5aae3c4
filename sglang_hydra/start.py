"""Starts the program: handles signals with one line from the first import on, then runs the command.

Nothing slow is imported here, because signals before the handlers are not handled."""

from __future__ import annotations

# The half of ``signal`` that is built in: the other one imports enum, functools and collections first.
import _signal  # type: ignore[import-not-found]
import atexit
import gc
import os
import time

from sglang_hydra.text.exit_codes import INTERRUPTED

_OBJECTS_MADE = 100_000
"""New objects before a search for cycles. With Python's 700 (2,000 from 3.12 on), a plan, whose objects are all in use
to its end, spends a tenth of its time on it."""
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


class _Run:
    """Tracks whether this process only imports or already holds resources to clean up, and counts its signals."""

    importing = True
    signals = 0


def main() -> int:
    """Runs the command in ``sys.argv``. Returns its exit code; 130 after SIGINT, SIGTERM or SIGHUP.

    Code that runs a server, a job or a measurement handles these signals itself meanwhile."""
    _answer_signals()
    gc.set_threshold(_OBJECTS_MADE)
    from sglang_hydra.cli.main import entry
    from sglang_hydra.text import budget

    budget.Clock.pace = max(1.0, time.process_time() / budget.START_S)
    _Run.importing = False
    try:
        code = entry()
    except BaseException:
        # Some code converts a signal's exception to another, as Python 3.11 does while it creates a class.
        if not _Run.signals:
            raise
        code = INTERRUPTED
    finally:
        _Run.importing = True
    return INTERRUPTED if _Run.signals else code


def _answer_signals() -> None:
    """Installs the handlers. Ignored signals stay ignored: under nohup, or in a shell's background."""
    for number in _numbers():
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, _interrupted)
    # Runs last. All output is written by then, and a signal would end the process while Python shuts down.
    atexit.register(_ignore_signals)


def _interrupted(number: int, frame: object) -> None:
    _Run.signals += 1
    if _Run.signals == 1:
        _say(number)
    if _Run.importing or _Run.signals > 1:
        # An exception in the middle of an import may be caught, or be shown as a failure of that module.
        os._exit(INTERRUPTED)
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    for number in _numbers():
        _signal.signal(number, _signal.SIG_IGN)


def _numbers() -> dict[int, str]:
    """Returns the names of the signals by number; some systems lack one."""
    return {getattr(_signal, name): name for name in _NAMES if hasattr(_signal, name)}


def _say(number: int) -> None:
    try:
        os.write(2, f"\n{_numbers()[number]}: interrupted\n".encode())
    except OSError:
        return  # the closed terminal interrupted us
