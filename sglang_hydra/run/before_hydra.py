"""Checks an app of ours before Hydra composes it, and names the file, line and key of each mistake in YAML files and
overrides. Hydra refuses most of them too, but names only the key, and shows a traceback for invalid YAML.

Two parts work together. ``watch_apps``, which ``sglang_hydra.main`` calls, notes the task, the primary config and the
command line of the app that ``@hydra.main`` starts (compose/hydra_internals.py). The search-path plugin then calls
``check_app`` with the search path of that app. Apps without ``@sglang_hydra.main`` and Hydra's compose API are left to
Hydra. Hydra composes a multirun, ``--cfg`` and ``--info`` first; its refusals go to ``refused_by_hydra``."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import methodcaller
from typing import TYPE_CHECKING, NoReturn

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.hydra_apps import StartingApp
from sglang_hydra.compose.hydra_errors import hydra_errors_as_findings
from sglang_hydra.compose.override_errors import ADDED_GROUPS, Refused
from sglang_hydra.compose.overrides import Request, is_hydras, named_by, parsed
from sglang_hydra.compose.schema import NO_CHOICE, PATH_PROVIDER
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath

_NO_OPTION = re.compile(rf"(?P<key>(?P<group>{'|'.join(NO_CHOICE)})(?:@[\w.]+)?)=(?:null|None)?")
_CHOICE = re.compile(r"(?P<key>(?P<group>[\w/]+)(?:@[\w.]+)?)=[^\s{\[$'\"()]+")
_OF_MODEL = re.compile(r"model(@[\w.]+)?=")
_OTHER_MODES = ("help", "hydra_help", "multirun", "cfg", "info", "shell_completion", "experimental_rerun")
_composers: dict[tuple[str, ...], Composer] = {}
_starting: list[tuple[Composer, list[str]]] = []
"""The composer of the starting app, and its command line."""


def spell_no_choice(words: list[str]) -> None:
    """Replaces ``gpu=null`` and ``gpu@server.gpu=`` by the option that means none, because Hydra fails on null."""
    for position, word in enumerate(words):
        if match := _NO_OPTION.fullmatch(word):
            words[position] = f"{match['key']}={NO_CHOICE[match['group']]}"


def offer_recipes(words: Sequence[str]) -> None:
    """Registers the published recipes among ``words`` with Hydra, which finds no files for them."""
    typed = [word.partition("=")[2] for word in words if word.lstrip("+").startswith("recipe=")]
    if typed:
        from hydra.core.config_store import ConfigStore

        from sglang_hydra.compose.recipes import register

        for id in ",".join(typed).split(","):
            register(id, ConfigStore.instance())


def check_app(search_path: ConfigSearchPath) -> None:
    """Rewrites the overrides of an app of ours for Hydra, and composes a single run ahead of Hydra. Ends the process
    with the findings when that fails."""
    app = _app_of_ours()
    if app is None:
        return
    args, config_name = app.args, str(app.config_name).removesuffix(".yaml")
    folders = [element.path for element in search_path.get_path() if element.provider not in ("hydra", "schema")]
    folders += [f"file://{args.config_dir}"] if args.config_dir else []
    composer = None
    requests: list[Request] = []
    try:
        composer = Composer([str(folder) for folder in folders if folder], config_name, hydra_syntax=True)
        _starting[:] = [(composer, args.overrides)]
        args.overrides[:] = _as_hydra_takes_them(composer, args.overrides)  # Hydra reads this list later
        requests = numbered(args.overrides)
        if any(getattr(args, flag, True) for flag in _OTHER_MODES) or any(_sweeps(text) for text in args.overrides):
            return
        composer.compose(requests)
    except ConfigError as failure:
        if any(getattr(args, flag, True) for flag in _OTHER_MODES) or _needs_the_run(failure):
            return
        _end_with(failure, composer, requests)
    _composers[_key(config_name, args.overrides)] = composer


def _end_with(failure: ConfigError, composer: Composer | None, requests: Sequence[Request]) -> NoReturn:
    from sglang_hydra.planning.making.make import with_offers
    from sglang_hydra.show.findings import finding_lines
    from sglang_hydra.text.screen import write

    findings = (with_offers(failure, composer, requests) if composer else failure).findings
    write(finding_lines([as_typed(finding, requests) for finding in findings]), sys.stderr)
    raise SystemExit(failure.exit_code) from None


def refused_by_hydra(failure: Exception, words: Sequence[str] | None) -> None:
    """Ends the process with findings when a job refused its plan or Hydra cannot compose these overrides. In the second
    case it shows the findings of a single run, or else Hydra's message. Returns for an error of the task itself."""
    if not _starting:
        return
    composer, typed = _starting[0]
    if isinstance(failure, ConfigError):
        _end_with(failure, None, [])
    if words is None or not isinstance(failure, (HydraException, OmegaConfBaseException, YAMLError)):
        return
    places = {named_by(word): f"override {number}" for number, word in enumerate(typed, 1)}
    requests = [Request(word, places.get(named_by(word), "hydra.sweeper.params")) for word in _first_points(words)]
    try:
        if requests:
            composer.compose([item for item in requests if not is_hydras(item.text)])
        with hydra_errors_as_findings():
            raise failure
    except ConfigError as found:
        _end_with(found, composer, requests)


