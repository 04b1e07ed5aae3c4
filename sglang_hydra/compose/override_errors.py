"""Builds the errors for refused overrides: the value, the allowed values, the nearest name, what to type."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypedDict

from sglang_hydra.arguments.every import EVERY, releases_with_choice
from sglang_hydra.arguments.fields import FIELDS, Field
from sglang_hydra.arguments.fields.check import MOST_LISTED
from sglang_hydra.arguments.meant import OF_REQUESTS, OFF, methods_of_bits, taking, values_meant, word
from sglang_hydra.arguments.secrets import HIDDEN, is_secret_name
from sglang_hydra.arguments.tables.successors import notes
from sglang_hydra.arguments.tables.table import known_versions
from sglang_hydra.arguments.vllm import counterpart
from sglang_hydra.compose.corrections import (
    ADVICE,
    SUCCESSORS,
    as_usual,
    gpus_meant,
    is_of_config,
    key_meant,
    keys_like,
    known_keys,
    letters_behind,
    may_be,
    mistyped,
    part_known,
    path_meant,
    presets_of,
    setting_of,
    switch_meant,
)
from sglang_hydra.compose.node_types import problems_at
from sglang_hydra.compose.schema import NO_CHOICE, NODES
from sglang_hydra.text.errors import CarriedError
from sglang_hydra.text.findings import Finding, Hint, Remedy
from sglang_hydra.text.json_types import EMPTY
from sglang_hydra.text.words import both_sizes, is_digits, nearest, program, short, some_of

ADDED_GROUPS = ("experiment", "recipe", "sweep")
"""Hydra groups that an app must add with ``+``; here ``experiment=x`` does the same."""


_SWEEPS = re.compile(r"(choice|glob|sort|shuffle|range)\(.*\)", re.DOTALL)
"""Functions of Hydra's grammar that mean several options."""
_SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm")
_COMMAND = re.compile(r"(?:[A-Z_]+=\S* )*(?:\S*python[\d.]*|sglang|vllm|docker|trtllm-serve) ")
_MAPPING = re.compile(
    r"\{[\w.\"'-]+:[^\s,:{}]+(?:,[\w.\"'-]+:[^\s,:{}]+)+\}"
    r"|\{?\s*[\w.\"'-]+\s*:\s+[^\s,:]+\s*(?:,\s*[\w.\"'-]+\s*:\s+[^\s,:]+\s*)+\}?"
)
"""Several key=value pairs in one word."""
_SEVERAL = re.compile(r"[+\w./@]+=[^\s;]+([\s;]+[+\w./@]+=[^\s;]*)+")
_NEXT = re.compile(r"[\s;]+|,\s*(?=([A-Za-z_]\w*)(?:\.\w+)*=)")
"""A separator between two overrides; a comma counts only before a key."""
_ENDING = re.compile(r"[-_.](it|exp|ya?ml)$", re.IGNORECASE)
"""Endings of a model's name that do not make it another model."""
_RANGE = re.compile(r"(\d{1,6})\s*(?:\.{2,3}|:|-)\s*(\d{1,6})")
_MOST_NEAR = 4
_LOOKING = ("plan", "check")
"""Verbs that people type as a flag of another verb: ``serve ... --dry-run``."""
_NUMBERS = {"int": r"-?[0-9]{1,15}", "float": r"-?[0-9]{0,15}\.?[0-9]{1,15}"}


class Known(NamedTuple):
    """The possible keys of a command line: the options of a group, an app's own keys, and the arguments of ``release``,
    if it names one. ``typed`` has the values by key, as text."""

    options: Callable[[str], Sequence[str]]
    is_own_key: Callable[[str], bool]
    release: str | None = None
    typed: Mapping[str, str] = EMPTY


