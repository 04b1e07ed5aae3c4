"""Builds the errors for overrides whose key is known: a value that cannot be read, several, or one that does not fit.

``unknown_words`` has the errors for words that name nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sglang_hydra.arguments.every import EVERY, releases_with_choice
from sglang_hydra.arguments.fields import FIELDS, Field
from sglang_hydra.arguments.fields.check import MOST_LISTED
from sglang_hydra.arguments.meant import OFF, PARSERS, methods_of_bits, parser_meant, values_meant, word
from sglang_hydra.compose.corrections import switch_meant
from sglang_hydra.compose.schema import NO_CHOICE, NODES
from sglang_hydra.text.errors import CarriedError
from sglang_hydra.text.findings import Finding, Hint, Remedy
from sglang_hydra.text.json_types import EMPTY
from sglang_hydra.text.words import both_sizes, nearest, plain_name, program, short, some_of

ADDED_GROUPS = ("experiment", "recipe", "sweep")
"""Hydra groups that an app must add with ``+``; here ``experiment=x`` does the same."""


_SEVERAL = re.compile(r"[+\w./@]+=[^\s;]+([\s;]+[+\w./@]+=[^\s;]*)+")
_NEXT = re.compile(r"[\s;]+|,\s*(?=([A-Za-z_]\w*)(?:\.\w+)*=)")
"""A separator between two overrides; a comma counts only before a key."""
_RANGE = re.compile(r"(\d{1,6})\s*(?:\.{2,3}|:|-)\s*(\d{1,6})")
_MODEL_FILE = re.compile(r"(.*/|)(?:config\.json|[\w.-]+\.safetensors(?:\.index\.json)?|pytorch_model[\w.-]*\.bin)")
_MODELSCOPE = re.compile(r"(?:https?://)?(?:www\.)?modelscope\.(?:cn|ai)/models/([\w.-]+/[\w.-]+)(?:/.*)?")
_GGUF_TAG = re.compile(r"(?:.*/)?([\w.-]+/[\w.-]+):((?:UD-)?I?Q\d\w*|B?F\d+)", re.IGNORECASE)
NUMBERS = {"int": r"-?[0-9]{1,15}", "float": r"-?[0-9]{0,15}\.?[0-9]{1,15}"}


class Known(NamedTuple):
    """The possible keys of a command line: the options of a group, an app's own keys, and the arguments of ``release``,
    if it names one. ``typed`` has the values by key, as text."""

    options: Callable[[str], Sequence[str]]
    is_own_key: Callable[[str], bool]
    release: str | None = None
    typed: Mapping[str, str] = EMPTY


class Refused(CarriedError):
    """Raised for one override; the reader goes on with the next. ``fix`` is what to type instead."""

    def __init__(
        self,
        id: str,
        message: str,
        *fields: str,
        hint: Hint = None,
        offers: Sequence[str] = (),
        fix: str | Remedy | None = None,
    ) -> None:
        super().__init__(message)
        self.finding = Finding("error", id, message, fields, hint, offers=offers, fix=fix)

    @classmethod
    def by(cls, finding: Finding) -> Refused:
        refused = cls(finding.id, finding.message)
        refused.finding = finding
        return refused


def unreadable(text: str, key: str, failure: Exception) -> Refused:
    """Returns the error for a value that Hydra's grammar cannot read, with its exception ``failure``."""
    if "=" not in text:
        hint = "key=value is written without spaces around ="
        return Refused("CLI004", f"{short(text)!r} has no value", key, hint=hint)
    if isinstance(failure, RecursionError):
        why = "it is nested too deeply"
    else:
        why = short(str(failure).splitlines()[0])
    field = EVERY.get(key)
    value = short(text.partition("=")[2])
    if value.startswith("${") and value.count("{") > value.count("}"):
        return Refused("CLI003", f"{short(text)}: a closing brace is missing", key, fix=word(key, f"{value}}}"))
    if field is not None and field.is_list and re.fullmatch(r"\[[^\[\]{}]*", value):
        return Refused("CLI003", f"{short(text)}: a closing bracket is missing", key, fix=word(key, f"{value}]"))
    if key == "engine.env" and re.fullmatch(r"\w+=[^,=]*(?:,\w+=[^,=]*)*", value):
        fix = " ".join(
            word(f"{key}.{name}", text) for name, _, text in (one.partition("=") for one in value.split(","))
        )
        return Refused("CLI003", f"{short(text)}: a variable is {key}.NAME=VALUE", key, fix=fix)
    if value.startswith("$("):
        hint = f'single quotes keep the shell from running it: {key}="{value}"'
    elif "${" in value:
        hint = f"a literal ${{ is written \\${{, an interpolation ${{name}}: {key}='...\\${{...'"
    elif field is not None and field.kind == "Any":
        hint = f"quote the items: \"{key}=['sql=/adapters/sql']\""
    elif field is not None and field.is_list:
        hint = f"a list is {key}=[1,2]"
    elif field is not None and field.kind in NUMBERS:
        hint = f"such as {key}={example(field)}; {program()} --help {key} says what it takes"
    else:
        hint = f"quote it: \"{key}='{value}'\""
    inner = value.partition(" #")[0].strip("[](){}<>='\" ~;,")
    if field is not None and not field.is_list and re.fullmatch(NUMBERS.get(field.kind, ""), inner):
        return Refused("CLI003", f"{short(text)}: the value cannot be read ({why})", key, fix=f"{key}={inner}")
    if field is not None and field.kind == "int" and re.fullmatch(r"\d{1,3}(?:'\d{3})+", value):
        fix = word(key, value.replace("'", ""))
        return Refused("CLI003", f"{short(text)}: a number has no marks between its digits", key, fix=fix)
    return Refused("CLI003", f"{short(text)}: the value cannot be read ({why})", key, hint=hint)


