"""Reads the user's settings: what untrusted files may do, and the preferred release. Sources are one file, variables,
flags.

Nothing is read until a decision needs it. Checked files cannot redirect the settings: only variables from the start of
this process count."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import json_beside
from sglang_hydra.text.whole_file import draft
from sglang_hydra.text.words import nearest

FILE_VARIABLE = "SGLANG_HYDRA_SETTINGS"
"""The variable with the path of the settings file; empty means no file."""
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")
_MOST_BYTES = 1 << 20
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")
_RELEASE = re.compile(r"[0-9]+(\.[0-9]+)+([a-z.+-]*[0-9a-z]+)*")
_PRICE = re.compile(r"[a-z][a-z0-9_]*=[0-9]{1,9}(\.[0-9]{1,9})?")
_RELEASE_LINE = re.compile(r"release\s*:")


class Key(NamedTuple):
    """One key of the settings: the equivalent variable, the equivalent flag or command, and the meaning."""

    variable: str
    flag: str
    is_list: bool
    about: str


KEYS: Mapping[str, Key] = {name: Key(**row) for name, row in json_beside(__file__).items()}
"""All keys in the order of the documentation."""


class Allowed(NamedTuple):
    """One value that the user set, and the place where it was set."""

    value: str
    place: str


class Settings(NamedTuple):
    """The user's settings. ``trusted_folders`` are absolute, with links resolved. ``hub_token`` and ``fetch`` are None
    where unset: then the token is not used, and the hub is asked. ``release`` is a version of SGLang. ``price`` holds
    prices of GPU classes (``h200=3.5``), ``results`` the folders of sweeps."""

    trusted_folders: tuple[Allowed, ...] = ()
    allowed_env: tuple[Allowed, ...] = ()
    hub_token: Allowed | None = None
    fetch: Allowed | None = None
    release: Allowed | None = None
    price: tuple[Allowed, ...] = ()
    results: tuple[Allowed, ...] = ()

    def price_of(self, gpu: str) -> float | None:
        """Returns the price of one GPU hour of this class, or None where it is unset."""
        given = dict(item.value.split("=", 1) for item in reversed(self.price))
        return float(given[gpu]) if gpu in given else None

    def trusts(self, path: str) -> Allowed | None:
        """Returns the trusted folder that contains ``path``, with links resolved; else None."""
        real = os.path.realpath(path)
        return next((folder for folder in self.trusted_folders if _is_below(real, folder.value)), None)

    def allows_variable(self, name: str) -> Allowed | None:
        """Returns the setting that allows files to read the environment variable ``name``, or None."""
        return next((item for item in self.allowed_env if fnmatch.fnmatchcase(name, item.value)), None)

    @property
    def may_use_token(self) -> bool:
        """Returns whether a file's model is looked up with the user's token."""
        return self.hub_token is not None and self.hub_token.value == "true"

    @property
    def may_fetch(self) -> bool:
        """Returns whether a file's model is looked up on the hub at all."""
        return self.fetch is None or self.fetch.value == "true"


@dataclass(repr=False, eq=False)
class _Sources:
    """The sources of the settings: this process's environment at the start, and the flags."""

    environment: dict[str, str] = field(default_factory=dict)
    flags: dict[str, list[str]] = field(default_factory=dict)
    settings: Settings | None = None


_VARIABLES = (FILE_VARIABLE, "XDG_CONFIG_HOME", "HOME", *(key.variable for key in KEYS.values()))
_sources = _Sources({name: os.environ[name] for name in _VARIABLES if name in os.environ})


def begin(flags: Mapping[str, Sequence[str]] | None = None) -> None:
    """Takes the typed flags (``trusted_folders: [...]``) and the current environment; reads no file yet.

    The flags are also set as variables, so that child processes get them."""
    global _sources
    _sources = _Sources(
        {name: os.environ[name] for name in _VARIABLES if name in os.environ},
        {key: list(values) for key, values in (flags or {}).items() if values},
    )
    for key, values in _sources.flags.items():
        name = KEYS[key].variable
        before = os.environ.get(name) if KEYS[key].is_list else None
        os.environ[name] = _SEPARATORS.get(key, ",").join([*values, before] if before else values)


def settings() -> Settings:
    """Returns the settings, read at the first call. Raises ConfigError (SET001) for wrong settings."""
    if _sources.settings is None:
        _sources.settings = _read(_sources.environment, _sources.flags)
    return _sources.settings