class _Help(TypedDict, total=False):
    fix: str
    hint: str


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
        message = f"{short(text)}: a closing bracket is missing"
        return Refused("CLI003", message, key, fix=word(key, f"{value}]"))
    if value.startswith("$("):
        hint = f'single quotes keep the shell from running it: {key}="{value}"'
    elif "${" in value:
        hint = f"a literal ${{ is written \\${{, an interpolation ${{name}}: {key}='...\\${{...'"
    elif field is not None and field.kind == "Any":
        hint = f"quote the items: \"{key}=['sql=/adapters/sql']\""
    elif field is not None and field.is_list:
        hint = f"a list is {key}=[1,2]"
    elif field is not None and field.kind in _NUMBERS:
        hint = f"such as {key}={_example(field)}; {program()} --help {key} says what it takes"
    else:
        hint = f"quote it: \"{key}='{value}'\""
    inner = value.partition(" #")[0].strip("[](){}='\" ~;,")
    if field is not None and not field.is_list and re.fullmatch(_NUMBERS.get(field.kind, ""), inner):
        return Refused("CLI003", f"{short(text)}: the value cannot be read ({why})", key, fix=f"{key}={inner}")
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
    return Refused("CLI007", message, name, fix=number, hint=_for_each(short(text)))


def list_of_values(key: str, text: str, values: Sequence[object]) -> Refused:
    """Returns the error for a list in a key with one value (``bench.concurrency=[1,8]``); a sweep was meant."""
    fix = Remedy.fixed(one := word(key, ",".join(map(str, values))), f"-m {one}")
    message = f"{short(text)}: {key} takes one value, and several were given"
    return Refused("CLI007", message, key, fix=fix if values else None)


def _for_each(text: str) -> Remedy:
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


def no_override(text: str, known: Known) -> Refused:
    """Returns the error for a word that is no ``key=value``."""
    from sglang_hydra.text.flags import FILLERS, VERBS

    if text.startswith("-") and text[1:2] != " ":
        return _dashed(text, known)
    if text in VERBS:
        hint = f"{program()} {text} key=value ..."
        return Refused("CLI004", f"{text!r} is a verb, and the verb comes first", hint=hint)
    if text.endswith((".yaml", ".yml", ".json")):
        return Refused("CLI004", f"{short(text)!r} is no key=value", hint=_as_a_file(text))
    if text.endswith(_SCRIPTS) and "=" not in text and not os.path.exists(text):
        message = f"{short(text)!r} is no key=value, and there is no such file"
        return Refused("CLI004", message, hint=f"{program()} check FILE, with the path of a script that is here")
    if (path := path_meant(text)) and "=" not in text:
        return Refused("CLI004", f"{short(text)!r} is a path of Windows", fix=short(shlex.quote(path)))
    if text.startswith(("/", "./", "../", "~/")) and "=" not in text:
        message = f"{short(text)!r} is no key=value, and no YAML or JSON file"
        return Refused("CLI004", message, hint=f"a model's folder is model={short(text)}")
    for group in ("model", "gpu", "engine"):
        if (near := nearest(text, known.options(group))) is not None and _plain(near) == _plain(text):
            return Refused("CLI004", f"{text!r} is no key=value", group, fix=f"{group}={near}")
    counted = re.fullmatch(r"\d+[x*]?[a-zA-Z][\w-]*|[a-zA-Z][\w-]*\d[\w-]*(?:[x*:]\d+)?", text)
    if counted and len(named := gpus_meant(text, known.options("gpu"))) == 1:
        return Refused("CLI004", f"{short(text)!r} is no key=value", "gpu", fix=named[0])
    if takers := taking(text):
        sure = takers[0] if len(takers) == 1 else None
        return Refused("CLI004", f"{short(text)!r} is no key=value", fix=sure, hint=None if sure else takers)
    if (same := text.lower().replace("-", "_")) in EVERY or text in NODES:
        return Refused("CLI004", f"{text!r} has no value", same, **_without_value(same, known))
    if (meant := key_meant(same)) and EVERY.get(meant.lstrip("!")) is not None and EVERY[meant.lstrip("!")].is_flag:
        return Refused("CLI004", f"{text!r} has no value", meant.lstrip("!"), fix=setting_of(meant, "true", {}))
    if not text.strip("\\ \t\n"):
        message = f"{text!r} is a word of its own: the last letter of a line that goes on is \\, with no space after it"
        return Refused("CLI004", message, hint="the same without it", fix="")
    if not text.strip("&;|<>") or text.startswith("#") or text.lower() in FILLERS:
        return Refused("CLI004", f"{short(text)!r} sets nothing", hint="the same without it", fix="")
    if "/" in text and re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        group, _, option = text.partition("/")
        if (near := nearest(option, known.options(group))) is not None:
            return Refused("CLI004", f"{short(text)!r} is no key=value", group, fix=f"{group}={near}")
        return Refused("CLI004", f"{short(text)!r} is no key=value", "model", fix=f"model={short(text)}")
    return _by_its_signs(text)


