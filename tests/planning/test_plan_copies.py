"""A plan is copied, pickled and shown in a line."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from sglang_hydra.planning.plan import Plan
from tests.plans import planned

PLANS = [["gpu=h200", "model=gpt_oss"], ["gpu=h200", "model=deepseek_v3", "tp_size=8", "api_key=hush"]]


@pytest.mark.parametrize("words", PLANS, ids=str)
def test_a_copy_is_equal(words: list[str]) -> None:
    plan = planned(*words)
    for made in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        assert made == plan
        assert made.to_json() == plan.to_json()
        assert made.secrets == plan.secrets
        with pytest.raises(TypeError):
            made.intent["tp_size"] = 2


def _seen_elsewhere(plan: Plan) -> tuple[str, bool]:
    return plan.server_id, plan.launchable


def test_it_goes_into_another_process() -> None:
    plan = planned(*PLANS[0])
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(_seen_elsewhere, plan).result(60) == (plan.server_id, True)


def test_it_is_shown_in_a_line_without_a_secret() -> None:
    launchable, refused = (repr(planned(*words)) for words in (PLANS[1], ["gpu=h200", "model=deepseek_v3"]))
    assert launchable.startswith("<Plan ")
    assert ", can be launched, on 8 x h200: python -m sglang.launch_server " in launchable
    assert ", cannot be launched: FIT001, " in refused
    assert max(map(len, (launchable, refused))) < 300
    assert "hush" not in launchable