def settings_file(env: Mapping[str, str]) -> str | None:
    """Returns the path of the settings file under the environment ``env``; None if its variable is empty."""
    if FILE_VARIABLE in env:
        named = env[FILE_VARIABLE]
        return os.path.abspath(os.path.expanduser(named)) if named else None
    home = env.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(home):  # the XDG specification ignores relative paths
        home = os.path.join(env.get("HOME") or os.path.expanduser("~"), ".config")
    return os.path.join(home, "sglang_hydra", "settings.yaml")


def settings_folder() -> str | None:
    """Returns the folder of the settings file under the environment at the start; None without a settings file."""
    file = settings_file(_sources.environment)
    return None if file is None else os.path.dirname(file)


def use_release(version: str | None) -> str:
    """Writes the preferred release into the settings file, or removes it (None); other lines stay. Returns the path.
    Raises ConfigError (SET001) without a settings file, or where the new file would be invalid or cannot be written."""
    file = settings_file(_sources.environment)
    if file is None:
        raise ConfigError(_wrong(f"{FILE_VARIABLE} is empty: there is no file to write"))
    before = Path(file).read_text(encoding="utf-8") if os.path.exists(file) else ""
    kept = [line for line in before.splitlines() if not _RELEASE_LINE.match(line)]
    made = "".join(f"{line}\n" for line in [*kept, *([] if version is None else [f"release: {version}"])])
    try:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with draft(Path(file), made) as written:
            _read({FILE_VARIABLE: str(written)}, {})
            written.replace(file)
    except OSError as failure:
        raise ConfigError(_wrong(f"{file} cannot be written: {failure.strerror}")) from failure
    _sources.settings = None
    return file


_SEPARATORS = {"trusted_folders": os.pathsep, "results": os.pathsep}
"""The separators of several values in a variable; the default is a comma."""


def _read(env: Mapping[str, str], flags: Mapping[str, Sequence[str]]) -> Settings:
    findings: list[Finding] = []
    given: dict[str, list[Allowed]] = {key: [] for key in KEYS}
    for key, values in flags.items():
        given[key] += [Allowed(value, KEYS[key].flag.partition(" ")[0]) for value in values]
    for name, (variable, _, is_list, _) in KEYS.items():
        if env.get(variable):
            parts = env[variable].split(_SEPARATORS.get(name, ",")) if is_list else [env[variable]]
            given[name] += [Allowed(part.strip(), variable) for part in parts if part.strip()]
    file = settings_file(env)
    if file is not None:
        for name, item in _in_file(file, FILE_VARIABLE in env, findings):
            given[name].append(item)
    read = Settings(
        trusted_folders=tuple(_folders(given["trusted_folders"], findings)),
        allowed_env=_fitting(given["allowed_env"], _VARIABLE, "variable's name", "MY_NAME, or MY_*", findings),
        hub_token=_switch("hub_token", given["hub_token"], findings),
        fetch=_switch("fetch", given["fetch"], findings),
        release=_version(given["release"], findings),
        price=_fitting(given["price"], _PRICE, "GPU class and price", "h200=3.5", findings),
        results=tuple(Allowed(os.path.expanduser(item.value), item.place) for item in given["results"]),
    )
    if findings:
        raise ConfigError(*findings)
    return read


def _in_file(file: str, is_named: bool, findings: list[Finding]) -> Iterator[tuple[str, Allowed]]:
    """Yields the keys and values of the settings file, each with its line. A missing file yields nothing; it is a
    finding only where the variable names it."""
    import yaml

    from sglang_hydra.text.budget import OverBudget, read_yaml
    from sglang_hydra.text.file_text import read_text, reason_of
    from sglang_hydra.text.origins import key_lines

    try:
        if others_can_write(file):
            findings.append(_wrong(f"{file} is not read: others can write it", f"chmod go-w {shlex.quote(file)}"))
            return
        loaded = read_yaml(read_text(file, _MOST_BYTES), "config")
    except FileNotFoundError:
        if is_named:
            findings.append(_wrong(f"{FILE_VARIABLE}={file}: there is no such file"))
        return
    except (OSError, UnicodeError, OverBudget) as failure:
        findings.append(_wrong(f"{file} cannot be read: {reason_of(failure)}"))
        return
    except yaml.YAMLError as failure:
        mark = getattr(failure, "problem_mark", None)
        place = f"{file}:{mark.line + 1}" if mark else file
        findings.append(_wrong(f"{place}: it is no YAML: {getattr(failure, 'problem', None) or failure}"))
        return
    if loaded is None:
        return
    if not isinstance(loaded, Mapping):
        findings.append(_wrong(f"{file}: it holds a {type(loaded).__name__}, not a mapping of keys"))
        return
    lines = key_lines(file)
    for name, value in loaded.items():
        place = f"{file}:{lines.get((str(name),), 1)}"
        if name in KEYS:
            yield from ((name, Allowed(item, place)) for item in _items(str(name), value, place, findings))
        else:
            near = nearest(str(name), KEYS)
            findings.append(_wrong(f"{place}: the settings have no key {str(name)[:60]!r}", near))