def _by_its_signs(text: str) -> Refused:
    """Returns the error for several overrides in one word, or for other signs than = between key and value."""
    if _MAPPING.fullmatch(text):
        pairs = (pair.partition(":") for pair in text.strip("{} ").split(","))
        words = [word(key.strip("\"' "), value.strip("\"' ")) for key, _, value in pairs]
        return Refused("CLI004", f"{short(text)!r} is YAML, and several overrides", fix=short(" ".join(words), 400))
    if _COMMAND.match(text):
        message = f"{short(text)!r} is a command of another program"
        return Refused("CLI004", message, hint=f"{program()} import {short(shlex.quote(text), 300)} reads it")
    if spaced := re.fullmatch(
        r"([\w.-]+)(?:\s*=\s*|\s+)([^\s=]+|\[[^]=]*]|\{[^=]*}|[^\s=]+,(?:\s[^\s=]+)+|\d[\d.,]*(?:\s\S+)+)", text
    ):
        key, value = spaced[1], HIDDEN if is_secret_name(spaced[1]) else spaced[2]
        if key in EVERY and EVERY[key].is_list and " " in value.strip("[]"):
            value = f"[{value.strip('[]')}]"
        if value[:1] != "{":
            value = re.sub(r"[,\s]+", "," if value[:1] == "[" else "", value)
        typed = key if value == HIDDEN else short(text)
        message = f"{typed!r}: key=value is written without spaces{'' if ' ' in spaced[2] else ' around ='}"
        return Refused("CLI004", message, key, fix=short(word(key, value)))
    if os.path.isfile(f"{text}.yaml"):
        return Refused("CLI004", f"{short(text)!r} is no key=value", fix=f"{text}.yaml")
    sizes = re.findall(r"([a-z]{2,4})[-_]?(\d+)[-_x]?", text.lower())
    named = [f"{key_meant(letters)}={size}" for letters, size in sizes if f"{key_meant(letters)}" in EVERY]
    if named and len(named) == len(sizes) and re.fullmatch(r"(?:[a-z]{2,4}[-_]?\d+[-_x]?)+", text.lower()):
        return Refused("CLI004", f"{short(text)!r} is no key=value", fix=" ".join(named))
    key, equals, value = re.sub("[-=:]+>", "=", text, count=1).partition("=" if re.search("=|->", text) else ":")
    if equals and not key:
        return Refused("CLI004", f"{short(text)!r} has no key", hint="key=value is written without spaces around =")
    near = nearest(key, [*EVERY, *NODES]) if equals else None
    message = f"{short(key)!r} cannot be a key" if "=" in text else f"{short(text)!r} is no key=value"
    fix = short(word(near, value.strip(" \"'" + "}" * (text[0] == "{")))) if near else None
    if text.partition(".")[0] in NODES and re.fullmatch(r"[\w.]+", text):
        return Refused("CLI004", f"{short(text)!r} has no value", text, hint=f"{short(text)}=VALUE")
    helps = f"key={text}, and several as 'key=[1,2]'" if is_digits(text) else f"{program()} --help"
    return Refused("CLI004", message, fix=fix, hint=None if near else helps)


def _as_a_file(text: str) -> tuple[str, ...]:
    """Returns how to use a file: with a verb as it is, a plan as a lock, YAML also as an experiment in a folder of an
    app."""
    word = short(text)
    if text.endswith(".json"):
        return f"lock={word} plans a saved plan again", f"{program()} check {word} judges it"
    folder, _, name = text.rpartition("/")
    stem = short(name.rpartition(".")[0])
    taken = f"{program()} plan {word} plans a file", f"{program()} check {word} judges it"
    if folder.rpartition("/")[2] == "experiment":
        return *taken, f"in an app: --config-dir {short(folder.rpartition('/')[0] or '.')} experiment={stem}"
    return *taken, f"in an app, as DIR/experiment/{stem}.yaml: --config-dir DIR experiment={stem}"


