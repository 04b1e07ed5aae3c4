"""What an app of ours is told before Hydra composes it: mistakes in its YAML files and words, with file, line and key.

Hydra would refuse most of them too, with the key alone, and a file that is no YAML with a traceback. The search-path
plugin calls this; what only Hydra can tell is left to it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

from sglang_hydra.compose.overrides import NO_CHOICE, Request
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath

    from sglang_hydra.compose.composer import Composer

_NO_OPTION = re.compile(rf"(?P<key>(?P<group>{'|'.join(NO_CHOICE)})(?:@[\w.]+)?)=(?:null|None)?")
_ELSEWHERE = ("help", "hydra_help", "multirun", "cfg", "info", "shell_completion")
_CALLS = 5
"""From ``_running`` to Hydra's start: ours and the plugin's function, then the two of Hydra that make a search path. A
search path that a composer of ours makes meanwhile is further away."""
_composers: dict[tuple[str, ...], Composer] = {}


def spell_no_choice(words: list[str]) -> None:
    """``gpu=null`` and ``gpu@server.gpu=`` as the option that stands for none: Hydra ends with a traceback for null."""
    for position, word in enumerate(words):
        match = _NO_OPTION.fullmatch(word)
        if match:
            words[position] = f"{match['key']}={NO_CHOICE[match['group']]}"


def offer_recipes(words: Sequence[str]) -> None:
    """Makes the published recipes among ``words`` known to Hydra, which finds no files of them."""
    typed = [word.partition("=")[2] for word in words if word.lstrip("+").startswith("recipe=")]
    if typed:
        from hydra.core.config_store import ConfigStore

        from sglang_hydra.compose.recipes import register

        for id in ",".join(typed).split(","):
            register(id, ConfigStore.instance())


def check_app(search_path: ConfigSearchPath) -> None:
    """Composes the app that Hydra is about to compose, and ends the process with the findings if that cannot be.

    Only a single run of a task that ``sglang_hydra.main`` decorates is looked at.
    """
    running = _running()
    if running is None:
        return
    args, config_name = running
    requests = numbered(args.overrides)
    folders = [element.path for element in search_path.get_path() if element.provider not in ("hydra", "schema")]
    folders += [f"file://{args.config_dir}"] if args.config_dir else []
    from sglang_hydra.compose.composer import Composer

    composer = None
    try:
        if any(_sweeps(text) for text in args.overrides):
            return
        composer = Composer([str(folder) for folder in folders if folder], config_name, hydra_syntax=True)
        composer.compose(requests)
    except ConfigError as failure:
        from sglang_hydra.planning.make import with_offers
        from sglang_hydra.show.findings import finding_lines
        from sglang_hydra.text.screen import write

        findings = (with_offers(failure, composer, requests) if composer else failure).findings
        write(finding_lines([as_typed(finding, requests) for finding in findings]), sys.stderr)
        raise SystemExit(failure.exit_code) from None
    _composers[_key(config_name, args.overrides)] = composer


def as_typed(finding: Finding, requests: Sequence[Request]) -> Finding:
    """An option that its group has not, with the word that chose it and what to type in an app; others as they are."""
    group = finding.fields[0] if finding.id == "CLI006" and finding.fields else None
    if group is None:
        return finding
    chose = re.compile(rf"\+{{0,2}}(?P<key>{re.escape(group)}(@(?P<below>[\w.]+))?)=(?P<option>.*)")
    message, hint = finding.message, finding.hint or ""
    mount = ""
    for request in requests:
        match = chose.fullmatch(request.text)
        if match is not None and f"{group}={match['option']} " in f"{message} ":
            message = f"{request.place}: {message.partition(': ')[2]}".replace(f"{group}=", f"{match['key']}=", 1)
            hint = hint.replace(f"{group}=", f"{match['key']}=")
            mount = (match["below"] or "").removesuffix(group)
    if group == "model":
        hint = f"{hint.partition('Another model')[0]}Another model: {mount}model_path=org/name or a folder"
    return replace(finding, message=message, hint=hint or None)


def checked(config_name: str, words: Sequence[str]) -> Composer | None:
    """The composer that has composed these words for this app already."""
    return _composers.get(_key(config_name, words))


def numbered(words: Sequence[str]) -> list[Request]:
    """Words of an app in Hydra's own syntax, each with its number as the place."""
    return [Request(text, f"override {number}") for number, text in enumerate(words, 1)]


def _key(config_name: str, words: Sequence[str]) -> tuple[str, ...]:
    return (config_name, *(word for word in words if not word.lstrip("+~").startswith("hydra.")))


def _sweeps(text: str) -> bool:
    """Whether a word asks for several jobs, as it may where the app's own config sets Hydra's mode."""
    from sglang_hydra.compose.override_errors import Refused
    from sglang_hydra.compose.overrides import parsed

    try:
        return text.startswith("hydra.mode=") or parsed(text, text).is_sweep_override()
    except Refused:
        return False


def _running() -> tuple[Any, str] | None:
    """The arguments and the config's name of the app that is starting; None for anything but a single run of ours.

    Hydra tells a search-path plugin neither, so they are read where ``@hydra.main`` holds them; where that is not what
    is known of Hydra 1.3, Hydra goes on alone.
    """
    frame: FrameType | None = sys._getframe()
    for _ in range(_CALLS):
        frame = frame.f_back if frame else None
    if frame is None or frame.f_code.co_name != "_run_hydra":
        return None
    known = frame.f_locals
    args, name, task = known.get("args"), known.get("config_name"), known.get("task_function")
    if not getattr(task, "plans", False) or not isinstance(name, str):
        return None
    if any(getattr(args, flag, True) for flag in _ELSEWHERE) or not isinstance(getattr(args, "overrides", 0), list):
        return None
    return args, name.removesuffix(".yaml")


def plans(task: Callable[..., Any]) -> None:
    """Marks a task that gets a plan."""
    task.__dict__["plans"] = True
