"""Our part in other Hydra apps: the decorator between ``@hydra.main`` and a task that gets the finished plan."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sglang_hydra.arguments.secrets import hide_typed_keys
from sglang_hydra.compose.composer import Composer
from sglang_hydra.planning.make import make_plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.run import before_hydra
from sglang_hydra.text.errors import SglangHydraError

if TYPE_CHECKING:
    from omegaconf import DictConfig


def main(task: Callable[[Plan], Any]) -> Callable[[DictConfig], Any]:
    """The finalizing decorator for other Hydra apps, between ``@hydra.main`` and the task.

        @hydra.main(version_base=None, config_path="conf", config_name="config")
        @sglang_hydra.main
        def run(plan: sglang_hydra.Plan) -> None: ...

    The app's primary config has ``sglang_hydra_schema`` first in its defaults list and then our groups; an app with
    keys of its own has all of these under a node (``sglang_hydra_schema@server``, ``gpu@server.gpu: auto``, ...). The
    task gets the finished plan, made from the app's own search path and overrides, also in each job of a multirun; it
    looks at ``plan.launchable`` before it starts anything.
    """
    hide_typed_keys(sys.argv, os.environ)
    before_hydra.spell_no_choice(sys.argv)
    before_hydra.offer_recipes(sys.argv)

    @functools.wraps(task)
    def finalized(config: DictConfig) -> Any:
        from hydra.core.hydra_config import HydraConfig

        running = HydraConfig.get()
        words = running.overrides.task
        composer = before_hydra.checked(str(running.job.config_name), words) or composer_of_app(running)
        with shown_refusal():
            plan = make_plan(composer, before_hydra.numbered(words))
        return task(plan)

    before_hydra.expect_start(finalized)
    return finalized


@contextlib.contextmanager
def shown_refusal(plan: Plan | None = None) -> Iterator[None]:
    """In a run of a Hydra app a refusal is shown as findings, without a traceback, and ends the process with its exit
    code; with the ``plan`` that was refused, who set what is shown too. In a multirun it is raised: whether the other
    jobs go on is the sweeper's to say."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    try:
        yield
    except SglangHydraError as failure:
        if not HydraConfig.initialized() or HydraConfig.get().mode == RunMode.MULTIRUN:
            raise
        from sglang_hydra.show.findings import finding_lines
        from sglang_hydra.text.screen import write

        write(finding_lines(list(failure.findings), plan), sys.stderr)
        raise SystemExit(failure.exit_code) from None


def composer_of_app(running: Any) -> Composer:
    """Composes what a Hydra app composes; ``running`` is its ``hydra`` node."""
    sources = [source for source in running.runtime.config_sources if source.provider not in ("hydra", "schema")]
    folders = [f"{source.schema}://{source.path}" for source in sources if source.path]
    return Composer(folders, str(running.job.config_name), hydra_syntax=True)