def _dashed(text: str, known: Known) -> Refused:
    from sglang_hydra.text.flags import FLAGS, OTHER_VERBS

    flag, equals, value = text.partition("=")
    theirs = f"SGLang's own flags go after a bare --: {program()} plan -- --model-path org/name"
    message = f"{short(flag)}: arguments are typed as key=value here, without dashes"
    group = flag.lstrip("-")
    if group in ("sweep", "grid", "multi") and not value:
        return Refused("CLI004", f"{flag} is no flag of this program", fix="-m")
    if text.startswith("-") and not text.startswith("--") and (short_of := counterpart(flag)) is not None:
        group = short_of.argument or group
    theirs_in_full = (field := flagged(flag)) is not None and flag.replace("_", "-") in field.flags
    if known.options(group) and (not theirs_in_full or value in known.options(group)):
        if not value:
            return Refused("CLI004", message, group, **_without_value(group, known))
        return Refused("CLI004", message, group, fix=f"{group}={short(value)}", hint=theirs)
    if value.endswith((".yaml", ".yml")) and os.path.isfile(value):
        return Refused("CLI004", f"{short(flag)}: a file is typed without a flag", fix=value)
    own = [name for ours in FLAGS for name in ours.names if name.startswith(flag) and len(flag) > 3]
    if own and flag not in own:
        fix = own[0] if len(own) == 1 else None
        return Refused("CLI004", f"{short(flag)} is no flag of this program", fix=fix, hint=", ".join(own))
    plain = group.replace("-", "_")
    meant = getattr(flagged(flag), "name", None) or (group if group in EVERY else key_meant(group))
    if (verb := OTHER_VERBS.get(group, group)) in _LOOKING:  # before sweep.dry_run: only a sweep has that
        return Refused("CLI004", f"{short(flag)} is no flag of this program: {verb} is a verb", fix=verb)
    near = nearest(flag, [ours.names[0] for ours in FLAGS])
    if meant is None and near is not None:
        return Refused("CLI004", f"{short(flag)} is no flag of this program", fix=near)
    if meant is None and ("had" in notes().get(plain, {}) or plain in ADVICE or plain in OF_REQUESTS):
        return unknown_key("", group, value or "true", known)
    meant = meant or mistyped(group)
    if meant is None or (value and not may_be(meant, value)):
        like = f"near names: {', '.join(listed)}" if (listed := keys_like(group, _MOST_NEAR)) else None
        return Refused("CLI004", message, hint=(like, theirs, f"{program()} --help VERB has the flags of a verb"))
    field = EVERY.get(meant.lstrip("!"))
    is_switch = meant.startswith("!") or meant == "ep_size" or (field is not None and field.is_flag)
    if not equals and not is_switch:
        if takers := taking(group):  # --fp8
            return Refused("CLI004", message, hint=takers)
        return Refused("CLI004", message, meant, **_without_value(meant, known))
    typed = "true" if not equals else "VALUE" if field and field.arg.secret else short(value)
    fix = setting_of(meant, typed, known.typed)
    return Refused("CLI004", message, meant.lstrip("!"), fix=fix, hint=theirs)


def _without_value(key: str, known: Known) -> _Help:
    """Returns what to type for a key without a value: ``=true`` for a switch, else an example."""
    path = key.split(".")
    is_switch = len(path) > 1 and any(problems_at(path, "x")) and not any(problems_at(path, True))
    if is_switch or (key in EVERY and EVERY[key].is_flag):
        return {"fix": f"{key}=true"}
    return {"hint": f"such as {key}={_example_of(key, known)}; {program()} --help {key} says what it takes"}


def _example_of(key: str, known: Known) -> str:
    """Returns an example value for ``key=``."""
    if key in EVERY:
        return _example(EVERY[key])
    return {"gpu": "h100", "model": "llama_3_1_8b"}.get(key) or next(iter(known.options(key)), "...")


