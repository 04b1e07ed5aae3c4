"""Records what releases make of the published recipes and of the catalog's plain plans.

    python tools/record_answers.py [VERSION...] [--fresh | --check]

Writes sglang_hydra/releases/recorded_answers/VERSION.json.gz, for the newest release and four others; VERSION names
some of them. A plain plan is a model on a GPU class, on the fewest GPUs of one node that it fits into, with tp_size=1
and without it where one GPU will do. Of the newest release, which is planned for where nobody names one, also each
larger size, and on the GPUs of the recipes each of the arguments that these have most often, and DP attention of the
models that a recipe serves so. A release whose wheels are not here is left as it is (``python serve.py release fetch
VERSION``). A question whose answer is recorded is asked again with ``--fresh`` only; what is answered is written now
and then, so that an interrupted run goes on. With ``--check``, which asks all, nothing is written; it is an error where
a file would be another one.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from releases.answer_files import raw_answers_of, write_answers, write_resolved_fields

from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.tables.table import has_class
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.recipes import recipes
from sglang_hydra.facts.gpu import GpuClass
from sglang_hydra.planning.choosing.catalog import Model, gpu_classes, models
from sglang_hydra.planning.making.make import plan_composed
from sglang_hydra.planning.plan import Plan
from sglang_hydra.releases import asking, recorded, wheels
from sglang_hydra.releases.case import Case
from sglang_hydra.releases.records import Record, newest_release, record_of
from sglang_hydra.releases.release import raw_answers
from sglang_hydra.rules.answer import Answer, answer_of
from sglang_hydra.text.errors import SglangHydraError

NEWEST = newest_release()
RELEASES = (NEWEST, "0.5.20", "0.5.18", "0.5.15", "0.5.12")
SIZES = (1, 2, 4, 8)
MOST_ARGUMENTS = 10
_EACH = 250
"""Answers after which the file is written."""
_SIZES_OF_A_MODEL = ("model_path", "tp_size", "trust_remote_code")


def main(words: list[str]) -> int:
    signal.signal(signal.SIGVTALRM, signal.SIG_IGN)  # no limit on the CPU of a plan (text/budget.py): a wheel is asked
    check, fresh = "--check" in words, not {"--check", "--fresh"}.isdisjoint(words)
    differing = 0
    for version in [word for word in words if word[0] != "-"] or RELEASES:
        record = record_of(version)
        if record is None:
            sys.exit(f"SGLang {version} is not recorded")
        if wheels.missing(record):
            print(f"{version}: left as it is, its wheels are not here: python serve.py release fetch {version}")
            continue
        file = recorded.file_of(version)
        before = file.read_bytes() if file.exists() else b""
        answers, unanswered = _answers(record, {} if fresh else raw_answers_of(record), write=not check)
        size = write_answers(record, answers)
        print(f"{version}: {len(answers)} answers, {size:,} bytes, {unanswered} not answered", flush=True)
        if check and file.read_bytes() != before:
            print(f"{file} would be another one")
            file.write_bytes(before)
            differing += 1
    if not check:
        write_resolved_fields()
    return 1 if differing else 0


def _answers(
    record: Record, known: Mapping[str, Mapping[str, Any]], *, write: bool
) -> tuple[dict[str, Mapping[str, Any]], int]:
    """The raw answers by their key, of those ``known`` already as they are, and how many plans got none."""
    found: dict[str, Mapping[str, Any]] = {}
    failed = new = 0

    def ask(_: Record, case: Case, why: bool = True) -> Answer | None:
        nonlocal failed, new
        key = recorded.key_of(case)
        answer = known.get(key) or found.get(key)
        if answer is None:
            answer = next(raw_answers(record, [case], use_kept=False))
            new += 1
        if answer.get("ok") is None or answer.get("by_library"):  # the model was not told whole
            failed += 1
            return None
        found[key] = answer
        if write and new % _EACH == 1 and answer is not known.get(key):
            print(f"{record.version}: {new} new, {write_answers(record, {**known, **found}):,} bytes", flush=True)
        return answer_of(answer)

    # In place of the file; what it does not answer is asked nowhere else.
    in_place = {"recorded_answer": ask, "_has_wheels": lambda _: False, "kept_answer_to": lambda *_, **__: None}
    for name, stand_in in {**in_place, "_asked_now": lambda *_: asking.NoAnswer("it is being recorded")}.items():
        setattr(asking, name, stand_in)
    for _ in _plans(record.version):
        pass
    return found, failed


def _plans(version: str) -> Iterator[Plan]:
    """The published recipes and the plain plans; of the newest release also larger sizes, usual arguments, and DP
    attention."""
    composer = Composer()
    make = _maker(composer, version)
    for name, recipe in sorted(recipes().items(), key=lambda item: item[1].gpu):  # one child for each kind of machine
        if version == NEWEST or "(image" not in recipe.source:  # those of 2026 alone name one: the wheel has no room
            yield from make([f"recipe={name}"])
    usual = Counter(recipe.gpu for recipe in recipes().values())
    classes = sorted(gpu_classes(composer), key=lambda gpu: (-usual[gpu.name], gpu.name))
    known = [
        model
        for model in models(composer)
        if "${" not in model.path  # a folder of this machine
        and has_class(version, (model.facts.config or {}).get("architectures", ())) is not False
    ]
    smallest: dict[tuple[str, str], list[str]] = {}
    for gpu in classes:
        for model in known:
            for words, plans in _plain_plans(composer, version, gpu, model):
                yield from plans
                if _fits(plans):
                    smallest.setdefault((gpu.name, model.name), words)
    for gpu in classes if version == NEWEST else ():
        for argument in _usual_arguments(gpu.facts.vendor) if gpu.name in usual else ():
            for model in known:
                if (gpu.name, model.name) in smallest:
                    yield from make([*smallest[gpu.name, model.name], argument])
    for gpu in classes if version == NEWEST else ():
        if gpu.name in usual:
            yield from _with_dp_attention(make, gpu)


def _with_dp_attention(make: Callable[[list[str]], Iterator[Plan]], gpu: GpuClass) -> Iterator[Plan]:
    """The plans of the models that recipes serve with DP attention, over all GPUs of a server: in both spellings."""
    for model in sorted({recipe.model for recipe in recipes().values() if recipe.args.get("enable_dp_attention")}):
        for size in (size for size in SIZES if 1 < size <= (gpu.facts.count or 1)):
            words = [f"gpu={gpu.name}", f"model={model}", f"tp_size={size}"]
            made = list(make([*words, f"dp_size={size}", "enable_dp_attention=true"]))
            yield from made
            if _fits(made):
                yield from make([*words, f"attn_dp_size={size}"])


def _plain_plans(
    composer: Composer, version: str, gpu: GpuClass, model: Model
) -> Iterator[tuple[list[str], list[Plan]]]:
    """The plans of a model on a GPU class, with the words of each: of the smallest size that fits, of the newest
    release also of larger ones; where none fits, of the largest."""
    make, estimate = _maker(composer, version), _maker(composer, SPECIFIED_VERSION)
    plain = [f"gpu={gpu.name}", f"model={model.name}"]
    sizes = [size for size in SIZES if size <= (gpu.facts.count or 1)]
    fits = False
    for size in sizes:
        words = [*plain, f"tp_size={size}"]
        if not fits and size < sizes[-1] and not _fits(estimate(words)):
            continue  # the weights decide, which are those of 0.5.2
        if size == 1:
            yield plain, list(make(plain))  # the same server in other words
        made = list(make(words))
        yield words, made
        fits = fits or _fits(made)
        if fits and version != NEWEST:
            return


def _usual_arguments(vendor: str | None) -> list[str]:
    """The arguments that the most recipes for GPUs of a vendor have, each with its most frequent value."""
    vendors = {gpu.name: gpu.facts.vendor for gpu in gpu_classes(Composer())}
    values: dict[str, Counter[str]] = {}
    for recipe in recipes().values():
        for name, value in recipe.args.items() if vendors[recipe.gpu] == vendor else ():
            if name not in _SIZES_OF_A_MODEL and "$" not in str(value):
                values.setdefault(name, Counter())[json.dumps(value)] += 1
    most = sorted(values, key=lambda name: (-values[name].total(), name))[:MOST_ARGUMENTS]
    return [f"{name}={values[name].most_common(1)[0][0]}" for name in most]


def _fits(made: Iterable[Plan]) -> bool:
    return any(plan.fit is not None and plan.fit.fits is not False for plan in made)


def _maker(composer: Composer, version: str) -> Callable[[list[str]], Iterator[Plan]]:
    def make(words: list[str]) -> Iterator[Plan]:
        requests = [Request(word, word) for word in [f"engine.version={version}", *words]]
        try:
            yield plan_composed(composer, requests, composer.compose(requests), seed=42, env={}, with_remedies=False)
        except SglangHydraError as failure:
            print(f"{' '.join(words)}: {failure}", file=sys.stderr)

    return make


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
