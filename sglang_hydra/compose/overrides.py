"""Reads the typed overrides. A word that Hydra's grammar refuses becomes an error with what to type instead.

Checks each word alone, so that all mistakes of a command line are reported at once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sglang_hydra.arguments.every import EVERY, canonical_name, field_in, fitting_problem
from sglang_hydra.arguments.fields import Field
from sglang_hydra.arguments.meant import word
from sglang_hydra.arguments.secrets import HIDDEN, SECRET_FIELDS, masked
from sglang_hydra.compose.corrections import LEFT_TO_TOOLS, OF_TOOLS, hub_page, key_meant
from sglang_hydra.compose.grammar import as_override, has_interpolation, literal, typed_word, unquoted, written
from sglang_hydra.compose.node_types import count_at, is_text, problems_at
from sglang_hydra.compose.override_errors import (
    ADDED_GROUPS,
    Known,
    Refused,
    ends_in_a_sign,
    list_of_values,
    not_deletable,
    refuse_file_of_model,
    several_overrides,
    several_values,
    unreadable,
    wrong_value,
)
from sglang_hydra.compose.schema import NO_CHOICE, NODES
from sglang_hydra.text.budget import DEPTH, FINDINGS, depth_of
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.user_settings import settings
from sglang_hydra.text.words import both_sizes, is_digits, program, short

if TYPE_CHECKING:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Override

_ONE_OF_ANY = ("bench.concurrency",)
"""Keys of type Any that take one value."""
_PATH_FIELDS = (
    *("model_path", "tokenizer_path", "download_dir", "chat_template", "speculative_draft_model_path"),
    *("speculative_token_map", "completion_template", "quantization_param_path", "init_expert_location"),
    *("file_storage_path", "crash_dump_folder", "debug_tensor_dump_output_folder", "ssl_keyfile", "ssl_certfile"),
)
_KEY = re.compile(r"^(?P<prefix>\+{0,2}|~)(?P<key>[A-Za-z_][\w./-]*(?:@[\w.:-]*)?)(?:=(?P<value>.*))?$", re.DOTALL)
_HYDRA = re.compile(r"^(\+{0,2}|~)hydra([./=@]|$)")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'" + r'|"(?:[^"\\]|\\.)*"', re.DOTALL)
_SIMPLE = re.compile(
    r"(?P<prefix>\+{0,2})(?P<key>[A-Za-z_]\w*(?:(?:\.[A-Za-z_]\w*)+|(?:/[A-Za-z_]\w*)+)?)="
    r"(?P<value>(?P<name>[A-Za-z_][\w-]*)|(?:0|-?[1-9][0-9]{0,15})(?P<point>\.[0-9]{1,15})?)",
    re.ASCII,
)
_OF_A_CHOICE = ("name", "type", "preset", "id", "kind", "class")  # keys that people write for a group's option
_SPECIAL_WORDS = ("null", "true", "false", "nan", "inf")
_INTERPOLATION = re.compile(r"\$\{.*\}", re.DOTALL)


KEPT = "sweep"
"""The layer of a word from the record of a sweep. It is read like a typed word but was not typed this time."""


class Request(NamedTuple):
    """One override as it was given: its text, place and layer.

    If the value is already typed (from SGLang's flags or a file), ``key`` and ``value`` contain it, ``text`` only shows
    it, and ``${`` in it is an interpolation only with ``interpolate``. ``words`` are the typed words if there were
    several."""

    text: str
    place: str
    layer: str = "cli"
    key: str | None = None
    value: Any = None
    interpolate: bool = False
    words: tuple[str, ...] = ()

    @classmethod
    def typed(cls, key: str, value: Any, place: str, layer: str = "cli", *, interpolate: bool = False) -> Request:
        """Returns a request that sets ``key`` to ``value``, whatever the value contains."""
        try:
            text = typed_word(key, value) if interpolate else as_override(key, value)
        except ValueError:
            text = f"{key}={value}"
        return cls(text, place, layer, key, value, interpolate)

    @property
    def is_word(self) -> bool:
        """Returns whether the request is read as a typed word."""
        return self.layer in ("cli", KEPT)

    @property
    def name(self) -> str:
        """Returns the key that the request sets, or the group whose option it chooses."""
        return self.key or named_by(self.text)

    @property
    def is_flag(self) -> bool:
        return self.key is None and re.match("--?[A-Za-z]", self.text) is not None and "=" not in self.text


class Wanted(NamedTuple):
    """A request that Hydra can read. ``secret`` is the secret value from the text, only in memory."""

    override: Override
    request: Request
    secret: str | None = None


def named_by(word: str) -> str:
    """Returns the key or group of a typed override: ``tp_size`` for ``++tp_size=2``."""
    return word.lstrip("+~").partition("=")[0]


def is_hydras(text: str) -> bool:
    """Returns whether an override sets something of Hydra's own node: ``hydra.run.dir=x``, ``hydra/launcher=x``."""
    return _HYDRA.match(text) is not None


def read_requests(
    requests: Iterable[Request],
    *,
    group_options: Callable[[str], Sequence[str]],
    is_own_key: Callable[[str], bool] = lambda key: False,
) -> tuple[list[Wanted], list[Finding]]:
    """Returns the overrides for Hydra and the findings for the words that are wrong.

    ``group_options`` returns the options of a config group, empty for an unknown one; ``is_own_key`` returns whether
    the app has such a root key. Several values for one key are an error here, because ``sweep.axes`` splits a sweep
    (``-m``) before."""
    requests = list(requests)
    pairs = ((request, *request.text.lstrip("+").partition("=")[::2]) for request in requests)
    typed = dict((one.key, str(one.value)) if one.key else (key, unquoted(value)) for one, key, value in pairs)
    known = Known(group_options, is_own_key, named_release(requests), typed)
    wanted: list[Wanted] = []
    findings: list[Finding] = []
    for request in requests:
        try:
            wanted.extend(_read(request, known) if request.key is None else _read_typed(request, request.key, known))
        except Refused as refused:
            findings.append(_placed(refused.finding, request))
            if len(findings) == FINDINGS:
                message = f"after {FINDINGS} mistakes, the last one at {request.place}, the rest was not read"
                return wanted, [*findings, Finding("error", "CLI009", message)]
    return wanted, findings


def named_release(requests: Sequence[Request]) -> str | None:
    """Returns the SGLang release in the words, the last of several; None without one."""
    named = [
        str(request.value) if request.key else unquoted(request.text.partition("=")[2])
        for request in requests
        if request.name == "engine.version"
    ]
    return named[-1] if named else None


def parse_requests(requests: Iterable[Request], is_path: Callable[[str], bool]) -> tuple[list[Wanted], list[Finding]]:
    """Returns overrides and findings for words that Hydra has accepted. Takes secrets out. A model with ``is_path``
    (``model=org/name``) becomes ``model=unset`` and its ``model_path``."""
    wanted: list[Wanted] = []
    findings: list[Finding] = []
    for request in requests:
        if request.key is not None:
            is_secret = request.key.rpartition(".")[2] in SECRET_FIELDS and request.value is not None
            own = _change(request.key, literal(request.value), request.text)
            wanted.append(_hidden(request.key, request, request.value) if is_secret else Wanted(own, request))
            continue
        try:
            override = parsed(request.text, request.text.partition("=")[0])
        except Refused as refused:
            findings.append(refused.finding)
            continue
        field, value = EVERY.get(override.key_or_group.rpartition(".")[2]), override.value()
        if field is not None and field.arg.secret and value is not None and not has_interpolation(value):
            wanted.append(_hidden(override.key_or_group, request, value))
        elif override.key_or_group == "model" and isinstance(value, str) and is_path(value):
            unset = f"{override.get_key_element()}={NO_CHOICE['model']}"
            key = f"{override.package or 'model'}.model_path"
            wanted.append(Wanted(parsed(unset, "model"), request))
            wanted.append(Wanted(_change(key, literal(value), as_override(key, value)), request))
        elif not _HYDRA.match(request.text) or "hydra.searchpath=" in request.text:
            wanted.append(Wanted(override, request))
    return wanted, findings


def _hidden(key: str, request: Request, value: object) -> Wanted:
    """Returns an override for a secret, which only ``secret`` holds."""
    return Wanted(_change(key, HIDDEN, f"{key}='{HIDDEN}'"), request, secret=str(value))


def value_problem(name: str, value: Any, version: str | None = None, model: str = "") -> Finding | None:
    """Returns the finding on a ``value`` that does not fit the argument ``name``; None if it fits or has an
    interpolation. Without ``version`` it is wrong only if no release accepts it."""
    if has_interpolation(value) or fitting_problem(name, value, version) is None:
        return None
    chosen = settings().release  # read only for the words of a refusal
    usual = chosen.value if chosen else None
    problem = fitting_problem(name, value, version, usual)
    return wrong_value(field_in(name, version or usual), value, problem, version, model) if problem else None


def parsed(text: str, key: str) -> Override:
    """Returns ``text`` read by Hydra's grammar. Raises Refused, with ``key``, if it cannot be read."""
    simple = _simple(text)
    if simple is not None:
        return simple
    if depth_of(_QUOTED.sub("", text)) > DEPTH:
        raise unreadable(text, key, RecursionError())
    from hydra.errors import HydraException

    try:
        return _parser().parse_override(text)
    except (HydraException, ValueError, RecursionError) as failure:
        raise unreadable(text, key, failure) from None


def _simple(text: str) -> Override | None:
    """Returns the override for a key with a number or a name, as Hydra's grammar would, but thirty times faster; None
    for anything else."""
    match = _SIMPLE.fullmatch(text)
    if match is None or match["value"].lower() in _SPECIAL_WORDS:
        return None
    from hydra.core.override_parser.types import Override, OverrideType, ValueType

    kind = {"": OverrideType.CHANGE, "+": OverrideType.ADD, "++": OverrideType.FORCE_ADD}[match["prefix"]]
    value = match["value"] if match["name"] else float(match["value"]) if match["point"] else int(match["value"])
    return Override(kind, match["key"], ValueType.ELEMENT, value, input_line=text)


@lru_cache(maxsize=1)
def _parser() -> OverridesParser:
    """Returns Hydra's parser. It has no state, and making it takes longer than using it."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create()


def _placed(finding: Finding, request: Request) -> Finding:
    """Returns a finding with its place in front if it comes from a file, and with the typed words if it was typed."""
    if request.layer == "cli":
        return replace(finding, typed=request.words or (request.text,))
    return replace(finding, message=f"{request.place}: {finding.message}")


def _read(request: Request, known: Known) -> list[Wanted]:
    text = request.text
    if _HYDRA.match(text):
        # ``hydra.searchpath`` matters for every verb; only @hydra.main reads the rest of the node.
        return [Wanted(parsed(text, "hydra"), request)] if "hydra.searchpath=" in text else []
    match = _KEY.match(text)
    if match is None or (match["value"] is None and match["prefix"] != "~") or request.words:
        from sglang_hydra.compose.unknown_words import no_override

        raise no_override(text, known)
    prefix, key, value = match["prefix"], match["key"], match["value"]
    group, _, package = key.partition("@")
    name, _, rest = key.partition(".")
    options = known.options(group) if "." not in group else ()
    if (options or (name in EVERY and not _is_text(EVERY[name]))) and (several := several_overrides(text)) is not None:
        raise several
    if options and not (value or "").startswith("{"):
        inner, slash, option = unquoted(value or "").rpartition("/")
        if slash and option in known.options(f"{group}/{inner}"):
            options = [*options, f"{inner}/{option}"]
        return _read_group(request, prefix, key, value, options)
    if package:
        raise Refused("CLI006", f"{group!r} is not a config group", group, hint=f"{program()} --help lists them")
    if value is None or prefix == "~":
        if name in EVERY or name in NODES or known.is_own_key(name):
            raise not_deletable(key)
        from sglang_hydra.compose.unknown_words import unknown_key

        raise unknown_key("", key)
    if name in EVERY and not rest:
        return _read_field(request, name, value, known)
    if name == "extra" and (own := canonical_name(rest)):  # as earlier versions spelled it
        return _read_field(request, own, value, known)
    _refuse_choice_below(request, key, value, known)
    if name in NODES:
        return _read_node(request, key, value)
    if known.is_own_key(name):
        return [Wanted(parsed(text, key), request)]
    if own := "" if rest else canonical_name(name):
        return _read_field(request, own, value, known)
    from sglang_hydra.compose.unknown_words import unknown_key

    raise unknown_key(prefix, key, value, known)


def _read_typed(request: Request, key: str, known: Known) -> list[Wanted]:
    """Returns the override for an already typed value; a choice of a group is read like a typed word."""
    name, _, rest = key.partition(".")
    value = request.value if request.interpolate else literal(request.value)
    if request.interpolate and key in _PATH_FIELDS and isinstance(value, str):
        value = _expanded(value)
    if name in EVERY and not rest:
        if (size := count_at(name, value)) is not None:
            return [Wanted(_change(name, size, f"{name}={size}"), _with_size(request, value))]
        value = "null" if value is None and _has_word_null(EVERY[name]) else value
        if (problem := value_problem(name, value, known.release)) is not None:
            raise Refused.by(problem)
        if EVERY[name].arg.secret and value is not None and not has_interpolation(value):
            return [_hidden(name, request, request.value)]
        return [Wanted(_change(name, value, request.text), request)]
    if known.options(key) and not isinstance(value, dict):
        return _read(request._replace(text=f"{key}={'null' if value is None else value}", key=None), known)
    own = canonical_name(rest if name == "extra" else key)
    if own is not None:
        return _read_typed(request._replace(key=own), own, known)
    _refuse_choice_below(request, key, value, known)
    if name in NODES:
        is_wrong = isinstance(value, str) and any(problems_at(key.split("."), value))
        if is_wrong and (size := count_at(key, value)) is not None:
            return [_node_change(_with_size(request, value), key, size)]
        return [_node_change(request, key, value)]
    if isinstance(value, dict) and (
        inner := next((one for one in map(str, value) if one.replace("-", "_") in {*EVERY, *NODES}), None)
    ):
        message = f"{key!r} is neither an argument of SGLang nor a config group"
        raise Refused("CLI001", message, key, hint=f"{inner} and what is beside it, without {key} around them")
    from sglang_hydra.compose.unknown_words import unknown_key

    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    raise unknown_key("", key, text if text.startswith("--") else None)


def _refuse_choice_below(request: Request, key: str, value: object, known: Known) -> None:
    """Raises Refused for the option of a group that was given to a key below it: ``gpu.name=h100``. A record may hold
    the name beside its choice."""
    name, _, rest = key.partition(".")
    options = known.options(name) if rest in _OF_A_CHOICE and isinstance(value, str) else ()
    if value not in options or known.typed.get(name) == value or (name in known.typed and not request.is_word):
        return
    fix = None if name in known.typed else f"{name}={value}"
    hint = None if fix else f"{name}={value} in place of {name}={known.typed[name]}"
    raise Refused("CLI004", f"{key} names no choice, {name} does", key, fix=fix, hint=hint)


def _read_group(request: Request, prefix: str, key: str, value: str | None, options: Sequence[str]) -> list[Wanted]:
    group, _, package = key.partition("@")
    if prefix == "+" and package == "_global_" and group in NODES:
        message = f"{short(request.text)}: {group} chooses an option, and is added to nothing"
        raise Refused("CLI004", message, group, fix=f"{group}={value}")
    if prefix == "~":
        return [Wanted(parsed(request.text, group), request)]
    choice = unquoted(value or "")
    if group == "model" and re.fullmatch(r"[\w-][\w.-]*/[\w.-]+/", choice) and not os.path.isdir(choice):
        choice = choice[:-1]  # a repository of the hub
    path = _expanded(choice)
    refuse_file_of_model(group, choice)
    if group == "model" and (page := hub_page(choice)) is not None:
        set_on_it = {"model_path": page[0], **({"revision": page[1]} if page[1] else {})}
        words = [Wanted(_change(name, item, as_override(name, item)), request) for name, item in set_on_it.items()]
        return [Wanted(parsed("model=unset", group), request), *words]
    if group == "model" and choice not in options and "${" not in choice and ("/" in choice or os.path.exists(path)):
        model_path = _change("model_path", literal(path), as_override("model_path", path))
        return [Wanted(parsed("model=unset", group), request), Wanted(model_path, request)]
    if value == "" and request.is_word and group == "model":
        message = "model= has no value: a variable of the shell in it may be empty"
        hint = "such as model=llama_3_1_8b; model=null chooses none"
        raise Refused("CLI004", message, group, hint=hint)
    if choice in ("null", "None", "none", "") and choice not in options:
        choice = NO_CHOICE.get(group, "null")
    if choice not in options and choice != "null" and "${" not in choice:
        from sglang_hydra.compose.unknown_words import unknown_option

        raise unknown_option(group, choice, options)
    if group in ADDED_GROUPS and not prefix:
        if choice == "null":
            return []  # nothing is added
        prefix = "+"
    return [Wanted(parsed(f"{prefix}{key}={choice}", group), request)]


def _read_field(request: Request, name: str, value: str, known: Known) -> list[Wanted]:
    field = EVERY[name]
    if field.arg.secret and value not in ("", "null") and not _INTERPOLATION.fullmatch(value):
        return [_hidden(name, request, unquoted(value))]
    if (size := count_at(name, value)) is not None:
        return [Wanted(_change(name, size, f"{name}={size}"), _with_size(request, value))]
    refuse_file_of_model(name, unquoted(value))
    if name == "model_path" and hub_page(unquoted(value)) is not None:
        return _read_group(request._replace(text=f"model={value}"), "", "model", value, ["unset"])[1:]
    if ("," in value and _looks_like_a_sweep(field, value)) or (_is_text(field) and ends_in_a_sign(value)):
        raise several_values(field, request.text, value)
    if _is_text(field) and (not _is_grammar(value) or (value == "null" and _has_word_null(field))):
        path = _expanded(value) if name in _PATH_FIELDS else value
        override = _change(name, path, as_override(name, path))
    else:
        override = parsed(f"{name}={value}", name)
    if override.is_sweep_override():
        raise several_values(field, request.text, value)
    several = override.value()
    if isinstance(several, list) and len(several) > 1 and field.kind in ("int", "float") and not field.is_list:
        raise list_of_values(name, request.text, several)
    model = known.typed.get("model_path") or known.typed.get("model", "")
    if (problem := value_problem(name, override.value(), known.release, model)) is not None:
        raise Refused.by(problem)
    return [Wanted(override, request)]


def _with_size(request: Request, typed: str) -> Request:
    """Returns ``request`` with both meanings of a size suffix (the number read and the other one) in its place."""
    return request._replace(place=f"{request.place} ({both_sizes(typed)})")


def _read_node(request: Request, key: str, value: str) -> list[Wanted]:
    if key == "ignore" and value[:1] not in ("[", "$"):
        value = f"[{value}]"
    if key == "sweep.where" and value != "null" and "${" not in value:
        inner = unquoted(value)  # quotes around its first and last word are its own
        return [_node_change(request, key, value if value[:1] in inner else inner)]
    if is_text(key.split(".")) and not _is_grammar(value):
        return [_node_change(request, key, value)]
    if (size := count_at(key, value)) is not None:
        return [_node_change(_with_size(request, value), key, size)]
    override = parsed(f"{key}={value}", key)
    if override.is_sweep_override():
        raise several_values(None, request.text, value)
    return [_node_change(request, key, override.value())]


def _node_change(request: Request, key: str, value: Any) -> Wanted:
    problem = next(problems_at(key.split("."), value), None)
    is_one = key in _ONE_OF_ANY or any(not one.unknown for one in problems_at(key.split("."), []))
    if is_one and isinstance(value, list):
        raise list_of_values(key, request.text, value)
    if problem:
        id = "CLI001" if problem.unknown else "CLI002"
        typed = request.text.partition("=")[2]
        if (problem.near or "").endswith("_mib") and is_digits(typed) and int(typed) < 2048:
            typed = str(int(typed) * 1024)  # GiB
        below = key.removeprefix(problem.key)  # topology.prefil.count
        fix = word(f"{problem.near}{below}", typed) if problem.near and request.is_word else None
        fix = word("bench/workload", typed) if key == "bench.workload" else fix
        node, _, rest = key.partition(".")
        meant = key_meant(rest) or key_meant(key.replace(".", "_")) or ""  # bench.rate, gpu.memory_utilization
        _, tool, name, *_ = (*(problem.near or key).split("."), "", "")  # launch.slurm.time, launch.gpus
        name = name if name in OF_TOOLS.get(tool, {}) else name.replace("_", "-")
        fix = None if (tool, name) in LEFT_TO_TOOLS else fix
        fix = word(OF_TOOLS[tool][name], typed) if id == "CLI001" and name in OF_TOOLS.get(tool, {}) else fix
        if fix is None and id == "CLI001" and (meant.startswith(f"{node}.") or meant in EVERY):
            fix = word(meant, typed)
        fix = word(key, problem.value) if problem.value and problem.key == key else fix
        said = LEFT_TO_TOOLS.get((tool, name)) or (problem.finding().remedies if fix is None else problem.hint)
        raise Refused(id, problem.message, key, fix=fix, hint=said)
    shown = masked(key.rpartition(".")[2], value)
    try:
        text = written(key, shown)
    except ValueError:
        text = request.text  # a mapping with keys that only a file can spell
    return Wanted(_change(key, value, text), request, secret=str(value) if shown != value else None)


def _change(key: str, value: Any, text: str) -> Override:
    """Returns an override made without the grammar. Hydra's record of a run shows it as ``text``."""
    from hydra.core.override_parser.types import Override, OverrideType, ValueType

    # Any key is allowed below some nodes (model.config.x, extra.x), so it may be new.
    new = key.count(".") > 1 or key.startswith("extra.") or (isinstance(value, dict) and ("." in key or key == "extra"))
    kind = OverrideType.FORCE_ADD if new else OverrideType.CHANGE
    text = f"++{text.lstrip('+')}" if new else text
    return Override(type=kind, key_or_group=key, value_type=ValueType.ELEMENT, _value=value, input_line=text)


def _expanded(path: str) -> str:
    """Returns ``path`` with a leading ~ expanded, if that is possible."""
    try:
        return os.path.expanduser(path)
    except ValueError:  # a zero byte, half a character
        return path


def _is_text(field: Field) -> bool:
    return field.kind == "str" and not field.is_list


def _has_word_null(field: Field) -> bool:
    """Returns whether the word null is a choice of the argument, as for disaggregation_mode."""
    return not field.optional and "null" in (field.arg.choices or ())


def _is_grammar(value: str) -> bool:
    """Returns whether a value is more than its letters: null, quoted or with an interpolation."""
    return value == "null" or "${" in value or unquoted(value) != value


def _looks_like_a_sweep(field: Field, value: str) -> bool:
    if value[0] in "[{'\"" or "${" in value:
        return False
    if not _is_text(field):
        return True
    choices = field.arg.choices
    return choices is not None and all(part.strip() in choices for part in value.split(","))