def _first_points(words: Sequence[str]) -> Iterator[str]:
    """Yields the overrides; a sweep is reduced to its first value."""
    for word in words:
        override = None
        with contextlib.suppress(Refused):
            override = parsed(word, word)
        if override is None or not override.is_sweep_override():
            yield word
        elif not override.is_interval_sweep():
            yield f"{word.partition('=')[0]}={next(override.sweep_string_iterator())}"


def _needs_the_run(failure: BaseException | None) -> bool:
    """Returns whether the failure comes from ``${hydra:...}``, which only a run of Hydra resolves."""
    return failure is not None and ("HydraConfig was not set" in str(failure) or _needs_the_run(failure.__cause__))


def _as_hydra_takes_them(composer: Composer, words: Sequence[str]) -> list[str]:
    """Adds the ``+`` that Hydra demands for a group outside the defaults list, as in ``topology=pd`` and ``recipe=x``.
    Makes each path in ``model=org/name`` an option that Hydra finds."""
    listed = composer.listed_groups()
    found = []
    for word in words:
        match = _CHOICE.fullmatch(word)
        if match and match["group"] in ("topology", *ADDED_GROUPS) and match["key"] not in listed:
            word = f"+{word}"
        elif _OF_MODEL.match(word):
            paths = [option for option in _options_in(word) if isinstance(option, str) and composer.is_path(option)]
            for path in paths:
                # Hydra 1.4 refuses an option that contains ``..``.
                option = os.path.abspath(path) if ".." in path.split("/") else path.rstrip("/")
                word = word.replace(path, option)
                offer_model(option)
        found.append(word)
    return found


def _options_in(word: str) -> list[object]:
    """Returns the options that an override chooses: one, or all values of a choice sweep."""
    try:
        override = parsed(word, word)
    except Refused:
        return []  # Hydra refuses it too
    options = list(override.sweep_iterator()) if override.is_choice_sweep() else [override.value()]
    return [getattr(option, "text", option) for option in options]  # one in quotes


def offer_model(path: str) -> None:
    """Makes a folder or a repository name an option of the group ``model`` that sets only ``model_path``."""
    from hydra.core.config_store import ConfigStore

    *above, name = path.split("/")
    group = "/".join(["model", *filter(None, above)])  # as Hydra looks it up
    ConfigStore.instance().store(group=group, name=name, node={"model_path": path}, provider=PATH_PROVIDER)


def as_typed(finding: Finding, requests: Sequence[Request]) -> Finding:
    """Rewrites a finding about an unknown option of a group: names the override that chose it, and what to type in an
    app. Returns other findings unchanged."""
    group = finding.fields[0] if finding.about == "unknown_choice" and finding.fields else None
    if group is None:
        return finding
    chose = re.compile(rf"\+{{0,2}}(?P<key>{re.escape(group)}(@[\w.]+)?)=(?P<option>.*)")
    message = finding.message
    for request in requests:
        match = chose.fullmatch(request.text)
        if match is not None and f"{group}={match['option']} " in f"{message} ":
            message = f"{request.place}: {message.partition(': ')[2]}".replace(f"{group}=", f"{match['key']}=", 1)
            finding = finding.reworded(methodcaller("replace", f"{group}=", f"{match['key']}="))
    return replace(finding, message=message)


def checked(config_name: str, words: Sequence[str]) -> Composer | None:
    """Returns the composer that already composed this app with these overrides, or None."""
    return _composers.get(_key(config_name, words))


def numbered(words: Sequence[str]) -> list[Request]:
    """Numbers the overrides of an app, written in Hydra's own syntax; the number is the place in findings."""
    return [Request(text, f"override {number}") for number, text in enumerate(words, 1)]


def _key(config_name: str, words: Sequence[str]) -> tuple[str, ...]:
    return (config_name, *(word for word in words if not word.lstrip("+~").startswith("hydra.")))


def _sweeps(text: str) -> bool:
    """Returns whether an override asks for several jobs, by a sweep or by ``hydra.mode=``."""
    try:
        return text.startswith("hydra.mode=") or parsed(text, text).is_sweep_override()
    except Refused:
        return False


def _app_of_ours() -> StartingApp | None:
    """Returns the app that ``@hydra.main`` starts, or None when its task gets no plan or something else composes."""
    from sglang_hydra.compose.hydra_apps import take_starting_app

    app = take_starting_app()
    if app is None or not getattr(app.task, "plans", False) or not isinstance(app.config_name, str):
        return None
    return app if isinstance(getattr(app.args, "overrides", None), list) else None


def expect_start(task: Callable[..., object]) -> None:
    """Marks a task that gets a plan, and watches for the start of its app."""
    from sglang_hydra.compose.hydra_apps import watch_apps

    task.__dict__["plans"] = True
    watch_apps(refused_by_hydra)
