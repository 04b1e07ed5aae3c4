"""Reads what was typed: catches what Hydra's grammar would refuse with a riddle, and says what to type instead.

Every token is judged on its own, so that all mistakes of a command line are reported at once.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from sglang_hydra.config import NODES, Root
from sglang_hydra.fields import FIELDS, Field
from sglang_hydra.fields.check import check_json, check_value
from sglang_hydra.findings import Finding

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

API_KEY_VARIABLE = "SGLANG_HYDRA_API_KEY"
API_KEY_REFERENCE = "${oc.env:" + API_KEY_VARIABLE + "}"

# Hydra groups that an app adds with `+`; typing `experiment=x` means the same here.
_ADDED_GROUPS = ("experiment", "recipe")
_PATH_FIELDS = ("model_path", "tokenizer_path", "download_dir", "chat_template", "speculative_draft_model_path")
_KEY = re.compile(r"^(?P<prefix>\+{0,2}|~)(?P<key>[A-Za-z_][\w./-]*(?:@[\w.:-]*)?)(?:=(?P<value>.*))?$", re.DOTALL)


@dataclass(frozen=True)
class Request:
    """One override as it was given: its text, where it stood, and the layer that it belongs to."""

    text: str
    place: str
    layer: str = "cli"


@dataclass(frozen=True)
class Wanted:
    """A request that Hydra will understand. ``secret`` is the API key that the text stood for, kept in memory."""

    override: Override
    request: Request
    secret: str | None = None


class _Refused(Exception):
    def __init__(self, id: str, message: str, *fields: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.finding = Finding(level="error", id=id, message=message, fields=fields, hint=hint, stage="plan")


def read_requests(
    requests: Iterable[Request],
    *,
    group_options: Callable[[str], Sequence[str]],
    sweep: bool = False,
) -> tuple[list[Wanted], list[Finding]]:
    """Turns what was typed into overrides that Hydra accepts, or into findings.

    ``group_options`` gives the options of a config group, an empty sequence for what is no group. With ``sweep``
    (``-m``) a comma separates the points of a sweep; without it that is reported as a forgotten ``-m``.
    """
    wanted: list[Wanted] = []
    findings: list[Finding] = []
    for request in requests:
        try:
            wanted.extend(_read(request, group_options, sweep))
        except _Refused as refused:
            findings.append(refused.finding)
    return wanted, findings


def quoted(text: str) -> str:
    """``text`` as a quoted value of Hydra's override grammar, so that it comes out as the very same string."""
    escaped = re.sub(r"(\\*)'", lambda run: run.group(1) * 2 + "\\'", text)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return "'" + escaped + "\\" * trailing + "'"