def flagged(flag: str) -> Field | None:
    """Returns the argument that SGLang itself would use for a flag: the exact one, or the only one that begins so."""
    spelled = flag.replace("_", "-")
    for known in (FIELDS, EVERY):
        meant = {field.name: field for field in known.values() if spelled in field.flags}
        begin = (field for field in known.values() for own in field.flags if own.startswith(spelled) and spelled > "--")
        meant = meant or {field.name: field for field in begin}
        if len(meant) == 1:
            return next(iter(meant.values()))
    return None


def near_key(key: str) -> str | None:
    """Returns the probable key for an unknown one, with ``!`` in front of an opposite; None if no name is near."""
    (name, _, rest), last = key.partition("."), key.rpartition(".")[2]
    if name == "env":
        return f"engine.{key}"
    if name in ("prefill", "decode") and (of_role := nearest(rest, EVERY)):
        return f"topology.{name}.args.{of_role}"
    if rest and (last in EVERY or last in ("gpu", "model", "engine")):
        return last
    if ".env." in key:
        return f"engine{key[key.index('.env.') :]}"
    if rest and f"launch.{name}" in known_keys():
        return f"launch.{key}"
    if rest and (joined := "_".join(key.split(".")[-2:])) in EVERY:  # model.path, tp.size
        return joined
    if rest and name not in NODES and (meant := key_meant(last)) and meant.lstrip("!") in EVERY:
        return meant
    near = key_meant(name) or (last if last in EVERY else mistyped(name))
    return f"{near}.{rest}" if rest and near in NODES else near


def unknown_key(prefix: str, key: str, value: str | None = None, known: Known | None = None) -> Refused:
    """Returns the error for an unknown key. ``+key=1`` is one too: Hydra would add a key that nothing reads."""
    name = key.partition(".")[0]
    if name in ADDED_GROUPS:
        return Refused(
            "CLI006",
            f"there is no config group {name}",
            name,
            hint=f"put {name}/NAME.yaml into a folder of yours and type --config-dir FOLDER {name}=NAME",
        )
    near = near_key(key)
    if value and (inner := re.match(r"\{\W*(\w+)\W*:", value)) and inner[1] in (*EVERY, *NODES) and name not in NODES:
        message = f"{short(key)!r} is neither an argument of SGLang nor a config group"
        return Refused("CLI001", message, short(key), hint=f"{inner[1]}=VALUE and the others, without {short(key)}")
    message = f"{short(key)!r} is neither an argument of SGLang nor a config group"
    if name.lower().replace("-", "_") in OF_REQUESTS:
        message = f"{short(key)} is set by each request, and not by the server"
        shown = value if value and re.fullmatch(_NUMBERS["float"], value) else "VALUE"
        return Refused("CLI001", message, short(key), hint=f'"{name}": {shown} in the JSON of a request')
    if advice := ADVICE.get(key.lower().replace("-", "_")):
        return Refused("CLI001", message, short(key), hint=advice)
    if prefix:
        message += "; + would add a key that nothing reads"
    if (note := notes().get(name.replace("-", "_"), {})) and "had" in note:
        message = f"SGLang {note['had']} had {short(key)}, and no release from {known_versions()[0]} on has it"
        near, said = note.get("to"), note.get("advice")
        value = str(note.get("value", value)) if value is not None else None
        if near is None:
            return Refused("CLI001", message, short(key), hint=said, fix="")
    theirs = counterpart("--" + name.replace("_", "-"))
    if theirs is not None and theirs.argument is None:
        return Refused("CLI001", message, short(key), hint=f"{short(name)} is vLLM's: {theirs.why}")
    named = name.lower().removeprefix("enable_").removeprefix("use_")
    if (
        value
        and switch_meant(value) == "true"
        and (near is None or not may_be(near, value))
        and (takers := taking(named))
    ):
        return Refused("CLI001", message, short(key), hint=takers)
    if value and (methods := methods_of_bits(named)):
        of_bits = f"methods of {named}: {', '.join(methods)}, each for checkpoints of its own: quantization=METHOD"
        return Refused("CLI001", message, short(key), hint=of_bits)
    fix: str | None = None
    listed = keys_like(name, _MOST_NEAR)
    if near is None and is_of_config(name):
        in_config = f"json_model_override_args='{{\"{name.replace('-', '_')}\": VALUE}}' sets that field of config.json"
        hints = in_config, f"near names: {', '.join(listed)}" if listed else None
        return Refused("CLI001", message, short(key), hint=hints)
    found = f"{program()} --help {part_known(name) or 'WORD'} finds arguments"
    hint: Hint = f"near names: {', '.join(listed)}" if listed else found
    if near is not None and value is not None and not may_be(near, value):
        hint = f"near names: {', '.join(dict.fromkeys((near.lstrip('!'), *listed)))}"
        near = None
    if near is not None and value is not None and known is not None:
        near = "gpu.count" if near == "gpu" and is_digits(value) else near
        fix, hint = short(setting_of(near, value, known.typed), 300), None
    elif near is not None:
        hint = Remedy.meant(near.lstrip("!"))
    return Refused("CLI001", message, short(key), fix=fix, hint=hint)


