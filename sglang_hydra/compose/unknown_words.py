"""Builds the errors for words that name nothing: no ``key=value``, an unknown key, an unknown option; what was meant.

Imported once a word is refused, and for the nearest key."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from functools import partial
from typing import TypedDict

from sglang_hydra.architecture.published_checkpoints import variants
from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.fields import FIELDS, Field
from sglang_hydra.arguments.meant import OF_REQUESTS, methods_of_bits, taking, word
from sglang_hydra.arguments.secrets import HIDDEN, is_secret_name
from sglang_hydra.arguments.tables.successors import notes
from sglang_hydra.arguments.tables.table import known_versions
from sglang_hydra.arguments.vllm import counterpart
from sglang_hydra.compose.corrections import (
    ADVICE,
    MEMORY,
    VARIABLES_OF_OTHERS,
    as_usual,
    checkpoint_of,
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
from sglang_hydra.compose.override_errors import (
    ADDED_GROUPS,
    NUMBERS,
    Known,
    Refused,
    ends_in_a_sign,
    example,
    for_each,
    list_of_values,
)
from sglang_hydra.compose.schema import NO_CHOICE, NODES
from sglang_hydra.text.findings import Hint, Remedy
from sglang_hydra.text.flags import FILLERS, FLAGS, OTHER_VERBS, VERBS
from sglang_hydra.text.locations import SUFFIXES
from sglang_hydra.text.words import is_digits, nearest, plain_name, program, short, some_of

_SWEEPS = re.compile(r"(choice|glob|sort|shuffle|range)\(.*\)", re.DOTALL)
"""Functions of Hydra's grammar that mean several options."""
_FILE = re.compile(r"\S+\.(?:sh|bash|sbatch|slurm|mdx?|txt|log|py|toml)|(?:\S*/)?(?:Dockerfile|Makefile)")
_COMMAND = re.compile(r"(?:[A-Z_]+=\S* )*(?:\S*python[\d.]*|sglang|vllm|docker|trtllm-serve) ")
_MAPPING = re.compile(
    r"\{[\w.\"'-]+:[^\s,:{}]+(?:,[\w.\"'-]+:[^\s,:{}]+)+\}"
    r"|\{?\s*[\w.\"'-]+\s*:\s+[^\s,:]+\s*(?:,\s*[\w.\"'-]+\s*:\s+[^\s,:]+\s*)+\}?"
)
"""Several key=value pairs in one word."""
_ENDING = re.compile(r"[-_.](it|exp|ya?ml)$", re.IGNORECASE)
"""Endings of a model's name that do not make it another model."""
_MOST_NEAR = 4
_LOOKING = ("plan", "check")
"""Verbs that people type as a flag of another verb: ``serve ... --dry-run``."""


class _Help(TypedDict, total=False):
    fix: str
    hint: str


