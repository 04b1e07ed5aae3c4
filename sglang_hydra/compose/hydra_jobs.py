"""Runs jobs of Hydra, with parts that it does not publish (see hydra_internals.py).

- ``hydra_over``: ``create_config_search_path``, ``Hydra``. ``@hydra.main`` reads ``sys.argv`` and ends the process.
  test_a_job_of_hydra_runs_*
- ``context_of``: ``Callbacks``. Launchers and sweepers demand it, and only Hydra's own multirun makes one.
  test_a_launcher_gets_*
- ``error_of``: ``JobReturn._return_value``. The public ``return_value`` prints before it raises.
  test_the_error_of_a_job_*"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

from hydra._internal.callbacks import Callbacks
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.types import HydraContext

from sglang_hydra.text.locations import conf_dir

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.utils import JobReturn
    from omegaconf import DictConfig


def search_path_of(config_dirs: Sequence[str]) -> ConfigSearchPath:
    """Returns the composer's search path: the named folders, then our conf/, beside Hydra's own."""
    search_path = create_config_search_path(str(conf_dir()))
    add_folders(search_path, config_dirs)
    return search_path


FOLDERS: ContextVar[tuple[str, ...]] = ContextVar("folders", default=())
"""The folders from the command line, for ``@hydra.main``, which takes only one."""


def add_folders(search_path: ConfigSearchPath, folders: Sequence[str]) -> None:
    """Puts these folders first in Hydra's search path, in their order."""
    for folder in folders:
        search_path.prepend("command-line", f"file://{os.path.abspath(folder)}", SearchPathQuery(provider="main"))


def hydra_over(job: str, config_dirs: Sequence[str]) -> Hydra:
    """Returns Hydra itself with ``search_path_of(config_dirs)``, for a job with this name. It is Hydra's global
    instance until the caller clears that."""
    return Hydra.create_main_hydra2(job, search_path_of(config_dirs))


def context_of(hydra: Hydra, config: DictConfig) -> HydraContext:
    """Returns the context for instantiating a launcher or sweeper, for a ``config`` that ``hydra`` composed."""
    return HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(config))


def error_of(job: JobReturn) -> object:
    return job._return_value