def as_override(key: str, value: Any) -> str:
    """``key=value`` in Hydra's grammar for any value of plain types: the way from typed values back to text."""
    return f"{key}={_literal(value)}"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant: ignoring case and separators first, then by similarity."""
    candidates = list(names)
    flat = {re.sub(r"[\W_]", "", candidate).lower(): candidate for candidate in candidates}
    wanted = re.sub(r"[\W_]", "", name).lower()
    if wanted in flat:
        return flat[wanted]
    close = difflib.get_close_matches(wanted, flat, n=1)
    return flat[close[0]] if close else None


def _literal(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value) if isinstance(value, (set, frozenset)) else value
        return "[" + ",".join(_literal(item) for item in items) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{quoted(str(key))}:{_literal(item)}" for key, item in value.items()) + "}"
    return quoted(str(value))


def _read(request: Request, group_options: Callable[[str], Sequence[str]], sweep: bool) -> list[Wanted]:
    match = _KEY.match(request.text)
    if match is None or (match["value"] is None and match["prefix"] != "~"):
        raise _not_an_override(request.text, group_options)
    prefix, key, value = match["prefix"], match["key"], match["value"]
    if key == "hydra" or key.startswith(("hydra.", "hydra/")):
        return []
    group, _, package = key.partition("@")
    options = group_options(group)
    if options and "." not in key and not (prefix == "" and value is not None and value.startswith("{")):
        return _read_group(request, prefix, group, value, options, sweep)
    if package:
        raise _Refused("CLI006", f"{group!r} is not a config group", group, hint="python serve.py --help lists them")
    if "/" in key:
        raise _unknown_key(key, group_options)
    if prefix == "~":
        raise _Refused(
            "CLI005", f"{request.text}: an argument cannot be deleted", key, hint=f"{key}=null leaves it unset"
        )
    assert value is not None
    name, _, rest = key.partition(".")
    if name in FIELDS and not rest:
        return [_read_field(request, name, value, sweep)]
    if name in NODES:
        return [_read_node(request, prefix, key, value)]
    if prefix:
        return [Wanted(_parse(f"{prefix}{key}={value}", key), request)]
    raise _unknown_key(key, group_options)


def _read_group(
    request: Request, prefix: str, group: str, value: str | None, options: Sequence[str], sweep: bool
) -> list[Wanted]:
    if prefix == "~":
        return [Wanted(_parse(request.text, group), request)]
    value = (value or "").strip("'\"") if "$" not in (value or "") else value or ""
    if group == "model" and ("/" in value or os.path.exists(value)) and value not in options:
        path = os.path.expanduser(value)
        return [
            Wanted(_parse("model=unset", group), request),
            Wanted(_parse(f"model_path={quoted(path)}", group), request),
        ]
    if value in ("null", "None", "none", "") and "none" not in options:
        value = {"model": "unset", "engine": "auto", "launch": "local"}.get(group, "null")
    elif value in ("null", "None"):
        value = "none"
    parts = [part.strip() for part in value.split(",")] if sweep else [value]
    for part in parts:
        if part not in options and part != "null" and not re.search(r"[$(*\[]", part):
            raise _unknown_option(group, part, options)
    if group in _ADDED_GROUPS and not prefix:
        prefix = "+"
    return [Wanted(_parse(f"{prefix}{group}={value}", group), request)]


def _read_field(request: Request, name: str, value: str, sweep: bool) -> Wanted:
    field = FIELDS[name]
    if field.arg.secret and value and value != "null" and not value.startswith("${"):
        return Wanted(_parse(f"{name}='***'", name), request, secret=_unquoted(value))
    if not sweep and "," in value and _looks_like_a_sweep(name, value):
        raise _Refused(
            "CLI007",
            f"{request.text}: {name} takes one value, and several were given",
            name,
            hint=f"to sweep over them add -m: bench -m {request.text}",
        )
    if _is_text(field) and not sweep and not _is_grammar(value):
        if name in _PATH_FIELDS:
            value = os.path.expanduser(value)
        value = quoted(value)
    override = _parse(f"{name}={value}", name)
    if override.is_sweep_override():
        if not sweep:
            raise _Refused(
                "CLI007",
                f"{request.text}: this asks for several runs",
                name,
                hint=f"add -m to sweep: bench -m {request.text}",
            )
        return Wanted(override, request)
    typed = override.value()
    if not (isinstance(typed, str) and "${" in typed):
        problem = check_value(name, typed)
        if problem is None and field.arg.json and isinstance(typed, str) and typed[:1] not in ("", "/", "."):
            problem = check_json(name, typed)
        if problem:
            raise _Refused("CLI002", problem, name, hint=_type_hint(name))
    return Wanted(override, request)


def _read_node(request: Request, prefix: str, key: str, value: str) -> Wanted:
    path = key.split(".")
    schema: Any = Root
    for depth, name in enumerate(path):
        if not is_dataclass(schema):
            break
        known = {item.name: item.type for item in fields(schema)}
        if name not in known:
            where = ".".join(path[:depth])
            near = nearest(name, known)
            raise _Refused(
                "CLI001",
                f"{where} has no key {name!r}; it has {', '.join(known)}",
                key,
                hint=f"did you mean {where}.{near}?" if near else None,
            )
        schema = known[name]
    else:
        if schema in (str, str | None) and not _is_grammar(value):
            value = quoted(value)
    if len(path) > 2 and not prefix:
        prefix = "++"  # below a node the keys are free (model.config.x, model.args.x)
    return Wanted(_parse(f"{prefix}{key}={value}", key), request)


def _parse(text: str, key: str) -> Override:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as failure:
        value = text.partition("=")[2]
        raise _Refused(
            "CLI003",
            f"{text}: the value cannot be read ({str(failure).splitlines()[0]})",
            key,
            hint=f"quote it: \"{key}='{value}'\"; a list is {key}=[1,2]",
        ) from None


def _is_text(field: Field) -> bool:
    return field.kind == "str" and not field.is_list


def _is_grammar(value: str) -> bool:
    """True for a value that means more than its own letters: quoted, an interpolation, null."""
    return value == "null" or "${" in value or (len(value) > 1 and value[0] in "'\"" and value[-1] == value[0])


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] in "'\"" and value[-1] == value[0] else value


def _looks_like_a_sweep(name: str, value: str) -> bool:
    field = FIELDS[name]
    if value[0] in "[{'\"":
        return False
    if not _is_text(field):
        return True
    choices = field.arg.choices
    return choices is not None and all(part.strip() in choices for part in value.split(","))


def _type_hint(name: str) -> str:
    choices = FIELDS[name].arg.choices
    if choices:
        return f"{name}=" + "|".join(str(choice) for choice in choices)
    return f"python serve.py --help {name} says what it takes"


def _not_an_override(text: str, group_options: Callable[[str], Sequence[str]]) -> _Refused:
    flag = text.lstrip("-").partition("=")
    name = flag[0].replace("-", "_")
    if text.startswith("-"):
        known = nearest(name, FIELDS)
        spelled = f"{known}={flag[2] or '...'}" if known else "key=value"
        return _Refused(
            "CLI004",
            f"{text}: arguments are typed as key=value here, without dashes",
            *([known] if known else []),
            hint=f"{spelled}; SGLang's own flags go after a bare --: python serve.py -- --model-path ...",
        )
    for group in ("model", "gpu", "engine"):
        if text in group_options(group):
            return _Refused("CLI004", f"{text!r} is no key=value", group, hint=f"did you mean {group}={text}?")
    if text in FIELDS:
        field = FIELDS[text]
        return _Refused(
            "CLI004",
            f"{text!r} has no value",
            text,
            hint=f"{text}=true" if field.is_flag else f"{text}=VALUE",
        )
    return _Refused("CLI004", f"{text!r} is no key=value", hint="a verb comes first; python serve.py --help")


def _unknown_key(key: str, group_options: Callable[[str], Sequence[str]]) -> _Refused:
    known = [*FIELDS, *NODES, *_ADDED_GROUPS]
    near = nearest(key, known)
    return _Refused(
        "CLI001",
        f"{key!r} is neither an argument of SGLang 0.5.2 nor a config group",
        key,
        hint=f"did you mean {near}?" if near else "python serve.py --help WORD finds arguments",
    )


def _unknown_option(group: str, value: str, options: Sequence[str]) -> _Refused:
    near = nearest(value, options)
    listed = ", ".join(options)
    hint = f"did you mean {group}={near}?" if near else None
    if group == "model":
        hint = (hint + " " if hint else "") + "Another model: model=org/name, model=./folder"
    return _Refused("CLI006", f"{group}={value} does not exist; {group} can be: {listed}", group, hint=hint)
