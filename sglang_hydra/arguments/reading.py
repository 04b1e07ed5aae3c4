"""Reads SGLang's own command line as a release reads it: by its flags, prefixes, types, choices and old flags."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sglang_hydra.arguments.fields import FIELDS, Arg, Field
from sglang_hydra.arguments.fields.check import MOST_LISTED, not_among
from sglang_hydra.arguments.parser import HELP, WANTED, Option, Parser, Word, first_with_flag, parser_of
from sglang_hydra.arguments.secrets import holds_secret
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.arguments.tables.successors import SAME, notes, successor
from sglang_hydra.arguments.tables.table import release
from sglang_hydra.arguments.vllm import counterpart, in_sglangs_words
from sglang_hydra.text.budget import FINDINGS
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding, Remedy
from sglang_hydra.text.json_types import Json, JsonDict
from sglang_hydra.text.words import both_sizes, nearest, program, several_near, size_of, some_of

_ADAPTER = """--lora-paths '{"lora_name": "sql", "lora_path": "/adapters/sql"}'"""
_UNREADABLE = object()


@dataclass
class Typed:
    """One typed option: its word and the words of its value. ``option`` is None where ``word`` means no option or
    several. ``place`` is the number of its word, from 1."""

    word: Word
    words: list[str]
    place: int
    option: Option | None = None

    @property
    def flag(self) -> str:
        """Returns the option as typed, without a value after ``=``."""
        return self.word.text.partition("=")[0]

    @property
    def name(self) -> str | None:
        """Returns the argument that it sets, or None."""
        return self.option.name if self.option else None

    @property
    def values(self) -> list[str]:
        """Returns the words of its value. argparse drops the word ``--`` from every value: ``--x=--`` has none."""
        explicit = self.word.explicit
        own = [] if explicit in (None, "--") or not (self.word.options or self.word.unknown) else [str(explicit)]
        return own + self.words[1:]


@dataclass
class Reading:
    """The result of reading a line. ``values`` are under the release's own names; ``places`` number the words that set
    them, from 1. ``unread`` lists refused arguments or flags, each with a finding. ``idle`` holds flags that the
    release accepts and ignores, with the reason; ``old`` holds the words of deprecated flags that set an argument."""

    version: str
    values: JsonDict = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    idle: dict[str, str] = field(default_factory=dict)
    old: dict[str, tuple[str, ...]] = field(default_factory=dict)


def parse_argv(argv: Sequence[str], version: str = SPECIFIED_VERSION) -> JsonDict:
    """Reads the arguments in ``argv`` (without the program's name) as ``version`` would, under its names.

    The result has only the typed arguments, without defaults. Values have the types that SGLang passes to its
    constructor, so 0.5.2's ``--debug-tensor-dump-inject false`` is the text ``"false"``. Raises ConfigError with a
    finding (stage ``argparse``) for every error of the line, where SGLang would print the first one and exit."""
    found = read(argv, version)
    if refused := [finding for finding in found.findings if finding.level == "error"]:
        raise ConfigError(*refused)
    return found.values


def read(words: Sequence[str], version: str, *, needs_model: bool = True) -> Reading:
    """Reads ``words`` under ``version``, or the nearest release of the table. Raises nothing for a bad line:
    ``findings`` has its errors."""
    if isinstance(words, str):
        raise TypeError("a command line is a list of words; shlex.split() makes one from a line")
    return read_options(options_in(words, version), version, needs_model=needs_model)


def options_in(words: Sequence[str], version: str | None) -> Iterator[Typed]:
    """Groups words by their option; a word without an option is a group of its own. Without a version, an option takes
    the words that it takes in the first release that has it."""
    parser = parser_of(version)
    read = [parser.word(word) for word in words]
    at = 0
    while at < len(read):
        word = read[at]
        start = at = at + 1
        option = parser.options.get(word.options[0]) if len(word.options) == 1 else None
        most = _most_words(word, option)
        while at < len(read) and at - start < most and read[at].is_value:
            at += 1
        yield Typed(word, [one.text for one in read[start - 1 : at]], start, option)


def _most_words(word: Word, option: Option | None) -> int:
    """Returns the most words an option may take. Words after an unknown or ambiguous option belong to it."""
    if word.is_value or word.explicit is not None or "=" in word.text or word.options[:1] == (HELP,):
        return 0
    if option is None:
        return 0 if word.text == "--" else 1 << 30
    return 0 if option.nargs == 0 else 1 << 30 if option.takes_several else 1


def read_options(options: Iterable[Typed], version: str, *, needs_model: bool = True) -> Reading:
    """Reads ``options``, which were grouped under that version. With ``needs_model`` a line without a model is
    refused."""
    reader = _Reader(parser_of(version), needs_model)
    reader.read(options)
    return reader.made


class _Reader:
    """Reads the options from first to last, and continues after an error."""

    def __init__(self, parser: Parser, needs_model: bool) -> None:
        self.parser = parser
        self.needs_model = needs_model
        self.made = Reading(parser.version)
        self.options: list[Typed] = []

    def read(self, options: Iterable[Typed]) -> None:
        before: Typed | None = None
        self.options = list(options)
        for typed in self.options:
            word = typed.word
            if word.text == "--" or HELP in word.options[:1]:
                self._stop(word)
                return
            if len(self.made.findings) > FINDINGS:
                self._refuse("ARG010", f"after {FINDINGS} mistakes the rest of the options is not read", None)
                return
            if word.is_value:
                self._stray(typed, before)
            elif word.unknown:
                self._unknown(typed)
            elif typed.option is None:
                self._ambiguous(typed)
            else:
                self._option(typed, typed.option)
            before = typed
        named = "model_path" in self.made.values or any(
            "model_path" in item.fields or any("--model-path" in remedy.words for remedy in item.remedies)
            for item in self.made.findings
        )
        if self.needs_model and not named:
            self._refuse("ARG018", "no model was named", "--model-path org/name or --model-path ./folder", "model_path")

    def _option(self, typed: Typed, option: Option) -> None:
        if option.nargs == 0 and typed.word.explicit is not None:
            hint = f"{option.flag} alone turns it on; leave it out to keep it off"
            meant = {"true": [option.flag], "1": [option.flag], "false": [], "0": []}.get(typed.word.explicit.lower())
            self._unread(typed, "ARG015", f"{typed.word.text}: {option.flag} takes no value", hint, _fix(meant))
            return
        if option.old is not None and not self._old(typed, option, option.old):
            return
        texts = typed.values
        if not texts and option.nargs in (None, "+") and typed.word.explicit is None:
            self._unread(typed, "ARG012", f"{option.flag} has no value", f"{option.flag} {_example(option)}")
            return
        values = [self._convert(typed, option, text) for text in texts]
        if option.argument is None or any(value is _UNREADABLE for value in values):
            return
        value = values[0] if values and not option.takes_several else values
        if option.nargs == 0 or (option.nargs == "?" and not values) or (option.old and option.const is not None):
            value = option.const
        self.made.values[option.argument.name] = value
        self.made.places[option.argument.name] = typed.place

    def _old(self, typed: Typed, option: Option, old: Json) -> bool:
        """Reports a deprecated flag. Returns whether it sets an argument."""
        version = self.parser.version
        hint = f"{old.instead}{'' if old.value is None or old.field else ' ' + str(old.value)}" if old.instead else None
        if old.refused:
            words = _successors_words(option.flag, typed.values, version)
            self._unread(
                typed, "ARG010", f"SGLang {version} refuses {option.flag}", None if words else hint, _fix(words)
            )
            return False
        does = "is deprecated in" if option.argument is not None else "does nothing in"
        fields = (option.argument.name,) if option.argument is not None else ()
        message = f"{option.flag} {does} SGLang {version}"
        self.made.findings.append(Finding("warning", "IMP008", message, fields, hint and f"{hint} instead"))
        if option.argument is None:
            self.made.idle[option.flag] = f"SGLang {version} accepts it and ignores it"
            return False
        self.made.old[option.argument.name] = tuple(typed.words)
        return True

    def _unknown(self, typed: Typed) -> None:
        """Refuses an unknown option. Names the replacement for one of another release or of vLLM, else near names."""
        flag, version = typed.flag, self.parser.version
        since = first_with_flag(flag) or notes().get(_as_name(flag), {}).get("had")
        message = f"SGLang {version} has no option {flag}"
        if counterpart(flag) is not None and since is None:
            self._unread(typed, "ARG010", f"{message}, which is vLLM's", *self._of_vllm(typed))
            return
        self._unread(typed, "ARG010", message, *self._instead(typed, since))

    def _of_vllm(self, typed: Typed) -> tuple[str | None, Remedy | None]:
        """Returns a hint and a fix for a vLLM option; no fix where it would lose something."""
        tp_sizes = [one.values[0] for one in self.options if one.values and one.option and one.option.name == "tp_size"]
        words, note = in_sglangs_words(typed.flag, typed.values, *tp_sizes[-1:])
        found = counterpart(typed.flag)
        is_lost = found is not None and found.is_lost
        return note or (None if words else "leave it out"), None if is_lost else _fix(words or [])

    def _ambiguous(self, typed: Typed) -> None:
        """Refuses an ambiguous short option, with the replacement where another release has the option in full."""
        options = typed.word.options
        names = dict.fromkeys(self.parser.options[one].name for one in options if one != HELP)
        since = first_with_flag(typed.flag)
        listed = ", ".join(options[:8]) + (", ..." if len(options) > 8 else "")
        hint, fix = self._instead(typed, since) if since else (listed, None)
        if since is None and (found := counterpart(typed.flag)) is not None and found.argument is not None:
            fix = self._of_vllm(typed)[1]
        self._unread(
            typed,
            "ARG011",
            f"{typed.flag} is short for several options of SGLang {self.parser.version}",
            hint,
            fix,
            *filter(None, names),
        )

    def _instead(self, typed: Typed, since: str | None) -> tuple[str | None, Remedy | None]:
        """Returns a hint, or a fix, for an option that the release lacks."""
        if since is None and (sure := nearest(typed.flag, self.parser.flags)):
            if holds_secret(sure):
                return f"did you mean {sure}", None  # its value is shown nowhere
            return None, _fix([sure, *typed.values])
        from sglang_hydra.arguments.meant import OF_REQUESTS

        if since is None and _as_name(typed.flag) in OF_REQUESTS:
            return f'"{_as_name(typed.flag)}" in the JSON of a request: the server does not set it', None
        if since is None and not typed.values and (switch := self._switch_of(typed.flag)):
            return None, Remedy.fixed("", f"leave it out: this is the default unless {switch} changes it")
        if since is None:
            return _near(typed.flag, self.parser), None
        if not at_least(self.parser.version, since):
            return f"SGLang {since} has it: engine.version={since}", None
        words = _successors_words(typed.flag, typed.values, self.parser.version)
        if words is not None:
            return None, _fix(words, f": SGLang {since} called it {typed.flag}")
        found = successor(_as_name(typed.flag), self.parser.version)
        if found.name is not None and isinstance(found.value, tuple):
            new, same = (self.parser.by_name[name].flag for name in (found.name, found.value[1]))
            return f"{new} with the value of {same}: SGLang {since} called it {typed.flag}", None
        gone = f"SGLang {since} " + (f"had it; {found.advice}" if found.advice else f"has it: engine.version={since}")
        return (None, Remedy.fixed("", gone)) if "had" in notes().get(_as_name(typed.flag), {}) else (gone, None)

    def _switch_of(self, flag: str) -> str | None:
        """Returns the switch opposite to a flag: ``--disable-radix-cache`` for ``--enable-radix-cache``; None if there
        is none."""
        head, _, stem = flag.replace("_", "-").lstrip("-").partition("-")
        other = {"enable": f"--disable-{stem}", "use": f"--disable-{stem}", "disable": f"--enable-{stem}"}.get(head)
        option = self.parser.options.get(other or "")
        return other if option is not None and option.nargs == 0 else None

    def _convert(self, typed: Typed, option: Option, text: str) -> object:
        if option.reader == "str" and option.name and re.search(r"\s--[a-z]", text):
            message = f"{option.flag} {text!r}: further flags are inside the quotes of the value"
            self.made.unread.append(option.name)
            word = text if typed.word.explicit is None else typed.word.text
            self._misread("ARG013", message, (option.name,), word, Remedy.fixed(word))
            return _UNREADABLE
        try:
            value = option.read(text)
        except ValueError as failure:
            if option.reader == "LoRAPathAction":
                self._unread(typed, "ARG017", f"{option.flag} {text!r} {failure}", _ADAPTER)
            else:
                self._misfit("ARG013", typed, option, text, f"{WANTED.get(option.reader, 'JSON')} is wanted")
            return _UNREADABLE
        if option.choices is not None and value not in option.choices:
            self._misfit("ARG014", typed, option, text, not_among(option.choices))
            return _UNREADABLE
        return value

    def _misfit(self, id: str, typed: Typed, option: Option, text: str, why: str) -> None:
        """Refuses a value, and offers the meant value or the nearest choices of the release."""
        from sglang_hydra.arguments.meant import PARSERS, parser_meant, values_meant

        field, flag = _field(option), option.flag
        meant = next((one for one in values_meant(field, text) if one.strip("'").startswith(f"{field.name}=")), None)
        choices = [str(choice) for choice in option.choices or ()]
        value = shlex.split(meant)[0].partition("=")[2] if meant else nearest(text, choices)
        self.made.unread.append(option.name or flag)
        if option.takes_several and meant and value:
            words = shlex.join(value.strip("[]").split(","))
            fix = Remedy.fixed(words, f"{flag} {words}")
            self._misread(id, f"{flag} {text!r}: {why}", (field.name,), text, fix)
            return
        if field.name in PARSERS and re.sub(r"[\W_]", "", value or "") != re.sub(r"[\W_]", "", text.lower()):
            of_model = [one.values for one in self.options if one.option and one.option.name == "model_path"]
            model = of_model[-1][0] if of_model and of_model[-1] else ""
            value = parser_meant(field.name, model, choices)  # a near name is another model's
        elif choices and value not in choices:
            value = nearest(text, choices)
        elif option.reader == "int" and (size := size_of(text)) is not None:
            value = str(size)
        head = f"{typed.word.text.partition('=')[0]}=" if typed.word.explicit is not None else ""
        instead = Remedy.fixed(head + shlex.quote(value), f"{flag} {shlex.quote(value)}") if value else None
        is_other = self.parser.version != SPECIFIED_VERSION
        page = f"explain {field.name} engine.version={self.parser.version}" if is_other else f"--help {field.name}"
        listed = f"{flag} takes {some_of(text, choices, f'{program()} {page}')}"
        more = (
            both_sizes(text)
            if size_of(text)
            else listed
            if len(choices) > MOST_LISTED or (choices and id == "ARG013")
            else None
        )
        more = more or (None if value or choices else f"{program()} {page} says what it takes")
        separator = ": " if id == "ARG013" else " "
        self._misread(id, f"{flag} {text!r}{separator}{why}", (field.name,), head + text, instead, more)

    def _misread(
        self, id: str, message: str, fields: tuple[str, ...], text: str, fix: Remedy | None, more: str | None = None
    ) -> None:
        """Refuses the word ``text``, with its correction."""
        found = Finding("error", id, message, fields, more, stage="argparse", fix=fix, typed=(text,))
        self.made.findings.append(found)

    def _stray(self, typed: Typed, before: Typed | None) -> None:
        text = typed.word.text
        hint, fix = None, None
        if before is not None and before.option is not None and before.option.nargs == 0:
            fix = Remedy.fixed("", f"{before.option.flag} takes no value: alone it turns it on")
        elif (option := self.parser.by_name.get(text.partition("=")[0])) is not None:
            fix = Remedy.fixed(f"{option.flag} {text.partition('=')[2]}".rstrip())
        elif " " in text.strip() and any(flag.startswith(text.split()[0]) for flag in self.parser.options):
            fix = Remedy.fixed(text, "two words, not one with a space")
        elif re.fullmatch(r"[a-z_]+[\w.]*=\S*|\S+\.(?:sh|ya?ml|json)", text):
            hint = f"{text} before the --"
        elif typed.place == 1 and text == "serve":
            fix = Remedy.fixed("", "the same without it")
        elif typed.place <= 2 and re.fullmatch(r"(?:\.{0,2}/[\w.-]+)?[\w.-]*/[\w./-]+", text):
            fix = Remedy.fixed(f"--model-path {text}")
        elif before is not None and before.option is not None and not before.option.takes_several:
            hint = f"write one value after {before.option.flag}, in quotes if it has a space"
        fields = ("model_path",) if fix is not None and fix.words[:1] == ("--model-path",) else ()
        self.made.unread.append(text)
        self._misread("ARG016", f"{text!r} belongs to no option", fields, text, fix, hint)

    def _stop(self, word: Word) -> None:
        if word.text == "--":
            message = "-- ends the options, and SGLang takes nothing after them"
            self._refuse("ARG016", message, "remove -- and what follows it")
        else:
            self.made.findings.clear()
            hint = f"{program()} --help shows everything, {program()} --help WORD finds arguments"
            self._refuse("ARG019", f"{word.text} asks for help, which starts nothing", hint)

    def _unread(
        self, typed: Typed, id: str, message: str, hint: str | None, fix: Remedy | None = None, *fields: str
    ) -> None:
        """Refuses a whole option; ``fix`` replaces it."""
        self.made.unread.append(typed.name or typed.flag)
        about = fields or ((typed.name,) if typed.name else ())
        was = tuple(typed.words)
        self.made.findings.append(Finding("error", id, message, about, hint, stage="argparse", fix=fix, typed=was))

    def _refuse(self, id: str, message: str, hint: str | None, *fields: str) -> None:
        self.made.findings.append(Finding("error", id, message, fields, hint, stage="argparse"))


def _as_name(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _successors_words(flag: str, values: Sequence[str], version: str) -> list[str] | None:
    """Returns the words that replace an earlier release's flag, or None where they do not follow from the old words."""
    found = successor(_as_name(flag), version)
    if found.name is None or isinstance(found.value, tuple):
        return None
    taken = release(version).arguments[found.name]
    option = parser_of(version).by_name.get(taken.name)
    if option is None:
        return None
    if found.value is not SAME and option.nargs != 0:
        values = [str(found.value)]
    return [option.flag, *([] if option.nargs == 0 else [found.values.get(value, value) for value in values])]


def _fix(words: Sequence[str] | None, note: str = "") -> Remedy | None:
    return None if words is None else Remedy(shlex.join(words), tuple(words), note, "fix")


def _near(word: str, parser: Parser) -> str:
    near = several_near(word, parser.flags, 3)
    return f"near names: {', '.join(near)}" if near else f"{program()} --help WORD finds arguments"


def _example(option: Option) -> str:
    if option.choices:
        return str(option.choices[0])
    return {"int": "8", "human_readable_int": "8", "float": "0.8"}.get(option.reader, "VALUE")


def _field(option: Option) -> Field:
    """Describes the option's argument in the form of 0.5.2's fields."""
    name = option.name or _as_name(option.flag)
    kind = {"human_readable_int": "int"}.get(option.reader, option.reader)
    type = f"list[{kind}]" if option.takes_several else kind
    return FIELDS.get(name) or Field(name, type, None, Arg("", choices=option.choices), "")
