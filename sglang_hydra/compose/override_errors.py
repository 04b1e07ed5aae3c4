"""What is said about an override that cannot be: the value got, what is allowed, the nearest name, what to type."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sglang_hydra.arguments.fields import FIELDS, Field
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.compose.schema import NODES
from sglang_hydra.text.findings import Finding, offers_of
from sglang_hydra.text.words import nearest, program, several_near, short

ADDED_GROUPS = ("experiment", "recipe", "sweep")
"""Hydra groups that an app adds with ``+``; typing ``experiment=x`` means the same here."""


_MOST_LISTED = 60
_SWEEPS = re.compile(r"(choice|glob|sort|shuffle|range)\(.*\)", re.DOTALL)
"""What stands for several options in Hydra's grammar."""
_OTHER_VALUES = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    **dict.fromkeys(("flash_attn", "flash_attention", "flash_attention_3", "flash_attn_3", "FLASH_ATTN"), "fa3"),
}
"""What other engines, and people, call a value."""
_MOST_NEAR = 3


@dataclass(frozen=True)
class Known:
    """What the keys of a command line may be: the options of a group, and the keys of an app's own."""

    options: Callable[[str], Sequence[str]]
    is_own_key: Callable[[str], bool]


class Refused(Exception):
    """One override is refused; the reader goes on with the next."""

    def __init__(
        self, id: str, message: str, *fields: str, hint: str | None = None, offers: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.finding = Finding("error", id, message, fields, hint, offers=offers_of(offers))


def unreadable(text: str, key: str, failure: Exception) -> Refused:
    """A value that Hydra's grammar cannot read; ``failure`` is what it said."""
    if isinstance(failure, RecursionError):
        why = "it is nested too deeply"
    else:
        why = short(str(failure).splitlines()[0])
    field = FIELDS.get(key)
    value = short(text.partition("=")[2])
    if "${" in value:
        hint = f"a literal ${{ is written \\${{, an interpolation ${{name}}: {key}='...\\${{...'"
    elif field is not None and field.kind == "Any":
        hint = f"quote the items: \"{key}=['sql=/adapters/sql']\""
    elif field is not None and field.is_list:
        hint = f"a list is {key}=[1,2]"
    else:
        hint = f"quote it: \"{key}='{value}'\""
    return Refused("CLI003", f"{short(text)}: the value cannot be read ({why})", key, hint=hint)


def several_values(field: Field | None, text: str, value: str) -> Refused:
    """``tp_size=1,2,4`` where one plan is made."""
    name = field.name if field else text.partition("=")[0]
    if field is not None and (field.is_list or field.kind == "Any") and "(" not in value:
        return Refused("CLI007", f"{short(text)}: a list needs brackets", name, hint=f"{name}=[{short(value)}]")
    return Refused(
        "CLI007",
        f"{short(text)}: {name} takes one value, and several were given",
        name,
        hint=f"{program()} bench -m ... {short(text)} measures each of them, plan -m ... judges each",
    )


def not_deletable(key: str) -> Refused:
    field = FIELDS.get(key)
    if field is not None and not field.optional:
        hint = f"leave {key} out" + ("" if field.required else f", or type SGLang's default, {key}={field.default}")
    else:
        hint = f"{key}=null leaves it unset"
    return Refused("CLI005", f"~{key}: an argument cannot be deleted", key, hint=hint)


def no_override(text: str, known: Known) -> Refused:
    """A word that is no ``key=value``."""
    from sglang_hydra.text.flags import VERBS

    if text.startswith("-"):
        return _dashed(text, known)
    if text in VERBS:
        hint = f"{program()} {text} key=value ..."
        return Refused("CLI004", f"{text!r} is a verb, and the verb comes first", hint=hint)
    if text.endswith((".yaml", ".yml", ".json")):
        return Refused("CLI004", f"{short(text)!r} is no key=value", hint=_as_a_file(text))
    for group in ("model", "gpu", "engine"):
        if text in known.options(group):
            return Refused("CLI004", f"{text!r} is no key=value", group, hint=f"did you mean {group}={text}?")
    if text in FIELDS or text in NODES:
        return Refused("CLI004", f"{text!r} has no value", text, hint=f"{text}={_example_of(text, known)}")
    key, equals, value = text.partition("=" if "=" in text else ":")
    if equals and not key:
        return Refused("CLI004", f"{short(text)!r} has no key", hint="key=value is written without spaces around =")
    near = nearest(key, [*FIELDS, *NODES]) if equals else None
    message = f"{short(key)!r} cannot be a key" if "=" in text else f"{short(text)!r} is no key=value"
    return Refused("CLI004", message, hint=f"did you mean {near}={short(value)}?" if near else f"{program()} --help")


def _as_a_file(text: str) -> str:
    """What takes a file: the verbs of the command line as it lies, a plan as a lock, YAML as an experiment of its
    folder in an app."""
    word = short(text)
    if text.endswith(".json"):
        return f"lock={word} plans a saved plan again; or {program()} check {word} judges it"
    folder, _, name = text.rpartition("/")
    stem = short(name.rpartition(".")[0])
    taken = f"{program()} plan {word} plans a file; or {program()} check {word} judges it"
    if folder.rpartition("/")[2] == "experiment":
        return f"{taken}; or in an app: --config-dir {short(folder.rpartition('/')[0] or '.')} experiment={stem}"
    return f"{taken}; or in an app, as DIR/experiment/{stem}.yaml: --config-dir DIR experiment={stem}"


def _dashed(text: str, known: Known) -> Refused:
    from sglang_hydra.text.flags import FLAGS

    flag, equals, value = text.partition("=")
    theirs = f"SGLang's own flags go after a bare --: {program()} plan -- --model-path org/name"
    message = f"{short(flag)}: arguments are typed as key=value here, without dashes"
    group = flag.lstrip("-")
    if known.options(group) and (flagged(flag) is None or value in known.options(group)):
        return Refused("CLI004", message, group, hint=f"{group}={short(value) or _example_of(group, known)}; {theirs}")
    field = flagged(flag)
    near = nearest(flag, [ours.names[0] for ours in FLAGS])
    if field is None and near is not None:
        return Refused("CLI004", f"{short(flag)} is no flag of this program", hint=f"did you mean {near}?")
    field = field or FIELDS.get(nearest(flag, FIELDS) or "")
    if field is None:
        return Refused("CLI004", message, hint=theirs)
    typed = short(value) if equals and not field.arg.secret else _example(field)
    return Refused("CLI004", message, field.name, hint=f"{field.name}={typed}; {theirs}")


def _example_of(key: str, known: Known) -> str:
    """Something that can stand behind ``key=``."""
    if key in FIELDS:
        return _example(FIELDS[key])
    return {"gpu": "h100", "model": "llama_3_1_8b"}.get(key) or next(iter(known.options(key)), "...")


def flagged(flag: str) -> Field | None:
    """The argument that SGLang itself would take this flag for: spelled out, or the only one that begins so."""
    spelled = flag.replace("_", "-")
    meant = {field.name: field for field in FIELDS.values() if spelled in field.flags}
    meant = meant or {
        field.name: field
        for field in FIELDS.values()
        for own in field.flags
        if own.startswith(spelled) and spelled > "--"
    }
    return next(iter(meant.values())) if len(meant) == 1 else None


OTHER_NAMES = {
    "batch_size": "max_running_requests",
    "enable_chunked_prefill": "chunked_prefill_size",
    "enable_expert_parallel": "ep_size",
    "enable_prefix_caching": "disable_radix_cache",
    "enforce_eager": "disable_cuda_graph",
    "gpu_memory_utilization": "mem_fraction_static",
    "max_model_len": "context_length",
    "max_num_batched_tokens": "chunked_prefill_size",
    "max_num_seqs": "max_running_requests",
    "mem_fraction": "mem_fraction_static",
    "model_name": "served_model_name",
    "num_gpus": "tp_size",
    "seed": "random_seed",
}
"""What other engines, and people, call an argument."""


def unknown_key(prefix: str, key: str) -> Refused:
    """A key that nothing reads. ``+key=1`` is refused too: Hydra would add it, and nobody would look at it."""
    name = key.partition(".")[0]
    if name in ADDED_GROUPS:
        return Refused(
            "CLI006",
            f"there is no config group {name}",
            name,
            hint=f"put {name}/NAME.yaml into a folder of yours and type --config-dir FOLDER {name}=NAME",
        )
    from sglang_hydra.arguments.extra import first_with

    if since := first_with(name):
        message = f"{short(key)!r} is an argument of SGLang {since}, and 0.5.2 does not have it"
        return Refused("CLI001", message, short(key), hint=f"engine.version={since} extra.{name}=...")
    meant = flagged(f"--{name}")
    last = key.rpartition(".")[2]
    near = OTHER_NAMES.get(name) or (meant.name if meant else None)
    near = near or (last if last in FIELDS else nearest(name, [*FIELDS, *NODES]))
    message = f"{short(key)!r} is neither an argument of SGLang 0.5.2 nor a config group"
    if prefix:
        message += "; + would add a key that nothing reads"
    return Refused(
        "CLI001",
        message,
        short(key),
        hint=f"did you mean {near}?" if near else f"{program()} --help WORD finds arguments",
    )


def unknown_option(group: str, value: str, options: Sequence[str]) -> Refused:
    """An option that a group does not have."""
    parts = [part.strip() for part in value.split(",")]
    if (len(parts) > 1 and any(part in options for part in parts)) or _SWEEPS.fullmatch(value):
        hint = f"{program()} bench -m ... {group}={short(value)} measures each of them, plan -m ... judges each"
        return Refused(
            "CLI007", f"{group}={short(value)}: {group} takes one option, and several were given", group, hint=hint
        )
    near = nearest(value, options)
    containing = [option for option in options if value and value.lower() in option]
    named = [near] if near is not None and (near == value.lower() or not containing) else containing[:3]
    meant = " or ".join(f"{group}={option}" for option in named)
    hints = [f"did you mean {meant}?"] if meant else []
    if group == "model":
        hints.append("Another model: model=org/name, model=./folder")
    if len(options) > _MOST_LISTED:
        hints.append(f"All {len(options)}: {program()} --help {group}")
        options = [*containing[:_MOST_LISTED], "..."] if containing else options[:0]
    listed = f"; {group} can be: {', '.join(options)}" if options else ""
    message = f"{group}={short(value)} does not exist{listed}"
    return Refused("CLI006", message, group, hint=" ".join(hints) or None)


def _later_choice(name: str, value: str) -> str | None:
    """How to type a value that only a later release of SGLang takes."""
    from sglang_hydra.arguments.extra import first_with_choice

    since = first_with_choice(name, value)
    return f"engine.version={since} extra.{name}={value}" if since and since != SPECIFIED_VERSION else None


class WrongValue(NamedTuple):
    """A value that does not fit its argument: why, what else is to be said, and values that do fit, as typed."""

    message: str
    hint: str | None = None
    offers: tuple[str, ...] = ()

    def finding(self, name: str, place: str | None = None) -> Finding:
        """It as a finding on the argument ``name``; ``place`` says where the value stands."""
        message = f"{place}: {self.message}" if place else self.message
        return Finding("error", "CLI002", message, (name,), self.hint, offers=offers_of(self.offers))


def wrong_value(field: Field, value: Any, message: str) -> WrongValue:
    """What to type for an argument whose value does not fit."""
    name, choices = field.name, field.arg.choices
    if field.is_flag and isinstance(value, (str, int)):
        word = str(value).lower()
        if word in ("1", "on", "yes", "y", "0", "off", "no", "n"):
            return WrongValue(message, None, (f"{name}={'true' if word in ('1', 'on', 'yes', 'y') else 'false'}",))
    if choices and isinstance(value, str):
        near = several_near(value, map(str, choices), _MOST_NEAR)
        meant = _OTHER_VALUES.get(value)
        near = [meant, *near] if meant and meant in choices else near
        later = _later_choice(name, value)
        return WrongValue(message, None, (*(f"{name}={one}" for one in near), *([later] if later else [])))
    if isinstance(value, bool) and field.kind == "str":
        hint = f'quote it if the word was meant: {name}="{"on" if value else "off"}" or "{str(value).lower()}"'
        return WrongValue(message, hint)
    if value is None and not field.required:
        return WrongValue(message, f"leave it out for SGLang's default, {_spelled(field.default)}")
    typed = f"{name}={_example(field)}"
    typed = f'"{typed}"' if "'" in typed else typed
    return WrongValue(message, f"{program()} --help {name} says what it takes", (typed,))


def _example(field: Field) -> str:
    if field.arg.parser == "lora":
        return "['sql=/adapters/sql']"
    if field.arg.choices:
        return f"[{field.arg.choices[0]}]" if field.kind == "Any" else str(field.arg.choices[0])
    if field.is_flag:
        return "true"
    one = {"int": "8", "float": "0.8"}.get(field.kind, "VALUE")
    if field.default is not None and not field.required and not field.is_list and field.default != "":
        one = _spelled(field.default)
    return f"[{one}]" if field.is_list else one


def _spelled(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
