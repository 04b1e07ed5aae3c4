"""Asks the command-line parser of one release: runs in its sealed child, and imports nothing of ours."""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable
from typing import Any, NoReturn

from child import main as loop
from child.case import Runner, plain

_KINDS = {
    "ambiguous option": "ambiguous",
    "unrecognized arguments": "unknown",
    "expected": "no value",
    "invalid choice": "choice",
    "ignored explicit": "value",
}


class Refused(Exception):
    """What the parser says where it would end the process."""


class Parsers(Runner):
    """Answers a case whose only word is JSON: command lines. Each gets the values that it sets, by argparse's names, or
    the kind of its refusal."""

    def _resolve(self, argv: list[str], end: Callable[[], None] = lambda: None) -> dict[str, Any]:
        flags = [flag for action in self.parser._actions for flag in action.option_strings]
        choices = {
            flag: [plain(item) for item in action.choices]
            for action in self.parser._actions
            if action.choices
            for flag in action.option_strings
        }
        lines = [_read(self.parser, line) for line in json.loads(argv[0])]
        return {"ok": True, "values": {"lines": lines, "flags": flags, "choices": choices}}

    @functools.cached_property
    def parser(self) -> argparse.ArgumentParser:
        """The release's parser, as its own entry has it when it begins to read the words."""
        caught: list[argparse.ArgumentParser] = []

        def catch(parser: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> NoReturn:
            caught.append(parser)
            raise Refused

        original = argparse.ArgumentParser.parse_args
        argparse.ArgumentParser.parse_args = catch  # type: ignore[assignment]
        try:
            self.prepare(["--model-path", "m"])
        except Refused:
            pass
        finally:
            argparse.ArgumentParser.parse_args = original  # type: ignore[method-assign]

        def refuse(message: str) -> NoReturn:
            raise Refused(message)

        caught[0].error = refuse  # type: ignore[method-assign]
        return caught[0]


def _read(parser: argparse.ArgumentParser, line: list[str]) -> Any:
    unset = object()
    namespace = argparse.Namespace(**{action.dest: unset for action in parser._actions})
    try:
        read = vars(parser.parse_args(["--model-path", "m", *line], namespace))
    except Refused as refusal:
        return next((kind for part, kind in _KINDS.items() if part in str(refusal)), "refused")
    except Exception:  # noqa: BLE001 - whatever an action of a release raises ends the launch
        return "refused"
    return {name: plain(value) for name, value in read.items() if value is not unset and name != "model_path"}


loop.Runner = Parsers  # type: ignore[misc]