_ELSEWHERE = {
    **{("launch", name): "export k8s ..." for name in ("k8s", "kubernetes", "kubectl", "helm")},
    **{("launch", name): "export docker ..." for name in ("docker", "podman")},
    ("launch", "compose"): "export compose ...",
    ("engine", "vllm"): "import 'vllm serve ...' translates a command of vLLM",
}
"""Options that people type for something that another verb does."""


def unknown_option(group: str, value: str, options: Sequence[str]) -> Refused:
    """Returns the error for an unknown option of a group."""
    if ends_in_a_sign(value):
        name = value.rstrip(",;")
        message = f"{group}={short(value)} ends in a sign that is no part of a name"
        return Refused("CLI006", message, group, fix=word(group, name) if name in options else None)
    parts = [part.strip() for part in re.split("[,;|]", value.strip("[]{}()"))]
    if ",".join(parts) != value and len(parts) > 1 and all(part in options for part in parts):
        raise list_of_values(group, f"{group}={short(value)}", parts)
    if (len(parts) > 1 and all(part in options for part in parts)) or _SWEEPS.fullmatch(value):
        message = f"{group}={short(value)}: {group} takes one option, and several were given"
        return Refused("CLI007", message, group, hint=_for_each(f"{group}={short(value)}"))
    if group == "model" and (now := SUCCESSORS.get(re.sub(r"\W", "_", value).lower())) in options:
        return Refused("CLI006", f"{group}={short(value)} is {now} now", group, fix=f"{group}={now}")
    message = f"{group}={short(value)} does not exist"
    meant = gpus_meant(value, options) if group == "gpu" else []
    if elsewhere := _ELSEWHERE.get((group, value.lower())):
        return Refused(
            "CLI006", message, group, hint=(f"{program()} {elsewhere}", f"{group} can be: {', '.join(options)}")
        )
    if group == "engine" and (version := re.fullmatch(r"sglang[-=:@]*v?(\d+(?:\.\w+)+)", value)):
        meant = [f"engine.version={version[1]}"]
    if group == "model" and (path := path_meant(value)):
        meant = [word(group, path)]
    if group == "model" and not meant:
        meant = [f"model={one}" for one in presets_of(value)]
    if not meant and group != "gpu":
        near = nearest(_ENDING.sub("", value), options)
        if near is not None and group == "model" and re.findall(r"\d", near) != re.findall(r"\d", value):
            near = None  # another size or generation is another model
        if near is not None and letters_behind(value, near):
            near = None
        containing = sorted((one for one in options if "" < _plain(value) in _plain(one)), key=as_usual)
        alone = near is not None and (_plain(near) == _plain(value) or not containing)
        meant = [f"{group}={option}" for option in ([near] if alone else containing[:_MOST_NEAR])]
    sure, hints = meant if len(meant) == 1 else [], meant if len(meant) > 1 else []  # of several nobody knows which
    hints += ["another model: model=org/name, model=./folder"] if group == "model" else []
    if options:
        hints.append(f"{group} can be: {some_of(value, options, f'{program()} --help {group}')}")
    return Refused("CLI006", message, group, fix=next(iter(sure), None), hint=hints)


