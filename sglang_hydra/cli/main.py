"""The command line: a verb, overrides, a few flags. It parses, calls, prints and returns an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from keyword import iskeyword

from sglang_hydra.cli.invocation import Invocation, read_invocation
from sglang_hydra.compose.overrides import Request
from sglang_hydra.text import user_settings as settings
from sglang_hydra.text.errors import ConfigError, MachineError, SglangHydraError
from sglang_hydra.text.exit_codes import INTERRUPTED
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.flags import FLAGS, why_not
from sglang_hydra.text.version import VERSION
from sglang_hydra.text.words import program

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def entry(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code: 0 done, 1 a bug of ours, 2 invalid configuration, 3 this
    machine cannot serve it, 4 the server failed, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:  # closed by whoever started us, who then wants the exit code alone
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    try:
        code = _run(read_invocation(words))
        sys.stdout.flush()
        return code
    except SglangHydraError as failure:
        try:
            _report(failure, "--json" in words)
            sys.stdout.flush()
        except OSError:
            _send_no_more()  # the exit code says it too
        return failure.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (head, less): nothing more can be written to it, not even by the interpreter's last flush.
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
        _report(unwritten, as_json=False)
        return unwritten.exit_code


def _send_no_more() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(invocation: Invocation) -> int:
    if invocation.version:
        print(f"sglang-hydra {VERSION}")
        return 0
    if invocation.help:
        from sglang_hydra.cli.help import show_help

        return show_help(invocation)
    _refuse_misplaced(invocation)
    settings.begin(invocation.allowed)
    if invocation.argv is not None and invocation.verb not in ("import", "upgrade"):
        invocation.requests += requests_from_argv(invocation.argv)
    if any("=" not in request.text for request in invocation.requests):
        from sglang_hydra.cli.file_argument import read_file_argument

        read_file_argument(invocation)
    return _verb(invocation.verb)(invocation)


def _verb(name: str) -> Callable[[Invocation], int]:
    """The function that runs a verb: ``run`` of ``cli/NAME.py``; ``import_.py`` where the name is a keyword."""
    module = import_module(f"sglang_hydra.cli.{name}_" if iskeyword(name) else f"sglang_hydra.cli.{name}")
    run: Callable[[Invocation], int] = module.run
    return run


def _refuse_misplaced(invocation: Invocation) -> None:
    """Raises ConfigError for the first flag that does not go with the verb, or not beside another flag."""
    verb = invocation.verb
    if invocation.hydra and verb != "serve":
        message = f"Hydra's own flags go with serve, and {verb} runs without Hydra's run folder"
        raise ConfigError(Finding("error", "CLI019", message, hint=f"{program()} --cfg job ..., or plan --json"))
    given = [flag for flag in FLAGS if getattr(invocation, flag.sets) not in (None, False, [])]
    for flag in given:
        why = why_not(flag, verb, given)
        if why is not None and flag.elsewhere is not None:
            known = {"verb": verb, "why": why, "program": program()}
            message, hint = (flag.elsewhere[part].format(**known) for part in ("message", "hint"))
            raise ConfigError(Finding("error", flag.elsewhere["id"], message, hint=hint))


def requests_from_argv(argv: Sequence[str]) -> list[Request]:
    """SGLang's own flags as overrides, each with the place of the flag. Raises ConfigError as its parser refuses."""
    from sglang_hydra.arguments.argv import parse_argv_with_places

    values, places = parse_argv_with_places(argv)
    return [Request.typed(name, value, f"argument {places[name]} after --") for name, value in values.items()]


def _report(failure: SglangHydraError, as_json: bool) -> None:
    if as_json:
        import json

        record = {"schema": "sglang_hydra.findings/1", "findings": [item.to_json() for item in failure.findings]}
        print(json.dumps(record, indent=2))
        return
    from sglang_hydra.show.findings import finding_lines
    from sglang_hydra.text.screen import write

    write(finding_lines(list(failure.findings)), sys.stderr)