def no_override(text: str, known: Known) -> Refused:
    """Returns the error for a word that is no ``key=value``."""
    no_pair = partial(Refused, "CLI004", f"{short(text)!r} is no key=value")
    if text.startswith("-") and text[1:2] != " ":
        return _dashed(text, known)
    if re.match(r"https?://", text):
        hints = (
            f"bench bench.url={short(text)} measures a server that runs",
            f"diff gpu=... {short(text)} compares a plan",
        )
        return Refused("CLI004", f"{short(text)!r} is no key=value", hint=[f"{program()} {one}" for one in hints])
    if text in VERBS:
        hint = f"{program()} {text} key=value ..."
        return Refused("CLI004", f"{text!r} is a verb, and the verb comes first", hint=hint)
    if text.endswith(SUFFIXES):
        return no_pair(hint=_as_a_file(text))
    if _FILE.fullmatch(text) and "=" not in text and not os.path.exists(text):
        hint = f"{program()} check FILE, with the path of a file that is here"
        return Refused("CLI004", f"{short(text)!r} is no key=value, and there is no such file", hint=hint)
    if "=" not in text and (file := next((f"{text}{end}" for end in SUFFIXES if os.path.isfile(f"{text}{end}")), None)):
        return no_pair(fix=short(shlex.quote(file)))
    if (path := path_meant(text)) and "=" not in text:
        return Refused("CLI004", f"{short(text)!r} is a path of Windows", fix=short(shlex.quote(path)))
    if text.endswith("/") and "=" not in text and not os.path.isdir(text):
        message = f"{short(text)!r} is no key=value, and there is no such folder"
        return Refused("CLI004", message, hint="a folder that is here")
    if text.startswith(("/", "./", "../", "~/")) and "=" not in text:
        message = f"{short(text)!r} is no key=value, and no YAML or JSON file"
        return Refused("CLI004", message, hint=f"a model's folder is model={short(text)}")
    for group in ("model", "gpu", "engine"):
        if (near := nearest(text, known.options(group))) is not None and plain_name(near) == plain_name(text):
            return Refused("CLI004", f"{text!r} is no key=value", group, fix=f"{group}={near}")
    if gpus := re.fullmatch(r"(\d{1,3}) ?x? ?gpus?", text, re.IGNORECASE):
        return no_pair("gpu", fix=f"gpu.count={gpus[1]}")
    counted = re.fullmatch(r"\d+ ?[x*]? ?[a-zA-Z][\w-]*|[a-zA-Z][\w-]*\d[\w-]*(?:[x*:]\d+)?", text)
    if counted and len(named := gpus_meant(text, known.options("gpu"))) == 1:
        return no_pair("gpu", fix=named[0])
    named = [f"model={one}" for one in known.options("model") if text.lower() in one.split("_")]
    if named and not is_digits(text):
        return no_pair(hint=f"such as {', '.join(named[:_MOST_NEAR])}")
    if takers := taking(text):
        sure = takers[0] if len(takers) == 1 else None
        return no_pair(fix=sure, hint=None if sure else takers)
    if (same := text.lower().replace("-", "_")) in EVERY or text in NODES:
        return Refused("CLI004", f"{text!r} has no value", same, **_without_value(same, known))
    if (meant := key_meant(same)) and EVERY.get(meant.lstrip("!")) is not None and EVERY[meant.lstrip("!")].is_flag:
        return Refused("CLI004", f"{text!r} has no value", meant.lstrip("!"), fix=setting_of(meant, "true", {}))
    if not text.strip("\\ \t\n"):
        where = "\\ must be the last character of its line, with no space after it"
        return Refused("CLI004", f"{text!r} became a word of its own: {where}", hint="the same without it", fix="")
    if not text.strip("&;|<>") or text.startswith("#") or text.lower() in FILLERS:
        return Refused("CLI004", f"{short(text)!r} sets nothing", hint="the same without it", fix="")
    if "/" in text and re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        group, _, option = text.partition("/")
        if (near := nearest(option, known.options(group))) is not None:
            return no_pair(group, fix=f"{group}={near}")
        return no_pair("model", fix=f"model={short(text)}")
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
        meant = key_meant(key) or mistyped(key) or key
        key = meant if key not in (*EVERY, *NODES, *NO_CHOICE) and meant in EVERY else key
        if key in EVERY and EVERY[key].is_list and " " in value.strip("[]"):
            value = f"[{value.strip('[]')}]"
        if value[:1] != "{":
            value = re.sub(r",\s+", ",", value)
            value = re.sub(r"[,\s]+" if value[:1] == "[" else r"\s+", "," if value[:1] == "[" else "", value)
        typed = key if value == HIDDEN else short(text)
        message = f"{typed!r}: key=value is written without spaces{'' if ' ' in spaced[2] else ' around ='}"
        return Refused("CLI004", message, key, fix=short(word(key, value)))
    sizes = re.findall(r"([a-z]{2,4})[-_]?(\d+)[-_x]?", text.lower())
    named = [f"{key_meant(letters)}={size}" for letters, size in sizes if f"{key_meant(letters)}" in EVERY]
    if named and len(named) == len(sizes) and re.fullmatch(r"(?:[a-z]{2,4}[-_]?\d+[-_x]?)+", text.lower()):
        return Refused("CLI004", f"{short(text)!r} is no key=value", fix=" ".join(named))
    key, equals, value = re.sub("[-=:]+>", "=", text, count=1).partition("=" if re.search("=|->", text) else ":")
    if equals and not key:
        return Refused("CLI004", f"{short(text)!r} has no key", hint="key=value is written without spaces around =")
    near = nearest(key, [*EVERY, *NODES]) if equals else None
    if near is None and equals and re.fullmatch(r"[\w.-]+(?::[\w.-]+)+", key):  # env:NAME=VALUE
        near = near_key(key.replace(":", "."))
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
    if attached := re.fullmatch(r"(-[a-z]{1,3})(\d+)", text):  # -tp2
        text = "=".join(attached.groups())
    flag, equals, value = text.partition("=")
    theirs = f"SGLang's own flags go after a bare --: {program()} plan -- --model-path org/name"
    message = f"{short(flag)}: arguments are typed as key=value here, without dashes"
    group = flag.lstrip("-")
    if group in FILLERS:
        return Refused("CLI004", f"{flag} is no flag of this program", hint="key=value alone, without it", fix=value)
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
        file = f"a file is typed without a flag: {program()} plan FILE.yaml" if flag == "--config" else None
        return Refused("CLI004", f"{short(flag)} is no flag of this program", fix=fix, hint=(file, ", ".join(own)))
    plain = group.replace("-", "_")
    meant = getattr(flagged(flag), "name", None) or (group if group in EVERY else key_meant(group))
    if (verb := OTHER_VERBS.get(group, group)) in _LOOKING:  # before sweep.dry_run: only a sweep has that
        return Refused("CLI004", f"{short(flag)} is no flag of this program: {verb} is a verb", fix=verb)
    if group in VERBS and meant is None:
        hint = f"{program()} {group} ..."
        return Refused("CLI004", f"{short(flag)} is no flag of this program: {group} is a verb", hint=hint)
    near = nearest(flag, [ours.names[0] for ours in FLAGS])
    near = near or next((one.names[0] for one in FLAGS if not one.value and flag.startswith(f"{one.names[0]}-")), None)
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
    if not equals and (theirs_in := counterpart(flag)) is not None and theirs_in.is_default:
        message = f"{short(flag)} is vLLM's: SGLang does this unless {meant.lstrip('!')} changes it"
        return Refused("CLI004", message, hint="the same without it", fix="")
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
    one = {"gpu": "h100", "model": "llama_3_1_8b"}.get(key) or next(iter(known.options(key)), "...")
    one = example(EVERY[key]) if key in EVERY else one
    return {"hint": f"such as {key}={one}; {program()} --help {key} says what it takes"}


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
    if rest and f"topology.{key}" in known_keys():
        return f"topology.{key}"
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
    is_mapping = near in known_keys() and near not in EVERY and not any(problems_at([*near.split("."), rest], "x"))
    return f"{near}.{rest}" if rest and near and (is_mapping or near in (*NODES, "engine.env")) else near


