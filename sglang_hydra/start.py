"""Where the program begins: it answers a signal in a word, from the first import on, and then does what was typed.

Nothing is imported here that costs time: what comes before the handlers is not under them.
"""

from __future__ import annotations

# The half of ``signal`` that is built in: the other one imports enum, functools and collections first.
import _signal  # type: ignore[import-not-found]
import atexit
import gc
import os

from sglang_hydra.text.exit_codes import INTERRUPTED

_OBJECTS_MADE = 100_000
"""Before cycles are searched for. With Python's 700 (2,000 from 3.12 on) a plan, all of whose objects are in use to its
end, spends a tenth of its time on that."""
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


class _Run:
    """How far this process is: while it only imports, nothing has to be cleaned up."""

    importing = True
    signals = 0


def main() -> int:
    """Returns the program: ``sys.argv`` is what was typed. Returns the exit code, 130 after SIGINT, SIGTERM or SIGHUP.

    What runs a server, a job or a measurement answers these signals itself as long as it does.
    """
    _answer_signals()
    gc.set_threshold(_OBJECTS_MADE)
    from sglang_hydra.cli.main import entry

    _Run.importing = False
    try:
        code = entry()
    except BaseException:
        # Some code makes another exception of the one that a signal raises, as Python 3.11 does while it makes a class.
        if not _Run.signals:
            raise
        code = INTERRUPTED
    finally:
        _Run.importing = True
    return INTERRUPTED if _Run.signals else code


def _answer_signals() -> None:
    """Answers signals. What is ignored stays ignored: nohup, or shells that start us in the background."""
    for number in _numbers():
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, _interrupted)
    # It runs last. All output is written by then, and Python would let the signal end the process while it tidies up.
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
    """Returns the signals by number; a system may lack one."""
    return {getattr(_signal, name): name for name in _NAMES if hasattr(_signal, name)}


def _say(number: int) -> None:
    try:
        os.write(2, f"\n{_numbers()[number]}: interrupted\n".encode())
    except OSError:
        return  # a terminal that was closed is why we were interrupted
