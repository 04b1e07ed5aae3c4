"""Runs the command line: parses, calls the verb, prints, returns an exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial

from sglang_hydra.cli.invocation import Invocation, read_invocation
from sglang_hydra.cli.reading import read_words, verb_of
from sglang_hydra.facts.machine_cache import asking_once
from sglang_hydra.releases import fetching
from sglang_hydra.text.budget import FINDINGS, LAST_S, OverBudget, allow_more, cpu_limit
from sglang_hydra.text.errors import ConfigError, MachineError, SglangHydraError
from sglang_hydra.text.exit_codes import INTERRUPTED
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import Line, print_json, write
from sglang_hydra.text.version import VERSION
from sglang_hydra.text.words import short

_ASK_ONCE = frozenset(("plan", "check", "fit", "export", "explain"))
"""Verbs that end with their screen: machine and hub are asked once for all their plans."""
_LIMITED = frozenset((*_ASK_ONCE, "import", "diff", "diagnose", "upgrade"))
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def entry(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns the exit code: 0 done, 1 a bug of ours, 2 invalid configuration, 3 this machine
    cannot serve it, 4 the server failed, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:  # closed by the caller, who wants only the exit code
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    with contextlib.ExitStack() as once:
        try:
            return _ended(words, once)
        except OverBudget as failure:
            once.close()  # the limit repeats
            report(over_budget(failure, words), "--json" in words)
            return ConfigError.exit_code


def _ended(words: list[str], once: contextlib.ExitStack) -> int:
    invocation = None
    try:
        invocation = read_invocation(words)
        if invocation.verb in _ASK_ONCE:
            once.enter_context(asking_once())
        if is_limited(invocation):
            once.enter_context(cpu_limit("command"))
        code = _run(invocation)
        if not sys.stdout.closed:  # mcp closes it with its client
            sys.stdout.flush()
        return code
    except SglangHydraError as failure:
        try:
            report(failure, "--json" in words, partial(_corrections, failure, words, invocation))
            sys.stdout.flush()
        except OSError:
            _send_no_more()  # the exit code says it too
        return failure.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (head, less): nothing more can be written, not even by the interpreter's last flush.
        _send_no_more()
        return 0
    except OSError as failure:
        if failure.errno not in _NO_ROOM:
            raise
        _send_no_more()
        where = f" to {failure.filename}" if failure.filename else ""
        hint = "free space there (df -h, quota -s), or work in another folder"
        found = Finding("error", "CLI027", f"nothing can be written{where}: {failure.strerror}", hint=hint)
        unwritten = MachineError(found)
        report(unwritten, as_json=False)
        return unwritten.exit_code


def is_limited(invocation: Invocation) -> bool:
    """Returns whether the CPU time of a command is limited: it only reads. With ``-m`` each plan's is."""
    return invocation.verb in _LIMITED and not invocation.has("multirun")


def over_budget(failure: OverBudget, words: Sequence[str]) -> ConfigError:
    """Returns the error of a command that took too long, with the files among its words."""
    named = ", ".join(short(word, 100) for word in words[:20] if os.path.exists(word)) or "the command line"
    hint = "name the files, or a folder with fewer of them" if any(map(os.path.isdir, words)) else None
    return ConfigError.of("CLI009", f"{named} cannot be planned: {failure}", hint=hint)


def _send_no_more() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(invocation: Invocation) -> int:
    if invocation.has("version"):
        print(f"sglang-hydra {VERSION}")
        return 0
    if invocation.has("help"):
        from sglang_hydra.cli.help import show_help

        return show_help(invocation)
    if invocation == Invocation() and sys.stdout.isatty():
        from sglang_hydra.cli.first_screen import first_screen

        write(first_screen())
        return 0
    read_words(invocation)
    if invocation.has("strict"):
        print("--strict changes nothing: an error always fails; --fail-on=warning,unknown adds to it", file=sys.stderr)
    in_ci = invocation.verb == "check" and any(invocation.has(flag) for flag in ("format", "base", "skip_others"))
    if not invocation.has("offline") and not in_ci:
        fetching.allow(lambda line: print(line, file=sys.stderr))
    return verb_of(invocation.verb)(invocation)


def report(failure: SglangHydraError, as_json: bool, corrections: Callable[[], list[Line]] = list) -> None:
    """Prints the findings of an error: as JSON on standard output, else with their correction on standard error."""
    findings = list(failure.findings)
    if len(findings) > FINDINGS:
        message = f"{len(findings) - FINDINGS} more mistakes are not shown"
        findings = [*findings[:FINDINGS], Finding("error", "CLI009", message)]
    if as_json:
        record = {"schema": "sglang_hydra.findings/1", "findings": [item.to_json() for item in findings]}
        print_json(record)
        return
    from sglang_hydra.show.findings import finding_lines

    write([*finding_lines(findings), *corrections()], sys.stderr)


def _corrections(failure: SglangHydraError, words: Sequence[str], invocation: Invocation | None) -> list[Line]:
    """Returns the corrected command; nothing where the time of the command does not suffice to find it."""
    if not isinstance(failure, ConfigError):
        return []
    from sglang_hydra.cli.corrected import corrected_lines, corrected_words

    try:
        corrected = corrected_words(words, failure.findings)
        return corrected or (corrected_lines(invocation, failure.findings) if invocation is not None else [])
    except OverBudget:
        allow_more(LAST_S)
        return []