def several_values(field: Field | None, text: str, value: str) -> Refused:
    """Returns the error for several values of one argument, as ``tp_size=1,2,4``, outside of a sweep."""
    name = field.name if field else text.partition("=")[0]
    if value.startswith("="):
        return Refused("CLI004", f"{short(text)} has = twice", name, fix=short(word(name, value.lstrip("="))))
    if field is not None and field.is_list and "(" in value:
        return Refused("CLI007", f"{short(text)}: {name} takes a list", name, hint=f"a list is {name}=[1,2]")
    if field is not None and (field.is_list or field.kind == "Any"):
        quote = '"' if "=" in value else ""  # Hydra's grammar reads no bare =
        fix = word(name, f"[{','.join(f'{quote}{part.strip()}{quote}' for part in value.split(','))}]")
        return Refused("CLI007", f"{short(text)}: a list needs brackets", name, fix=short(fix))
    number = next(values_meant(field, value), None) if field is not None and not field.is_list else None
    if ends_in_a_sign(value):
        number = word(name, value.rstrip(",;"))
    message = f"{short(text)}: {name} takes one value, and several were given"
    if value.startswith("glob("):
        return Refused("CLI007", message, name, hint=f"glob(...) is for groups, such as gpu; of {name} name each value")
    return Refused("CLI007", message, name, fix=number, hint=for_each(short(text)))


def list_of_values(key: str, text: str, values: Sequence[object]) -> Refused:
    """Returns the error for a list in a key with one value (``bench.concurrency=[1,8]``); a sweep was meant."""
    fix = Remedy.fixed(one := word(key, ",".join(map(str, values))), f"-m {one}")
    message = f"{short(text)}: {key} takes one value, and several were given"
    return Refused("CLI007", message, key, fix=fix if values else None)


def for_each(text: str) -> Remedy:
    """Returns the remedy that names the commands to plan or measure several values."""
    return Remedy(f"{program()} bench -m ... {text} measures each of them, plan -m ... judges each", flag="-m")


def ends_in_a_sign(value: str) -> bool:
    """Returns whether a single value ends in a comma or semicolon."""
    return value.endswith((",", ";")) and not set(value.rstrip(",;")) & set(",;()")


def several_overrides(text: str) -> Refused | None:
    """Returns the error for several overrides in one word, as in one pair of quotes; None for a single override."""
    apart = _NEXT.sub(lambda sign: sign[0] if sign[1] and sign[1] not in (*EVERY, *NODES, *NO_CHOICE) else " ", text)
    if not _SEVERAL.fullmatch(apart):
        return None
    quoted = ", in one pair of quotes" if _SEVERAL.fullmatch(text) else ""
    return Refused("CLI004", f"{short(text)!r}: several overrides are one word{quoted}", fix=short(apart, 400))


def not_deletable(key: str) -> Refused:
    field = EVERY.get(key)
    if field is not None and not field.optional:
        hint = f"leave {key} out" + ("" if field.required else f", or type SGLang's default, {key}={field.default}")
    else:
        hint = f"{key}=null leaves it unset"
    return Refused("CLI005", f"~{key}: an argument cannot be deleted", key, hint=hint)


_UNSET = ("none", "null", "auto", "default", "max", "unset", "unlimited", "infinite", "")
"""What people type to leave a value to SGLang."""