def _advised(key: str, value: str | None, near: str | None, message: str) -> Refused | None:
    """Returns the error for a name without a key here that people type; None for another."""
    name = key.partition(".")[0]
    if name.lower().replace("-", "_") in OF_REQUESTS:
        message = f"{short(key)} is set by each request, and not by the server"
        shown = value if value and re.fullmatch(NUMBERS["float"], value) else "VALUE"
        return Refused("CLI001", message, short(key), hint=f'"{name}": {shown} in the JSON of a request')
    plain = key.lower().replace("-", "_")
    if advice := ADVICE.get(plain) or (near is None and ADVICE.get(plain.rpartition(".")[2])):
        return Refused("CLI001", message, short(key), hint=advice)
    if near is not None and near.startswith("engine.env.") and name.startswith(VARIABLES_OF_OTHERS):
        left_out = f"leave it out: {name} is another program's, and SGLang's own begin with SGLANG_"
        return Refused("CLI001", message, name, fix=Remedy.fixed("", left_out))
    return None


def unknown_key(prefix: str, key: str, value: str | None = None, known: Known | None = None) -> Refused:
    """Returns the error for an unknown key. ``+key=1`` is one too: Hydra would add a key that nothing reads."""
    name = key.partition(".")[0]
    if name in ADDED_GROUPS:
        file = f"put {name}/NAME.yaml into a folder of yours and type --config-dir FOLDER {name}=NAME"
        return Refused("CLI006", f"there is no config group {name}", name, hint=file)
    if key in ("prefill", "decode") and is_digits(value or "") and known and known.typed.get("topology") == "pd":
        message = f"{key} is a group of servers of topology=pd"
        return Refused("CLI001", message, key, fix=f"topology.{key}.replicas={value}")
    near = near_key(key)
    if value and value.lstrip().startswith("--"):
        message = f"{short(key)!r} is neither an argument of SGLang nor a config group"
        return Refused(
            "CLI001", message, short(key), hint=f"{program()} plan -- {short(value, 300)}: flags go after --"
        )
    if value and (inner := re.match(r"\{\W*(\w+)\W*:", value)) and inner[1] in (*EVERY, *NODES) and name not in NODES:
        message = f"{short(key)!r} is neither an argument of SGLang nor a config group"
        return Refused("CLI001", message, short(key), hint=f"{inner[1]}=VALUE and the others, without {short(key)}")
    message = f"{short(key)!r} is neither an argument of SGLang nor a config group"
    if (advised := _advised(key, value, near, message)) is not None:
        return advised
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
    is_on = value and switch_meant(value) == "true" and (near is None or not may_be(near, value))
    if is_on and (takers := taking(named)):
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
    **{("gpu", name): "suggest model=... gpu=h100,h200,b200 compares classes" for name in ("any", "all", "every", "*")},
    ("engine", "vllm"): "import 'vllm serve ...' translates a command of vLLM",
}
"""Options that people type for something that another verb does."""
_NAMED = {("topology", name): "pd" for name in ("disagg", "disaggregated", "disaggregation", "prefill_decode", "pdd")}
"""Options by other names of theirs."""