def _other_choices(name: str, value: str, version: str | None) -> list[str]:
    """Returns how to type a value that only other releases accept: with the first and the newest of these releases, as
    a new model may need the newest."""
    having = [] if version is None else releases_with_choice(name, value)
    return [f"engine.version={one} {name}={value}" for one in dict.fromkeys([*having[:1], *having[-1:]])]


_UNSET = ("none", "null", "auto", "default", "max", "unset", "unlimited", "infinite", "")
"""What people type to leave a value to SGLang."""


def _plain(text: str) -> str:
    return re.sub(r"[\W_]", "", text).lower()


class WrongValue(NamedTuple):
    """Why a value does not fit its argument, a further remark, and fitting values as typed words."""

    message: str
    hint: str | None = None
    offers: tuple[str, ...] = ()

    def finding(self, name: str, place: str | None = None) -> Finding:
        """Returns the finding for the argument ``name``; ``place`` is the file or word with the value."""
        message = f"{place}: {self.message}" if place else self.message
        return Finding("error", "CLI002", message, (name,), self.hint, offers=self.offers)


def wrong_value(field: Field, value: object, message: str, version: str | None = None) -> WrongValue:
    """Returns why a value does not fit ``field`` and what to type, for the release ``version`` if one is named."""
    name, choices = field.name, field.arg.choices
    if field.is_flag and isinstance(value, (str, int)):
        word = str(value).lower()
        if word and (switch := switch_meant(word)):
            return WrongValue(message, None, (f"{name}={switch}",))
    meant = tuple(dict.fromkeys(values_meant(field, value)))
    is_off = str(value).lower() in OFF
    if field.optional and str(value).lower() in _UNSET and not (is_off and field.kind in _NUMBERS):
        meant = (*meant, f"{name}=null")
    if choices and isinstance(value, str):
        sure = nearest(value, map(str, choices))
        if sure and name.endswith("_parser") and re.match(rf"{re.escape(value)}[-_.]", sure):
            sure = None  # the parser of another model
        near = [f"{name}={sure}"] if sure else []
        hint: str | None = f"{name} takes {some_of(value, map(str, choices), f'{program()} --help {name}')}"
        hint = hint if len(choices) > MOST_LISTED else None
        if methods := methods_of_bits(value):
            near, hint = [], f"methods of {value}: {', '.join(methods)}, each for checkpoints of its own"
        meant = (*near, *meant) if len(near) == 1 and _plain(near[0]) == _plain(f"{name}={value}") else meant
        offers = dict.fromkeys([*meant[:1], *near, *meant[1:], *_other_choices(name, value, version)])
        return WrongValue(message, hint, tuple(offers))
    if field.kind == "int" and not meant and (ends := _RANGE.fullmatch(str(value))) and not field.is_list:
        numbers = f"{name}=range({ends[1]},{int(ends[2]) + 1})"
        return WrongValue(
            message, f"-m '{numbers}' is every number from {ends[1]} to {ends[2]}, -m {name}=1,2,4 a list"
        )
    if meant:
        sizes = both_sizes(meant[0].partition("=")[2])
        return WrongValue(message, sizes or None, meant)
    if field.arg.json and value:
        return WrongValue(message, f"a JSON object in quotes: '{name}={{\"key\": 1}}'")
    if is_off and field.arg.none:
        return WrongValue(message, f"null leaves it out ({field.arg.none})")
    if field.optional and field.default is None and field.kind == "int" and not field.is_list:
        return WrongValue(message, f"{program()} --help {name} says what it takes; {name}=null leaves it to SGLang")
    if isinstance(value, bool) and field.kind == "str":
        hint = f'quote it if the word was meant: {name}="{"on" if value else "off"}" or "{str(value).lower()}"'
        return WrongValue(message, hint)
    if value is None and not field.required:
        return WrongValue(message, f"leave it out for SGLang's default, {_spelled(field.default)}")
    return WrongValue(message, f"such as {name}={_example(field)}; {program()} --help {name} says what it takes")


def _example(field: Field) -> str:
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
