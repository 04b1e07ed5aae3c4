"""Makes plans: from overrides, or from a composition; with ``lock=plan.json`` a recorded plan again."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

from sglang_hydra.compose.composer import Composer, Composition
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import PRIMARY_NAME
from sglang_hydra.facts.machine_cache import asking_once
from sglang_hydra.planning.making.replan import Replanner, planned
from sglang_hydra.planning.plan import Plan, Recorded
from sglang_hydra.text.budget import OverBudget, cpu_limit
from sglang_hydra.text.errors import ConfigError


def plan(
    overrides: Sequence[str] | Mapping[str, object] = (),
    *more: NoReturn,
    config_dirs: Sequence[str | Path] = (),
    config_name: str = PRIMARY_NAME,
    seed: int | None = None,
    env: Mapping[str, str] | None = None,
    **values: object,
) -> Plan:
    """Plans like ``python serve.py plan OVERRIDES``, or from a config that Hydra's compose API made.

    ``overrides`` is a list of words; a dict of choices and values (``{"gpu": "h200", "tp_size": 8}``); or a DictConfig
    with our tree at its root or under a node, where a value that is SGLang's default counts as unset. ``values`` are
    more choices and values: ``plan(arguments, gpu="h200")``. Where Hydra is initialized, its search path comes first.
    ``config_dirs`` are searched for config groups before ours. ``seed`` replaces the seed that the launch draws for an
    unset ``random_seed``; ``env`` replaces the process's environment. Raises ConfigError, with every finding, when the
    overrides cannot be composed; SGLang's refusals are in the plan's ``findings`` instead."""
    if isinstance(overrides, str) or more:
        given = [str(word) for each in (overrides, *more) for word in (each.split() if isinstance(each, str) else each)]
        meant = [word if "=" in word else f"model={word}" for word in given]
        meant += [f"{name}={value}" for name, value in values.items()]
        raise TypeError(f"overrides is one list of words: plan({meant!r})")
    own = not config_dirs and config_name == PRIMARY_NAME
    if isinstance(overrides, Mapping) and not isinstance(overrides, dict):
        from sglang_hydra.compose.passed_config import composer_of_api, requests_of

        composer = composer_of_api(config_dirs, config_name)
        requests = requests_of(composer, overrides)
    else:
        words: list[Any] = [*overrides] if isinstance(overrides, Iterable) else [overrides]
        if not all(isinstance(word, str) for word in words):
            raise TypeError(
                f'overrides is a list of words, ["tp_size=2", ...], a dict or DictConfig, not {overrides!r}'
            )
        composer = _own_composer() if own else Composer(config_dirs, config_name)
        if isinstance(overrides, dict):
            values, words = {**overrides, **values}, []
        requests = [Request(text, f"override {number}") for number, text in enumerate(words, 1)]
    for name, value in values.items():
        plain = os.fspath(value) if isinstance(value, os.PathLike) else value
        requests.append(Request.typed(name, plain, f"the value of {name}"))
    return make_plan(composer, requests, seed=seed, env=env)


@functools.lru_cache(maxsize=1)
def _own_composer() -> Composer:
    """Returns one composer for all plans: our own configs do not change while a program runs."""
    return Composer()


def make_plan(
    composer: Composer,
    requests: Sequence[Request],
    *,
    seed: int | None = None,
    env: Mapping[str, str] | None = None,
    recorded: Recorded | None = None,
) -> Plan:
    """Makes the finished plan from the typed requests. ``recorded`` holds the facts of an earlier plan.

    With ``lock=plan.json`` that plan is made again, or refused where it would differ."""
    with asking_once():
        try:
            composition = composer.compose(requests)
        except ConfigError as failure:
            raise with_offers(failure, composer, requests, seed=seed, env=env, recorded=recorded) from failure
        return plan_composed(composer, requests, composition, seed=seed, env=env, recorded=recorded)


def with_offers(
    failure: ConfigError,
    composer: Composer,
    requests: Sequence[Request],
    *,
    seed: int | None = None,
    env: Mapping[str, str] | None = None,
    recorded: Recorded | None = None,
) -> ConfigError:
    """Returns the error of ``requests`` that cannot be composed, with values that make a plan."""
    if not any(finding.offers for finding in failure.findings):
        return failure
    again = Replanner(composer, requests, seed, os.environ if env is None else env, recorded)
    return ConfigError(*again.with_valid_values(failure.findings))


def plan_composed(
    composer: Composer,
    requests: Sequence[Request],
    composition: Composition,
    *,
    seed: int | None = None,
    env: Mapping[str, str] | None = None,
    recorded: Recorded | None = None,
    with_remedies: bool = True,
) -> Plan:
    """Plans the composition of ``requests``. Without remedies, a misfit offers none."""
    env = os.environ if env is None else env
    lock = composition.nodes.lock
    try:
        # Patterns in a config.json may cost what no limit of its text foresees.
        stated = composition.nodes.model.config
        with nullcontext() if stated and "re:" not in str(stated) else cpu_limit("record"):
            if lock is not None and not (recorded and recorded.locked):
                from sglang_hydra.planning.recorded.lock import replay

                return replay(composer, requests, lock, env, recorded, seed)
            return planned(Replanner(composer, requests, seed, env, recorded), composition, with_remedies)
    except OverBudget as failure:
        raise ConfigError.of("CLI009", f"this cannot be planned: {failure}") from failure