def wrong_value(field: Field, value: object, message: str, version: str | None = None, model: str = "") -> Finding:
    """Returns the finding on a value that does not fit ``field``, with what to type, for the release ``version`` and
    the ``model`` (a hub id, a path) if they are named."""
    name, choices, text = field.name, field.arg.choices, str(value).lower()

    def wrong(hint: str | None = None, *offers: str) -> Finding:
        return Finding("error", "CLI002", message, (name,), hint, offers=offers)

    if field.is_flag and isinstance(value, (str, int)) and text and (switch := switch_meant(text)):
        return wrong(None, f"{name}={switch}")
    meant = tuple(dict.fromkeys(values_meant(field, value)))
    if field.optional and text in _UNSET and not (text in OFF and field.kind in NUMBERS):
        meant = (*meant, f"{name}=null")
    if choices and isinstance(value, str):
        sure = nearest(value, map(str, choices))
        if name in PARSERS and plain_name(sure or "") != plain_name(value):
            sure = parser_meant(name, model, choices)  # a near name is the parser of another model
        near = [f"{name}={sure}"] if sure else []
        hint: str | None = f"{name} takes {some_of(value, map(str, choices), f'{program()} --help {name}')}"
        hint = hint if len(choices) > MOST_LISTED else None
        if methods := methods_of_bits(value):
            near, hint = [], f"methods of {value}: {', '.join(methods)}, each for checkpoints of its own"
        meant = (*near, *meant) if len(near) == 1 and plain_name(near[0]) == plain_name(f"{name}={value}") else meant
        having = [] if version is None else releases_with_choice(name, value)  # a new model may need the newest one
        others = [f"engine.version={one} {name}={value}" for one in (*having[:1], *having[-1:])]
        return wrong(hint, *dict.fromkeys([*meant[:1], *near, *meant[1:], *others]))
    if (
        field.kind == "int"
        and not meant
        and (ends := _RANGE.fullmatch(str(value)))
        and not field.is_list
        and name != "port"
    ):
        numbers = f"{name}=range({ends[1]},{int(ends[2]) + 1})"
        return wrong(f"-m '{numbers}' is every number from {ends[1]} to {ends[2]}, -m {name}=1,2,4 a list")
    if meant:
        return wrong(both_sizes(meant[0].partition("=")[2]) or None, *meant)
    return wrong(_hint_on(field, value))


def _hint_on(field: Field, value: object) -> str:
    """Returns what to type for a value that means no other one."""
    name = field.name
    if field.arg.json and value:
        return f"a JSON object in quotes: '{name}={{\"key\": 1}}'"
    if str(value).lower() in OFF and field.arg.none:
        return f"null leaves it out ({field.arg.none})"
    if field.optional and field.default is None and field.kind == "int" and not field.is_list:
        return f"{program()} --help {name} says what it takes; {name}=null leaves it to SGLang"
    if isinstance(value, bool) and field.kind == "str":
        return f'quote it if the word was meant: {name}="{"on" if value else "off"}" or "{str(value).lower()}"'
    if value is None and not field.required:
        return f"leave it out for SGLang's default, {_spelled(field.default)}"
    return f"such as {name}={example(field)}; {program()} --help {name} says what it takes"


def example(field: Field) -> str:
    if field.arg.parser == "lora":
        return "['sql=/adapters/sql']"
    if field.arg.choices:
        return f"[{field.arg.choices[0]}]" if field.kind == "Any" else str(field.arg.choices[0])
    if field.is_flag:
        return "true"
    one = {"int": "8", "float": "0.8"}.get(field.kind, "VALUE")
    default = FIELDS[field.name].default if field.default is None and field.name in FIELDS else field.default
    if default is not None and not field.required and not field.is_list and default != "":
        one = _spelled(default)
    return f"[{one}]" if field.is_list else one


def _spelled(value: object) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def refuse_file_of_model(key: str, path: str) -> None:
    """Raises Refused for the path of a config.json or a weights file, because SGLang takes their folder, and for a
    path as a URL."""
    if key in ("model", "model_path") and (page := _MODELSCOPE.fullmatch(path)):
        fix = f"{key}={page[1]} engine.env.SGLANG_USE_MODELSCOPE=true"
        raise Refused("CLI006", f"{key}={path} is a page of ModelScope", key, fix=fix)
    if key in ("model", "model_path") and (tagged := _GGUF_TAG.fullmatch(path)):
        message = f"{key}={path} names a GGUF file by a tag, as llama.cpp and Ollama do: SGLang reads no tag"
        hint = (
            f"a checkpoint in safetensors of that model: {key}=org/name",
            f"a file of {tagged[1]} on this machine: model_path=./NAME-{tagged[2]}.gguf",
        )
        raise Refused("CLI006", message, key, hint=hint)
    if key in ("model", "model_path") and path.startswith("file://"):
        raise Refused("CLI006", f"{key}={path} is a URL", key, fix=word(key, path.removeprefix("file://")))
    if key in ("model", "model_path") and "://" not in path and (found := _MODEL_FILE.fullmatch(path)):
        message = f"{key}={path} is one file of a model, and SGLang takes its folder"
        raise Refused("CLI006", message, key, fix=word(key, found[1].rstrip("/") or "."))
