"""Provides the decorator for other Hydra apps, between ``@hydra.main`` and a task that gets the finished plan."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from sglang_hydra.arguments.secrets import hide_typed_keys
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.passed_config import differences
from sglang_hydra.compose.schema import register
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan, may_start
from sglang_hydra.run import before_hydra
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.text.errors import ConfigError, SglangHydraError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import write

if TYPE_CHECKING:
    from omegaconf import DictConfig


Result = TypeVar("Result")
Finalized = Callable[..., Result]
"""The decorated task: @hydra.main calls it with its config, and users call it without arguments."""
Task = Callable[[Plan], Result] | Callable[[Any, Plan], Result] | Callable[[Any, Mapping[str, Plan]], Result]
"""A task: takes the plan, or its config and the plan, or its config and all plans by node."""


@overload
def main(task: Callable[[Plan], Result], *, strict: bool = True) -> Finalized[Result]: ...
@overload
def main(task: Callable[[Any, Plan], Result], *, strict: bool = True) -> Finalized[Result]: ...
@overload
def main(task: Callable[[Any, Mapping[str, Plan]], Result], *, strict: bool = True) -> Finalized[Result]: ...
@overload
def main(task: None = None, *, strict: bool = True) -> Callable[[Task[Result]], Finalized[Result]]: ...
def main(task: Callable[..., Any] | None = None, *, strict: bool = True, **of_hydra: Any) -> Callable[..., Any]:
    """Decorates the task of another Hydra app, below ``@hydra.main``, so that it gets the finished plan.

        @hydra.main(version_base=None, config_path="conf", config_name="config")
        @sglang_hydra.main
        def run(plan: sglang_hydra.Plan) -> None: ...

    A task with two arguments, ``run(config, plan)``, gets the app's own config first. The app's primary config lists
    ``sglang_hydra_schema`` first in its defaults list and then our groups; an app with keys of its own puts these under
    a node (``/sglang_hydra@server``). An app with several servers puts each under its own node; its task is
    ``run(config, plans)`` and gets a mapping from node to plan. The plan is made from the config that Hydra passes,
    also in each job of a multirun. A value that a callback or another decorator changed has the origin ``app``.

    A plan that cannot be launched is shown with its findings. It ends the run with exit code 2 (in a multirun: fails
    the job) before the task is called; with ``@sglang_hydra.main(strict=False)`` the task is called anyway. Raises
    TypeError for a task with another number of arguments."""
    if of_hydra:
        names = ", ".join(of_hydra)
        raise TypeError(f"@sglang_hydra.main takes no {names}: @hydra.main(...) above it takes what Hydra's takes")
    if task is None:
        return functools.partial(main, strict=strict)
    takes_config, takes_plans = _takes(task)
    hide_typed_keys(sys.argv, os.environ)
    before_hydra.spell_no_choice(sys.argv)
    before_hydra.offer_recipes(sys.argv)
    register()

    @functools.wraps(task)
    def finalized(config: DictConfig | None = None) -> Any:
        from hydra.core.hydra_config import HydraConfig

        if config is None:
            above = '@hydra.main(version_base=None, config_path="conf", config_name="config")'
            raise TypeError(f"{task.__name__} got no config: {above} belongs above @sglang_hydra.main")
        running = HydraConfig.get()
        words = typed_words(running)
        composer = before_hydra.checked(str(running.job.config_name), words) or composer_of_app(running)
        requests = before_hydra.numbered(words)
        with shown_refusal():
            mounts = composer.mounts(requests)
            if len(mounts) > 1 and not takes_plans:
                raise ConfigError(_one_of(mounts))
        others = [composer_of_app(running, mount) for mount in mounts[1:]]
        plans = [_planned(each, requests, config, strict=strict) for each in (composer, *others)]
        of_node = dict(zip(map(".".join, mounts), plans, strict=True))
        given = of_node if takes_plans else plans[0]
        return task(config, given) if takes_config else task(given)

    before_hydra.expect_start(finalized)
    return finalized


def _planned(composer: Composer, requests: Sequence[Request], config: DictConfig, *, strict: bool) -> Plan:
    with shown_refusal():
        plan = make_plan(composer, [*requests, *differences(composer, requests, config)])
    if strict and not may_start(plan):
        with shown_refusal(plan):
            raise ConfigError(*plan.errors)
    warnings = [finding for finding in plan.findings if finding.level == "warning"]
    if warnings and may_start(plan):
        write(finding_lines(warnings, plan), sys.stderr)
    return plan


def _one_of(mounts: Sequence[Sequence[str]]) -> Finding:
    nodes = ", ".join(".".join(mount) or "the root" for mount in mounts)
    message = f"this app holds {len(mounts)} servers ({nodes}), and its task gets the plan of one"
    hint = "def run(config, plans): plans has the plan of each node, by its name"
    return Finding("error", "CLI032", message, (), hint)


def typed_words(running: Any) -> list[str]:
    """Returns the typed overrides of a job, from Hydra's node ``running``, with interpolations unresolved."""
    from omegaconf import OmegaConf

    words: Any = OmegaConf.to_container(running.overrides.task, resolve=False)
    return [str(word) for word in words]


def _takes(task: Callable[..., Any]) -> tuple[bool, bool]:
    """Returns whether the task takes the config, and whether it takes all ``plans``. Raises TypeError for another
    signature."""
    signature = inspect.signature(task)
    for arguments in ((None,), (None, None)):
        with contextlib.suppress(TypeError):
            signature.bind(*arguments)
            return len(arguments) == 2, list(signature.parameters)[len(arguments) - 1] == "plans"
    name = getattr(task, "__name__", "the task")
    calls = f"{name}(plan), {name}(config, plan) or {name}(config, plans)"
    raise TypeError(f"@sglang_hydra.main calls {calls}, and it is {name}{signature}")


@contextlib.contextmanager
def shown_refusal(plan: Plan | None = None) -> Iterator[None]:
    """Shows a refusal in a Hydra app as findings, without a traceback, and ends the process with its exit code. With
    the refused ``plan``, also shows who set the values. In a multirun it raises the refusal: the sweeper decides
    whether the other jobs continue."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    try:
        yield
    except SglangHydraError as failure:
        if not HydraConfig.initialized() or HydraConfig.get().mode == RunMode.MULTIRUN:
            raise
        write(finding_lines(list(failure.findings), plan), sys.stderr)
        raise SystemExit(failure.exit_code) from None


def composer_of_app(running: Any, at: tuple[str, ...] | None = None) -> Composer:
    """Composes the config of a Hydra app, or its server under the node ``at``; ``running`` is its ``hydra`` node."""
    sources = [source for source in running.runtime.config_sources if source.provider not in ("hydra", "schema")]
    folders = [f"{source.schema}://{source.path}" for source in sources if source.path]
    return Composer(folders, str(running.job.config_name), hydra_syntax=True, at=at)