def _items(name: str, value: object, place: str, findings: list[Finding]) -> list[str]:
    """Returns a value of the settings file as texts; adds a finding and returns an empty list for a wrong type."""
    if name == "release":
        return [str(value)]
    if not KEYS[name].is_list:
        if isinstance(value, bool):
            return [str(value).lower()]
        findings.append(_wrong(f"{place}: {name} is true or false, not a {type(value).__name__}", f"{name}: true"))
        return []
    if name == "price" and isinstance(value, Mapping):
        value = [f"{gpu}={price}" for gpu, price in value.items()]
    listed = [value] if isinstance(value, str) else value
    if isinstance(listed, list) and all(isinstance(item, str) and item and "\0" not in item for item in listed):
        if name == "trusted_folders" and (
            near := next((item for item in listed if not os.path.isabs(os.path.expanduser(item))), None)
        ):
            findings.append(_wrong(f"{place}: {name} are absolute or begin with ~, and {near[:100]!r} does not"))
            return []
        return listed
    findings.append(_wrong(f"{place}: {name} is a list of texts", f"{name}: [...]"))
    return []


def _folders(given: Sequence[Allowed], findings: list[Finding]) -> Iterator[Allowed]:
    for item in given:
        folder = os.path.realpath(os.path.expanduser(item.value)) if "\0" not in item.value else ""
        if not os.path.isdir(folder):
            findings.append(_wrong(f"{item.place}: {item.value[:200]} is no folder here"))
        elif folder == os.path.sep:
            findings.append(_wrong(f"{item.place}: the whole file system is no folder to trust"))
        else:
            yield Allowed(folder, item.place)


def _fitting(
    given: Sequence[Allowed], form: re.Pattern[str], what: str, near: str, findings: list[Finding]
) -> tuple[Allowed, ...]:
    """Returns the values of a form; adds a finding for each other one."""
    wrong = [item for item in given if not form.fullmatch(item.value)]
    findings += [_wrong(f"{item.place}: {item.value[:100]!r} is no {what}", near) for item in wrong]
    return tuple(item for item in given if item not in wrong)


def _switch(name: str, given: Sequence[Allowed], findings: list[Finding]) -> Allowed | None:
    """Returns the first given value, true or false: a flag comes before the variable, the variable before the file."""
    if not given:
        return None
    value = given[0].value.lower()
    if value not in (*_TRUE, *_FALSE):
        findings.append(_wrong(f"{given[0].place}={given[0].value[:100]} is neither true nor false"))
        return None
    return Allowed("true" if value in _TRUE else "false", given[0].place)


def _version(given: Sequence[Allowed], findings: list[Finding]) -> Allowed | None:
    """Returns the first given release: the variable comes before the file."""
    if given and not _RELEASE.fullmatch(given[0].value):
        findings.append(_wrong(f"{given[0].place}={given[0].value[:100]} is no version of SGLang"))
    return given[0] if given else None


def others_can_write(file: str | os.PathLike[str]) -> bool:
    """Returns whether another user owns a regular file, or group or others can write it. Raises OSError."""
    state = os.stat(file)
    is_others = state.st_uid not in (os.getuid(), 0) or bool(state.st_mode & 0o022)
    return stat.S_ISREG(state.st_mode) and is_others


def _wrong(message: str, near: str | None = None) -> Finding:
    hint = f"{near}. " if near and " " in near else f"did you mean {near}? " if near else ""
    return Finding("error", "SET001", message, hint=f"{hint}The keys are {', '.join(KEYS)}: docs/security.md")


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.path.sep) + os.path.sep)