def _variant_meant(value: str, options: Sequence[str]) -> list[str]:
    """Returns the words for a preset with a published format behind its name: ``qwen3_8b_fp8``."""
    name, _, form = re.sub("[-.]", "_", value.lower()).rpartition("_")
    path = checkpoint_of(name) if name in options else None
    return [f"model={name} model.variant={form}"] if path and form in variants(path) else []


def unknown_option(group: str, value: str, options: Sequence[str]) -> Refused:
    if ends_in_a_sign(value):
        name = value.rstrip(",;")
        message = f"{group}={short(value)} ends in a sign that is no part of a name"
        return Refused("CLI006", message, group, fix=word(group, name) if name in options else None)
    parts = [part.strip() for part in re.split("[,;|]", value.strip("[]{}()"))]
    if ",".join(parts) != value and len(parts) > 1 and all(part in options for part in parts):
        raise list_of_values(group, f"{group}={short(value)}", parts)
    if (len(parts) > 1 and all(part in options for part in parts)) or _SWEEPS.fullmatch(value):
        message = f"{group}={short(value)}: {group} takes one option, and several were given"
        return Refused("CLI007", message, group, hint=for_each(f"{group}={short(value)}"))
    message = f"{group}={short(value)} does not exist"
    meant = gpus_meant(value, options) if group == "gpu" else []
    if named := _NAMED.get((group, value.lower().replace("-", "_"))):
        meant = [f"{group}={named}"]
    if elsewhere := _ELSEWHERE.get((group, value.lower())):
        hint = f"{program()} {elsewhere}", f"{group} can be: {', '.join(options)}"
        return Refused("CLI006", message, group, hint=hint)
    if group == "gpu" and re.fullmatch(MEMORY, value, re.IGNORECASE):
        return Refused("CLI006", message, group, hint=f"{program()} gpus {value} lists those with as much memory")
    if group == "engine" and (version := re.fullmatch(r"sglang[-=:@]*v?(\d+(?:\.\w+)+)", value)):
        meant = [f"engine.version={version[1]}"]
    if group == "model" and (path := path_meant(value)):
        meant = [word(group, path)]
    if group == "model" and not meant:
        meant = [f"model={one}" for one in presets_of(value)] or _variant_meant(value, options)
    if not meant and group != "gpu":
        near = nearest(_ENDING.sub("", value), options)
        if near is not None and group == "model" and re.findall(r"\d", near) != re.findall(r"\d", value):
            near = None  # another size or generation is another model
        if near is not None and letters_behind(value, near):
            near = None
        containing = sorted((one for one in options if "" < plain_name(value) in plain_name(one)), key=as_usual)
        alone = near is not None and (plain_name(near) == plain_name(value) or not containing)
        meant = [f"{group}={option}" for option in ([near] if alone else containing[:_MOST_NEAR])]
    sure, hints = meant if len(meant) == 1 else [], meant if len(meant) > 1 else []  # of several nobody knows which
    hints += ["another model: model=org/name, model=./folder"] if group == "model" else []
    if options:
        hints.append(f"{group} can be: {some_of(value, options, f'{program()} --help {group}')}")
    return Refused("CLI006", message, group, fix=next(iter(sure), None), hint=hints)
