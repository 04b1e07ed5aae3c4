"""Plans every recipe and random inputs with this Python, for the tests that compare Pyodide with it.

    python site/tests/native.py build/native.json [--random 20] [--random-alone]

No hub is asked, which a browser cannot. Plans of ``exact`` ask the releases that the site has, by their own code from
the wheels that it was built of; the others ask none.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["SGLANG_HYDRA_SETTINGS"] = ""  # a browser has none of the settings of whoever runs this

ROOT = Path(__file__).resolve().parents[2]
SEED, NUMBER = 20260, 200
EXACT_NUMBER, EXACT_RELEASES, EXACT_GPUS = 20, ("0.5.23", "0.5.16", "0.5.9"), ("h200", "mi300x")
"""A release starts once for each kind of GPU, which takes seconds: two of them."""
CACHE = "/home/pyodide/.cache/sglang_hydra"
"""Where Pyodide looks: the path of model=tiny is part of a plan. Nothing is written there."""
OTHERS = (
    ("tp_size", ("1", "2", "4", "8", "3")),
    ("dp_size", ("2", "4")),
    ("ep_size", ("2", "8")),
    ("enable_dp_attention", ("true",)),
    ("kv_cache_dtype", ("fp8_e5m2", "fp8_e4m3", "fp4")),
    ("context_length", ("8192", "1000000", "-1")),
    ("mem_fraction_static", ("0.5", "0.95", "1.5")),
    ("attention_backend", ("triton", "fa3", "flashinfer", "nonsense")),
    ("quantization", ("fp8", "awq", "w8a8_int8")),
    ("chunked_prefill_size", ("2048", "-1")),
    ("speculative_algorithm", ("EAGLE", "NEXTN")),
    ("disable_cuda_graph", ("true",)),
    ("nnodes", ("2",)),
    ("pp_size", ("2",)),
    ("bench.concurrency", ("8",)),
    ("max_queued_requests", ("9223372036854775807", "12")),
    ("tp_siez", ("8",)),
)


def questions() -> list[list[str]]:
    """The overrides of every recipe, then random ones; the seed of each is fixed."""
    from sglang_hydra.arguments.tables.table import known_versions
    from sglang_hydra.compose.composer import Composer
    from sglang_hydra.compose.recipes import recipes
    from sglang_hydra.planning.choosing.catalog import gpu_classes, models

    chance, composer = random.Random(SEED), Composer()
    gpus = [gpu.name for gpu in gpu_classes(composer)]
    names = [model.name for model in models(composer)]
    asked = [[f"recipe={id}"] for id in recipes()]
    for _ in range(NUMBER):
        words = [f"gpu={chance.choice(gpus)}", f"model={chance.choice(names)}"]
        words += [f"{key}={chance.choice(values)}" for key, values in chance.sample(OTHERS, chance.randrange(5))]
        if chance.random() < 0.2:
            words.append(f"engine.version={chance.choice(known_versions())}")
        asked.append(words)
    return [[*words, "random_seed=7"] for words in asked]


def exact_questions(number_of_random: int, with_models: bool = True) -> list[list[str]]:
    """For each model one that no recorded answer has, then random ones of three releases."""
    from sglang_hydra.compose.composer import Composer
    from sglang_hydra.planning.choosing.catalog import models

    chance, names = random.Random(SEED + 1), [model.name for model in models(Composer())]
    asked = [[f"model={name}", "gpu=h200", "tp_size=8", "context_length=32768"] for name in names]
    asked = [[*words, f"engine.version={EXACT_RELEASES[0]}"] for words in asked] if with_models else []
    blocks = len(EXACT_RELEASES) * len(EXACT_GPUS)
    for number in range(number_of_random):
        release, gpu = divmod(number * blocks // number_of_random, len(EXACT_GPUS))
        words = [f"engine.version={EXACT_RELEASES[release]}", f"gpu={EXACT_GPUS[gpu]}", f"model={chance.choice(names)}"]
        asked.append([*words, *(f"{key}={chance.choice(values)}" for key, values in chance.sample(OTHERS, 2))])
    return [[*words, "random_seed=7"] for words in asked]


def use_wheels(real: Path) -> Callable[[bool], None]:
    """Makes this Python ask the wheels that the site has, from the cache that it was built of: the cache of this run
    only names a path. Returns what allows it."""
    from sglang_hydra.releases import answers, process, wheels

    index = ROOT / "build" / "site" / "releases" / "index.json"
    folders, found = json.loads(index.read_text(encoding="utf-8")), wheels.place_of
    allowed = [False]

    def place_of(wheel: Any) -> Path | None:
        return found(wheel) if allowed[0] and (wheel.folder in folders or wheel.name == "msgspec") else None

    wheels.place_of = place_of
    for module in (answers, process, wheels):
        module.default_cache = lambda: real  # type: ignore[attr-defined]
    return lambda value: allowed.__setitem__(0, value)


def ask_one_machine() -> Callable[[], None]:
    """Lets each question ask a release about one kind of machine, as the page does: remedies on others are estimates.
    Returns what begins a question."""
    from sglang_hydra.releases import asking, process

    asked_now, machines = asking._asked_now, []

    def once(case: Any, record: Any, how: Any) -> Any:
        machine = {name: value for name, value in case.machine.items() if name not in process._MAY_CHANGE}
        machines.append(machine)
        return asked_now(case, record, how) if machine == machines[0] else asking.NoAnswer("it is not asked here")

    asking._asked_now = once
    return machines.clear


def main() -> None:
    from sglang_hydra.cli.answers import answer
    from sglang_hydra.facts.tiny import default_cache

    parser = argparse.ArgumentParser()
    parser.add_argument("target", type=Path)
    parser.add_argument("--random", type=int, default=EXACT_NUMBER, help="inputs of three releases by their own code")
    parser.add_argument("--random-alone", action="store_true", help="no other questions")
    arguments = parser.parse_args()
    allow, begin = use_wheels(default_cache()), ask_one_machine()
    target = arguments.target.resolve()
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(HF_HUB_OFFLINE="1", SGLANG_HYDRA_OFFLINE="1", HOME=folder)
        os.environ["SGLANG_HYDRA_CACHE"] = CACHE
        os.chdir(folder)
        for words, exact in [
            *((words, False) for words in ([] if arguments.random_alone else questions())),
            *((words, True) for words in exact_questions(arguments.random, not arguments.random_alone)),
        ]:
            allow(exact)
            begin()
            question = {"ask": "plan", "words": words}
            cases.append({"question": question, "exact": exact, "answer": answer(json.dumps(question))})
        os.chdir(target.parent)
    target.write_text(json.dumps(cases), encoding="utf-8")
    made = sum('"plan": null' not in case["answer"] for case in cases)
    print(f"{len(cases)} plans, {made} of them made")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
