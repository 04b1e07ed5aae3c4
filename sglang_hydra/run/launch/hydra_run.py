"""Runs our commands as a Hydra job: with its run folder, its record of the overrides and its logging."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sglang_hydra.compose.grammar import as_override, quoted
from sglang_hydra.compose.overrides import is_hydras
from sglang_hydra.compose.schema import PAIR, PRIMARY_NAME
from sglang_hydra.run.launch.launch_request import LaunchRequest
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.text import whole_file
from sglang_hydra.text.errors import ConfigError, MachineError, SglangHydraError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.locations import conf_dir
from sglang_hydra.text.screen import write
from sglang_hydra.text.words import nearest, program

_FULL_ERROR = "HYDRA_FULL_ERROR"
_JOB = "serve"


def in_hydra(asked: LaunchRequest, task: Callable[[], int], mark: str = "") -> int:
    """Runs ``task`` as a Hydra job and returns its exit code. An error of ours is shown, and its exit code returned.

    Does the same as ``@hydra.main`` for one run, without a second composition. Appends ``mark`` to the default name of
    the run folder, because two runs may begin in one second. Raises ConfigError if Hydra refuses its own keys,
    MachineError if the run folder cannot be written."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from sglang_hydra.compose.hydra_jobs import hydra_over

    codes: list[int] = []
    begun = False
    lifted = _lifted(asked)

    def job(config: object) -> None:
        nonlocal begun
        begun = True
        try:
            _record_config(config, lifted)
            codes.append(task())
        except SglangHydraError as failure:
            write(finding_lines(list(failure.findings)), sys.stderr)
            codes.append(failure.exit_code)

    words = [*_words(asked), *_marked_folder(asked, mark), "hydra.mode=RUN"]
    try:
        hydra = hydra_over(_JOB, asked.config_dirs)
        try:
            hydra.run(asked.config_name or PRIMARY_NAME, job, words)
        finally:
            GlobalHydra.instance().clear()
    except (HydraException, OmegaConfBaseException) as failure:
        raise setup_error(failure) from failure
    except OSError as failure:
        if begun:
            raise
        raise MachineError(_no_folder(failure)) from failure
    return codes[-1] if codes else 0


def ask_hydra(asked: LaunchRequest) -> int:
    """Lets Hydra answer its own flags (``--cfg job``, ``--info``, ``--hydra-help``). Starts nothing."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from sglang_hydra.compose.hydra_jobs import FOLDERS

    # Hydra 1.3 demands the argument, Hydra 1.4 warns of it.
    base = {"version_base": "1.3"} if hydra.__version__.startswith("1.3.") else {}
    main = hydra.main(config_path=str(conf_dir()), config_name=asked.config_name or PRIMARY_NAME, **base)
    words = _words(asked)
    for name, value in _lifted(asked).items():
        words.append(f"{name}={value}" if str(value).startswith("${") else as_override(name, value))
    before, full_error = sys.argv, os.environ.get(_FULL_ERROR)
    # Without this, Hydra prints its errors itself and exits with its own code.
    os.environ[_FULL_ERROR] = "1"
    sys.argv = [before[0], *with_our_sweeper(words), *asked.hydra_flags]
    token = FOLDERS.set(tuple(asked.config_dirs))
    logging.raiseExceptions = False  # Hydra's --info is logged, and a reader that goes (head) ends it
    try:
        main(lambda config: None)()
    except BrokenPipeError:
        raise
    except (HydraException, OmegaConfBaseException, OSError) as failure:
        raise setup_error(failure) from failure
    finally:
        FOLDERS.reset(token)
        sys.argv = before
        os.environ.pop(_FULL_ERROR, None)
        os.environ.update({_FULL_ERROR: full_error} if full_error is not None else {})
    return 0


def _lifted(asked: LaunchRequest) -> dict[str, object]:
    """Maps each argument that a preset sets to a reference to the preset's node, because Hydra knows it only there.
    Omits ``model_path``: its reference is in the schema."""
    found: dict[str, object] = {}
    composition = asked.composer.compose(asked.requests)
    mount = asked.composer.mount
    for name, chain in composition.origins.items():
        layer = chain[-1].layer
        if layer in ("gpu", "model") and name != "model_path":
            found[f"{mount}{name}"] = f"${{{mount}{layer}.args.{name}}}"
        elif layer == PAIR:
            found[f"{mount}{name}"] = composition.intent[name]
    return found


def _record_config(config: Any, lifted: Mapping[str, object]) -> None:
    """Writes the config of the Hydra job again, with the arguments from presets."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    file = run_folder() / str(HydraConfig.get().output_subdir) / "config.yaml"
    if file.is_file():
        for key, value in lifted.items():
            OmegaConf.update(config, key, value, merge=False)
        write_in_run_folder(file, OmegaConf.to_yaml(config))


