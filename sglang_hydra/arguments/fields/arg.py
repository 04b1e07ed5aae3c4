"""Describes a field beyond its name, type and default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sglang_hydra.arguments.fields.server_args import MISSING


class Arg(NamedTuple):
    """One argument as users see it: on a help page, in an error, on SGLang's command line.

    ``help`` is one line: its effect and when to change it. ``unit`` is the unit of the number (``tokens``, ``seconds``,
    ``GiB``) or None. ``none`` is the meaning of None; every field that may be None has it. ``choices`` are the allowed
    values: a tuple, or the live list of ``fields.choices`` where other code may add values. ``flags`` are SGLang's
    spellings in its own order, empty for ``--name-with-dashes`` alone. ``json`` marks text that must be JSON,
    ``secret`` a value that is never shown.

    The rest is for unusual flags. ``nargs`` and ``const`` are as in argparse. ``parser`` names the reader of a word
    where the type does not decide it: ``text`` (unchanged), ``nullable`` (empty or ``None`` is None), ``lora`` (an
    adapter). ``cli_choices`` is False where SGLang declares choices but its command line accepts any word."""

    help: str
    unit: str | None = None
    none: str | None = None
    choices: Sequence[object] | None = None
    flags: tuple[str, ...] = ()
    nargs: str | None = None
    const: object = None
    parser: str | None = None
    cli_choices: bool = True
    json: bool = False
    secret: bool = False


class Field(NamedTuple):
    """One of the 210 arguments. ``type`` is the annotation as text (``int | None``), ``concern`` its group in
    arguments.json."""

    name: str
    type: str
    default: object
    arg: Arg
    concern: str

    @property
    def required(self) -> bool:
        return bool(self.default == MISSING)

    @property
    def optional(self) -> bool:
        """Returns True where None is an allowed value."""
        return self.arg.none is not None

    @property
    def flags(self) -> tuple[str, ...]:
        """Returns SGLang's option strings, in its own order."""
        return self.arg.flags or ("--" + self.name.replace("_", "-"),)

    @property
    def flag(self) -> str:
        """Returns the option to show and write: the one that is spelled like the argument, else the first."""
        same = "--" + self.name.replace("_", "-")
        return same if same in self.flags else self.flags[0]

    @property
    def kind(self) -> str:
        """Returns the type without None, or a list's item type: ``int``, ``float``, ``bool``, ``str`` or ``Any``."""
        kind = self.type.removesuffix(" | None")
        return kind[5:-1] if kind.startswith("list[") else kind

    @property
    def is_list(self) -> bool:
        return self.type.startswith("list[")

    @property
    def is_flag(self) -> bool:
        return self.kind == "bool"
