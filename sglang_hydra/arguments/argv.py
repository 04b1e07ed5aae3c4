"""SGLang's own command line: read into arguments, and written from them.

The grammar is argparse's, as Python 3.11 has it, for the one shape of parser that SGLang builds: long options, no
positional words. It is written out here and not left to argparse because Python's versions disagree about rare command
lines (``--``, ``-1e5``), because argparse exits at the first fault and does not say which word set what.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, TypeVar

from sglang_hydra.arguments.fields import FIELDS, Field, LoRARef
from sglang_hydra.arguments.fields.check import MOST_LISTED
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import both_sizes, nearest, program, size_of, some_of, typed

_OPTION = re.compile(r"--[a-z0-9-]+(=.*)?", re.DOTALL)
_T = TypeVar("_T")

# What each finding of this room is about; the findings themselves say which word, and what to type.
MEANINGS: Mapping[str, str] = {
    "ARG010": "an option that SGLang 0.5.2 does not have",
    "ARG011": "a shortened option that several options begin with",
    "ARG012": "an option without the value that it needs",
    "ARG013": "a value that is not a number where one is needed",
    "ARG014": "a value that is not among the choices of its option",
    "ARG015": "a value for an option that takes none",
    "ARG016": "a word that belongs to no option",
    "ARG017": "an adapter that is neither a path, nor name=path, nor JSON with lora_name and lora_path",
    "ARG018": "no --model-path, the one option that every server needs",
    "ARG019": "a request for SGLang's own help",
}

_HELP = "--help"
_NEGATIVE_NUMBER = re.compile(r"^-\d+$|^-\d*\.\d+$")


def parse_argv(argv: Sequence[str]) -> dict[str, Any]:
    """The arguments that ``argv`` (without the program's name) gives, as SGLang 0.5.2 would read them.

    Only what was typed: every other argument has its default there too. Values have the types that SGLang hands to
    its constructor, so ``--debug-tensor-dump-inject false`` is the text ``"false"``. Raises ConfigError with a finding
    (stage ``argparse``) for every fault of the line, where SGLang would print the first one and exit.
    """
    return parse_argv_with_places(argv)[0]


def parse_argv_with_places(argv: Sequence[str]) -> tuple[dict[str, Any], dict[str, int]]:
    """The same, and for every argument the number of the word whose option set it, counted from 1."""
    values, places, findings = read_argv(argv)
    if findings:
        raise ConfigError(*findings)
    return values, places


def read_argv(argv: Sequence[str]) -> tuple[dict[str, Any], dict[str, int], list[Finding]]:
    """The same, with what is wrong beside what could be read instead of raised."""
    if isinstance(argv, str):
        raise TypeError("argv is a list of words; shlex.split() makes one from a line")
    reader = _Reader([_classify(word) for word in argv])
    reader.read()
    return reader.values, reader.places, reader.findings


def options_of(word: str) -> tuple[str, ...] | None:
    """The options that a word can mean, several where it is cut too short; none for a plain value. None: an option
    that 0.5.2 does not have."""
    read = _classify(word)
    return None if read.unknown else read.options


def field_of(option: str) -> Field | None:
    """The argument that an option in full sets; None for --help."""
    return _fields_by_flag().get(option)


class _Word(NamedTuple):
    """One word of the line. ``options`` are the option strings that it can mean: none for a plain value."""

    text: str
    options: tuple[str, ...] = ()
    explicit: str | None = None
    unknown: bool = False

    @property
    def is_value(self) -> bool:
        return not self.options and not self.unknown


@cache
def _fields_by_flag() -> dict[str, Field]:
    return {flag: field for field in FIELDS.values() for flag in field.flags}


def _classify(word: str) -> _Word:
    """What a word can be, whatever stands before it: argparse decides this word by word, before reading any value."""
    if not word.startswith("-") or word == "-":
        return _Word(word)
    known = _fields_by_flag()
    if word in known or word == _HELP:
        return _Word(word, (word,))
    head, equals, rest = word.partition("=")
    explicit = rest if equals else None
    if equals and head in known:
        return _Word(word, (head,), explicit)
    if word.startswith("--"):
        options = tuple(flag for flag in (*known, _HELP) if flag.startswith(head)) if word != "--" else ()
    else:
        options = (_HELP,) if word.startswith("-h") else ()
    if options:
        return _Word(word, options, explicit)
    return _Word(word, unknown=word == "--" or not (_NEGATIVE_NUMBER.match(word) or " " in word))


class _Reader:
    """Reads the words once, from first to last, and keeps going after a fault."""

    def __init__(self, words: Sequence[_Word]) -> None:
        self.words = words
        self.values: dict[str, Any] = {}
        self.places: dict[str, int] = {}
        self.findings: list[Finding] = []
        self._at = 0

    def read(self) -> None:
        while self._at < len(self.words):
            word = self.words[self._at]
            self._at += 1
            if word.text == "--" or _HELP in word.options[:1]:
                self._stop(word)
                return
            if word.is_value:
                self._stray(word)
            elif word.unknown:
                self._unknown(word)
            elif len(word.options) > 1:
                self._ambiguous(word)
            else:
                self._option(word, _fields_by_flag()[word.options[0]])
        named = any("model_path" in finding.fields for finding in self.findings)
        if "model_path" not in self.values and not named:
            self._refuse("ARG018", "no model was named", "--model-path org/name or --model-path ./folder", "model_path")

    def _unknown(self, word: _Word) -> None:
        """An option of vLLM is named by SGLang's own; what follows an option that is unknown belonged to it."""
        from sglang_hydra.arguments.vllm import counterpart, in_sglangs_words

        flag, _, given = word.text.partition("=")
        values = [given] * (given != "") + self._values(word, "*")
        if counterpart(flag) is None:
            self._refuse("ARG010", f"SGLang 0.5.2 has no option {flag}", _nearest(word.text))
            return
        words, note = in_sglangs_words(flag, values)
        typed = (word.text, *values[given != "" :])
        fix = shlex.join(words or [])
        message = f"SGLang 0.5.2 has no option {flag}, which is vLLM's"
        hint = "; or ".join(filter(None, (fix, note))) or "leave it out"
        found = Finding("error", "ARG010", message, (), hint, stage="argparse")
        self.findings.append(replace(found, typed=typed, fix=fix))

    def _ambiguous(self, word: _Word) -> None:
        names = dict.fromkeys(_fields_by_flag()[option].name for option in word.options if option != _HELP)
        hint = ", ".join(word.options[:8]) + (", ..." if len(word.options) > 8 else "")
        self._refuse("ARG011", f"{word.text.partition('=')[0]} is short for several options", hint, *names)
        self._values(word, "*")

    def _option(self, word: _Word, field: Field) -> None:
        place = self._at
        option = word.options[0]
        if _is_switch(field):
            if word.explicit is None:
                self._set(field, True, place)
            else:
                hint = f"{option} alone turns it on; leave it out to keep it off"
                self._refuse("ARG015", f"{word.text}: {option} takes no value", hint, field.name)
            return
        nargs = field.arg.nargs
        texts = self._values(word, nargs)
        if not texts and nargs in (None, "+") and word.explicit is None:
            self._refuse("ARG012", f"{option} has no value", f"{option} {_example(field)}", field.name)
        elif not texts and nargs == "?":
            self._set(field, field.arg.const, place)
        else:
            values = [self._convert(field, option, text) for text in texts]
            if not any(value is _UNREADABLE for value in values):
                self._set(field, values[0] if values and nargs not in ("*", "+") else values, place)

    def _values(self, word: _Word, nargs: str | None) -> list[str]:
        """The texts that belong to an option: its own after ``=``, else as many plain words as it may take."""
        if word.explicit is not None:
            # argparse drops the word -- from every value: of --x=-- it leaves an empty list, whatever x takes.
            return [word.explicit] if word.explicit != "--" else []
        most = len(self.words) if nargs in ("*", "+") else 1
        start = self._at
        while self._at < len(self.words) and self._at - start < most and self.words[self._at].is_value:
            self._at += 1
        return [found.text for found in self.words[start : self._at]]

    def _convert(self, field: Field, option: str, text: str) -> Any:
        if field.arg.parser == "lora":
            return self._adapter(field, text)
        try:
            value = _read_text(field, text)
        except ValueError:
            self._misfit("ARG013", field, option, text, f"{_a(field.kind)} is wanted")
            return _UNREADABLE
        choices = field.arg.choices if field.arg.cli_choices else None
        if choices is not None and value not in choices:
            few = len(choices) <= MOST_LISTED
            listed = f"one of {', '.join(map(str, choices))}" if few else f"among its {len(choices)} values"
            self._misfit("ARG014", field, option, text, f"is not {listed}")
            return _UNREADABLE
        return value

    def _misfit(self, id: str, field: Field, option: str, text: str, why: str) -> None:
        """Refuses a value, with the one that was probably meant and the nearest choices."""
        from sglang_hydra.arguments.meant import values_meant

        meant = next((one for one in values_meant(field, text) if one.strip("'").startswith(f"{field.name}=")), None)
        choices = [str(choice) for choice in field.arg.choices or ()]
        value = shlex.split(meant)[0].partition("=")[2] if meant else nearest(text, choices)
        if field.is_list and meant and value:
            words = shlex.join(value.strip("[]").split(","))
            found = Finding("error", id, f"{option} {text!r}: {why}", (field.name,), stage="argparse")
            self.findings.append(replace(found, hint=f"{option} {words}", typed=(text,), fix=words))
            return
        if choices and value not in choices:
            value = nearest(text, choices)
        elif field.kind == "int" and (size := size_of(text)) is not None:
            value = str(size)
        fix = shlex.quote(value) if value else None
        listed = f"{option} takes {some_of(text, choices, f'{program()} --help {field.name}')}"
        more = both_sizes(text) if size_of(text) else listed if len(choices) > MOST_LISTED else None
        hint = "; or ".join(filter(None, (fix and f"{option} {fix}", more))) or None
        separator = ": " if id == "ARG013" else " "
        found = Finding("error", id, f"{option} {text!r}{separator}{why}", (field.name,), hint, stage="argparse")
        self.findings.append(replace(found, typed=(text,), fix=fix))

    def _adapter(self, field: Field, text: str) -> Any:
        import json

        text = text.strip()
        if not _looks_like_json(text):
            return text
        hint = """--lora-paths '{"lora_name": "sql", "lora_path": "/adapters/sql"}'"""
        try:
            adapter = json.loads(text)
        except (ValueError, RecursionError) as failure:
            self._refuse("ARG017", f"--lora-paths {text!r} is not JSON: {failure}", hint, field.name)
            return _UNREADABLE
        if missing := [key for key in ("lora_name", "lora_path") if key not in adapter]:
            self._refuse("ARG017", f"--lora-paths {text!r} has no {' and no '.join(missing)}", hint, field.name)
            return _UNREADABLE
        return adapter

    def _stray(self, word: _Word) -> None:
        before = self.words[self._at - 2] if self._at > 1 else None
        hint = None
        if before is not None and len(before.options) == 1 and _is_switch(_fields_by_flag()[before.options[0]]):
            hint = f"{before.options[0]} takes no value: alone it turns it on"
            found = Finding("error", "ARG016", f"{word.text!r} belongs to no option", (), hint, stage="argparse")
            self.findings.append(replace(found, typed=(word.text,), fix=""))
            return
        if word.text.partition("=")[0] in FIELDS:
            name, _, value = word.text.partition("=")
            hint = f"{FIELDS[name].flag} {value}".rstrip()
        elif re.fullmatch(r"[a-z_]+\.[\w.]+=\S*", word.text):
            hint = f"{word.text} before the --"
        elif self._at == 1 and re.fullmatch(r"[\w.-]+/[\w.-]+", word.text):
            hint = f"--model-path {word.text}"
        fields = ("model_path",) if hint is not None and hint.startswith("--model-path ") else ()
        found = Finding("error", "ARG016", f"{word.text!r} belongs to no option", fields, hint, stage="argparse")
        is_flag = hint is not None and hint.startswith("--") and " takes " not in hint
        self.findings.append(replace(found, typed=(word.text,), fix=hint if is_flag else None))

    def _stop(self, word: _Word) -> None:
        if word.text == "--":
            message = "-- ends the options, and SGLang takes nothing after them"
            self._refuse("ARG016", message, "remove -- and what follows it")
        else:
            self.findings.clear()
            hint = f"{program()} --help shows everything, {program()} --help WORD finds arguments"
            self._refuse("ARG019", f"{word.text} asks for help, which starts nothing", hint)

    def _set(self, field: Field, value: Any, place: int) -> None:
        self.values[field.name] = value
        self.places[field.name] = place

    def _refuse(self, id: str, message: str, hint: str | None, *fields: str) -> None:
        self.findings.append(Finding("error", id, message, fields, hint, stage="argparse"))


_UNREADABLE = object()


def _is_switch(field: Field) -> bool:
    """True for an option that takes no value and means True."""
    return field.is_flag and field.arg.parser is None


def _read_text(field: Field, text: str) -> Any:
    """Raises ValueError for a number that cannot be read."""
    if field.arg.parser == "nullable":
        return None if text in ("", "None") else text
    return {"int": int, "float": float}.get(field.kind, str)(text)


def _looks_like_json(text: str) -> bool:
    return text.startswith("{") and text.endswith("}")


def _nearest(word: str) -> str | None:
    import difflib

    head = word.partition("=")[0]
    near = difflib.get_close_matches(head.lower().replace("_", "-"), [*_fields_by_flag(), _HELP], n=2, cutoff=0.7)
    return f"did you mean {' or '.join(near)}?" if near else f"{program()} --help WORD finds arguments"


def _a(kind: str) -> str:
    return {"int": "a whole number", "float": "a number"}.get(kind, "text")


def _example(field: Field) -> str:
    if field.arg.choices:
        return str(field.arg.choices[0])
    return {"int": "8", "float": "0.8"}.get(field.kind, "VALUE")


def render_argv(values: Mapping[str, Any], *, defaults: bool = False) -> list[str]:
    """The shortest command line that gives ``values`` back: ``parse_argv(render_argv(values))`` has every value that
    differs from its default; with ``defaults`` also those that do not, where an option can say them. Words, not a shell
    line; secrets are written like any other value.

    Options come in the order of ``FIELDS``, spelled like the argument (``--tp-size``). Adapters are written as
    ``name=path`` or JSON, so a mapping of them comes back as a list with the same meaning, and a set as a sorted list.
    ``debug_tensor_dump_inject=True`` comes back as the text ``"true"``: SGLang's option knows no better, and takes it
    for true. Raises ValueError, naming the argument, for an unknown name and for a value that SGLang's command line
    cannot say: ``enable_lora=False``, None where another value is the default, a list for a single value, ...
    """
    if unknown := [name for name in values if name not in FIELDS]:
        raise ValueError(f"{unknown[0]} is not an argument of SGLang 0.5.2")
    named = [field for field in FIELDS.values() if field.name in values]
    return [word for field in named for word in _render(field, values[field.name], defaults)]


def _render(field: Field, value: Any, defaults: bool) -> list[str]:
    is_typed = defaults and field.name != "node_rank"  # nobody types the first rank
    if is_typed and value == field.default and type(value) in (int, float, str) and value != "":
        return _pair(field, _text(field, value))
    if (value == field.default and type(value) is type(field.default)) or (value is None and field.required):
        return []
    if _is_switch(field):
        if value is not True:
            raise _unsayable(field, value, "the option can only turn it on")
        return [field.flag]
    if value is None:
        raise _unsayable(field, value, "the option needs a value")
    if field.arg.nargs in ("*", "+"):
        return _render_list(field, value)
    text = _text(field, value)
    return [] if value == field.default else _pair(field, text)


def _render_list(field: Field, value: Any) -> list[str]:
    if field.name == "lora_paths" and isinstance(value, Mapping):
        value = [_named_path(name, path) for name, path in value.items()]
    elif isinstance(value, (set, frozenset)):
        value = sorted(value)
    if not isinstance(value, (list, tuple)):
        raise _unsayable(field, value, "it must be a list")
    if not value and field.arg.nargs == "+":
        raise _unsayable(field, value, "the option needs at least one value")
    texts = [_adapter_text(field, item) if field.arg.parser == "lora" else _text(field, item) for item in value]
    if len(texts) == 1:
        return _pair(field, texts[0])
    for text in texts:
        if not _classify(text).is_value:
            raise _unsayable(field, value, f"{text!r} would be read as an option")
    return [field.flag, *texts]


def _pair(field: Field, text: str) -> list[str]:
    if text == "--":
        raise _unsayable(field, text, "the word -- is dropped")
    return [field.flag, text] if _classify(text).is_value else [f"{field.flag}={text}"]


def _text(field: Field, value: Any) -> str:
    """The word for one value. Raises ValueError where reading that word does not give the value back."""
    if field.arg.parser == "text" and value is True:
        return "true"
    fits = {"int": int, "float": (int, float), "str": str, "bool": str, "Any": str}[field.kind]
    if not isinstance(value, fits) or isinstance(value, bool):  # type: ignore[arg-type]
        raise _unsayable(field, value, f"{_a(field.kind)} is wanted")
    text = value if isinstance(value, str) else repr(value)
    if field.arg.parser == "nullable" and text in ("", "None"):
        raise _unsayable(field, value, "the option reads it as None")
    if field.arg.choices is not None and field.arg.cli_choices and value not in field.arg.choices:
        raise _unsayable(field, value, f"it is not one of {', '.join(map(str, field.arg.choices))}")
    return text


def _named_path(name: Any, path: Any) -> Any:
    plain = isinstance(name, str) and isinstance(path, str) and "=" not in name
    text = f"{name}={path}"
    if plain and text == text.strip() and not _looks_like_json(text):
        return text
    return {"lora_name": name, "lora_path": path}


def _adapter_text(field: Field, item: Any) -> str:
    import json

    if isinstance(item, LoRARef):
        item = {"lora_name": item.lora_name, "lora_path": item.lora_path, "pinned": item.pinned}
    if isinstance(item, Mapping) and "lora_name" in item and "lora_path" in item:
        try:
            return json.dumps(dict(item), ensure_ascii=False)
        except (TypeError, ValueError) as failure:
            raise _unsayable(field, item, str(failure)) from None
    if not isinstance(item, str):
        raise _unsayable(field, item, "an adapter is a path, name=path or a mapping with lora_name and lora_path")
    if item != item.strip() or _looks_like_json(item):
        raise _unsayable(field, item, "the option strips it or reads it as JSON")
    return item


def _unsayable(field: Field, value: Any, why: str) -> ValueError:
    shown = "***" if field.arg.secret else typed(value)
    return ValueError(f"{field.name}={shown} cannot be written on SGLang's command line: {why}")


def by_option(words: Sequence[_T]) -> Iterator[list[_T]]:
    """Each option of a command line with its values; ``words`` may hold other objects than text as values."""
    group: list[_T] = []
    for word in words:
        if group and isinstance(word, str) and _OPTION.fullmatch(word):
            yield group
            group = []
        group.append(word)
    if group:
        yield group