def run_folder() -> Path:
    """Returns the run folder of the current Hydra job."""
    from hydra.core.hydra_config import HydraConfig

    return Path(HydraConfig.get().runtime.output_dir)


def write_in_run_folder(path: Path, content: str) -> None:
    """Writes a file completely or not at all. Raises MachineError if it cannot be written."""
    try:
        whole_file.write_whole(path, content)
    except OSError as failure:
        raise MachineError(_no_folder(failure)) from failure


def _words(asked: LaunchRequest) -> list[str]:
    """Returns the overrides for Hydra: ours in canonical form, Hydra's own as typed."""
    own = [_at_home(request.text) for request in asked.requests if is_hydras(request.text)]
    return [*asked.composer.canonical(asked.requests), *own]


def _at_home(word: str) -> str:
    """Expands ``~`` in ``hydra.run.dir=~/runs``, because Hydra would make a folder called ``~``."""
    key, _, value = word.partition("=")
    return f"{key}={quoted(os.path.expanduser(value))}" if key.endswith(".dir") and value.startswith("~/") else word


def _marked_folder(asked: LaunchRequest, mark: str) -> list[str]:
    """Returns an override for Hydra's default run folder plus ``mark``; nothing with a named folder or config."""
    named = any(is_hydras(request.text) and ".run" in request.text for request in asked.requests)
    if named or not mark or asked.config_name or asked.config_dirs:
        return []
    return ["hydra.run.dir=outputs/${now:%Y-%m-%d}/${now:%H-%M-%S}" + f"-{mark}"]


def with_our_sweeper(words: Sequence[str]) -> list[str]:
    """Adds our sweeper, which plans before it runs, unless another one is named. Our primary config does not name it,
    because other apps include that config below their own nodes."""
    named = any(word.lstrip("+").startswith("hydra/sweeper=") for word in words)
    return [*words, *([] if named else ["hydra/sweeper=sglang"])]


def setup_error(failure: Exception) -> ConfigError:
    """Turns Hydra's error about its own keys into a ConfigError."""
    message = " ".join(str(failure).split())
    hint = f"hydra.run.dir=FOLDER names the run folder; {program()} --hydra-help lists Hydra's own keys"
    if missing := re.search(r"Could not find '([\w/]+)/(\w+)' Available options in '\1': ([\w ]+?) Config", message):
        group, typed, options = missing[1], missing[2], missing[3].split()
        message = f"there is no {group}={typed}"
        near = next((one for one in options if one.endswith(f"_{typed}")), None) or nearest(typed, options)
        hint = f"{group}={near}" if near else f"{group} can be: {', '.join(options)}"
    return ConfigError(Finding("error", "CLI023", f"Hydra cannot set up the run: {message}", ("hydra",), hint))


def _no_folder(failure: OSError) -> Finding:
    why = failure.strerror or str(failure)
    where = f" ({failure.filename})" if failure.filename else ""
    message = f"the run folder cannot be written: {why}{where}"
    return Finding("error", "LCH001", message, ("hydra.run.dir",), "hydra.run.dir=/another/folder")
