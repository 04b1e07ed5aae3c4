"""What was typed, taken apart: the verb, overrides, flags."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sglang_hydra.compose.overrides import Request
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.flags import BY_NAME, BY_VALUE, FLAGS, HYDRA_FLAGS, VALUED_HYDRA_FLAGS, VERBS, Flag
from sglang_hydra.text.words import nearest, short

_PATHS = ("output", "base", "against")


@dataclass
class Invocation:
    """What was typed, taken apart. ``named``: the verb was typed, not the default. ``argv`` is what stood after a bare
    ``--``: SGLang's own flags. ``file`` is the experiment whose requests were taken in. ``hydra``: a flag that only
    Hydra reads was typed. Each flag of the table is an attribute, named by its ``sets``: a switch is true or false, a
    value text or None. Those whose values are collected in a list are fields here; ``given`` has the others."""

    verb: str = "serve"
    named: bool = False
    requests: list[Request] = field(default_factory=list)
    argv: list[str] | None = None
    file: str | None = None
    hydra: bool = False
    config_dirs: list[str] = field(default_factory=list)
    trusted_folders: list[str] = field(default_factory=list)
    allowed_env: list[str] = field(default_factory=list)
    given: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        if name not in BY_VALUE:
            raise AttributeError(f"no flag sets {name!r}")
        return self.given.get(name, None if BY_VALUE[name].value else False)

    @property
    def allowed(self) -> dict[str, list[str]]:
        """The flags that say what files of others may do, by the keys of the settings."""
        return {
            "trusted_folders": self.trusted_folders,
            "allowed_env": self.allowed_env,
            "hub_token": ["true"] if self.hub_token else [],
            "fetch": ["false"] if self.no_fetch else [],
        }


def read_invocation(words: Sequence[str]) -> Invocation:
    """Takes a command line apart. Raises ConfigError for an unknown verb or a flag without its value."""
    invocation = Invocation()
    words = list(words)
    if "--" in words:
        cut = words.index("--")
        words, invocation.argv = words[:cut], words[cut + 1 :]
    verb: str | None = None
    rest = list(enumerate(words, 1))
    while rest:
        position, word = rest.pop(0)
        name, has_value, value = word.partition("=")
        flag = BY_NAME.get(name)
        if flag is not None and flag.value:
            if not has_value:
                value = rest.pop(0)[1] if rest else _lacks_value(name, flag)
            _take_value(invocation, flag, name, value)
        elif flag is not None and not has_value:
            invocation.given[flag.sets] = True
        elif name in HYDRA_FLAGS:
            invocation.hydra = True
            if name in VALUED_HYDRA_FLAGS and not has_value and rest:
                rest.pop(0)
        elif verb is None and not invocation.requests and not invocation.help and _is_bare(word) and not _is_file(word):
            verb = word
        elif word:
            invocation.requests.append(Request(word, f"argument {position}"))
    if verb == "help":
        invocation.given["help"] = True
    elif verb is not None and verb not in VERBS:
        raise _unknown_verb(verb)
    elif verb is not None:
        invocation.verb, invocation.named = verb, True
    return invocation


def _take_value(invocation: Invocation, flag: Flag, typed: str, value: str) -> None:
    if flag.sets == "config_dirs":
        invocation.config_dirs.append(_existing_folder(typed, os.path.expanduser(value)))
    elif flag.sets == "config_name":
        invocation.given["config_name"] = value.removesuffix(".yaml")
    elif flag.sets == "trusted_folders":
        invocation.trusted_folders.append(os.path.abspath(_existing_folder(typed, os.path.expanduser(value))))
    elif flag.sets == "allowed_env":
        invocation.allowed_env += filter(None, value.split(","))
    else:
        # No shell expands the ~ of --output=~/plan.yaml.
        invocation.given[flag.sets] = os.path.expanduser(value) if flag.sets in _PATHS else value


def _is_bare(word: str) -> bool:
    return bool(word) and not word.startswith("-") and "=" not in word


def _is_file(word: str) -> bool:
    return word.endswith((".yaml", ".yml", ".json"))


def _lacks_value(typed: str, flag: Flag) -> str:
    raise ConfigError(Finding("error", "CLI012", f"{typed} needs a value", hint=f"{typed} {flag.value}"))


def _unknown_verb(word: str) -> ConfigError:
    near = nearest(word, [*VERBS, *(flag.names[0] for flag in FLAGS)])
    hint = f"did you mean {near}? " if near else ""
    return ConfigError(
        Finding(
            "error",
            "CLI014",
            f"{short(word)!r} is no verb; the verbs are {', '.join(VERBS)}",
            hint=f"{hint}Values are typed as key=value: model=..., gpu=..., tp_size=8",
        )
    )


def _existing_folder(flag: str, path: str) -> str:
    if not os.path.isdir(path):
        raise ConfigError(Finding("error", "CLI012", f"{flag} {path}: there is no such folder"))
    return path
