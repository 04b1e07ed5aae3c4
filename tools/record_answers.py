"""Records what releases make of the published recipes and of the catalog's plain plans.

    python tools/record_answers.py [VERSION...] [--fresh | --check]

Writes sglang_hydra/upstream/recorded_answers/VERSION.json.gz, for the newest release and four others, and
VERSION.first.json.gz for each other release that is chosen for a model where nobody names one, with the plain plans of
those models. VERSION names some of them. A plain plan is a model on a GPU class, on the fewest GPUs of one node that it
fits into, with tp_size=1 and without it where one GPU will do. A release whose wheels are not here is left as it is
(``python serve.py release fetch VERSION``). A question whose answer is recorded is asked again with ``--fresh`` only.
With ``--check``, which asks all, nothing is written; it is an error where a file would be another one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.recipes import recipes
from sglang_hydra.planning import release_answer
from sglang_hydra.planning.catalog import gpu_classes, models
from sglang_hydra.planning.make import plan_composed
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.serving_release import first_serving, needed_by
from sglang_hydra.releases.architectures import has_class
from sglang_hydra.text.errors import SglangHydraError
from sglang_hydra.upstream import recorded, wheels
from sglang_hydra.upstream.case import Answer, Case, answer_of
from sglang_hydra.upstream.records import Record, record_of
from sglang_hydra.upstream.release import raw_answers

RELEASES = ("0.5.23", "0.5.20", "0.5.18", "0.5.15", "0.5.12")
SIZES = (1, 2, 4, 8)


def main(words: list[str]) -> int:
    check, fresh = "--check" in words, not {"--check", "--fresh"}.isdisjoint(words)
    differing = 0
    chosen = _first_releases()
    others = sorted(set().union(*chosen.values()) - {*RELEASES, None}, key=str)
    for version in [word for word in words if word[0] != "-"] or [*RELEASES, *map(str, others)]:
        record, first = record_of(version), version not in RELEASES
        if record is None:
            sys.exit(f"SGLang {version} is not recorded")
        if wheels.missing(record):
            print(f"{version}: left as it is, its wheels are not here: python serve.py release fetch {version}")
            continue
        file = recorded.file_of(version, first=first)
        before = file.read_bytes() if file.exists() else b""
        only = [name for name, needed in chosen.items() if version in needed] if first else None
        answers, unanswered = _answers(record, {} if fresh else recorded.raw_answers_of(record), only)
        size = recorded.write_answers(record, answers, first=first)
        print(f"{version}: {len(answers)} answers, {size:,} bytes, {unanswered} not answered", flush=True)
        if check and file.read_bytes() != before:
            print(f"{file} would be another one")
            file.write_bytes(before)
            differing += 1
    if not check:
        recorded.write_resolved_fields()
    return 1 if differing else 0


def _first_releases() -> dict[str, set[str | None]]:
    """By model preset the releases that are chosen where nobody names one, on a GPU that runs its format since then and
    on one of before (NVFP4 on Hopper); None for 0.5.2."""
    composer, found = Composer(), {}
    before = next(gpu.facts for gpu in gpu_classes(composer) if gpu.name == "h100")
    for model in models(composer):
        composition = composer.compose([Request(word, word) for word in ("gpu=h100", f"model={model.name}")])
        needs = (needed_by(composition, model.facts, {}, gpu) for gpu in (None, before))
        found[model.name] = {first_serving([need]) for need in needs}
    return found


def _answers(
    record: Record, known: Mapping[str, Mapping[str, Any]], only: Collection[str] | None
) -> tuple[dict[str, Mapping[str, Any]], int]:
    """The raw answers by their key, of those ``known`` already as they are, and how many plans got none."""
    found: dict[str, Mapping[str, Any]] = {}
    failed = 0

    def ask(_: Record, case: Case) -> Answer | None:
        nonlocal failed
        key = recorded.key_of(case)
        answer = known.get(key) or found.get(key) or next(raw_answers(record, [case]))
        if answer.get("ok") is None or answer.get("by_library"):  # the model was not told whole
            failed += 1
            return None
        found[key] = answer
        return answer_of(answer)

    release_answer.recorded_answer = ask
    for _ in _plans(record.version, only):
        pass
    return found, failed


def _plans(version: str, only: Collection[str] | None) -> Iterator[Plan]:
    """The published recipes and the plain plans; of the models ``only`` where they are named, and then no recipes."""
    composer = Composer()
    make, estimate = _maker(composer, version), _maker(composer, "0.5.2")
    published = recipes().items() if only is None else ()
    for name, _ in sorted(published, key=lambda item: item[1].gpu):  # one child for each kind of machine
        yield from make([f"recipe={name}"])
    for gpu in gpu_classes(composer):
        for model in models(composer):
            if "${" in model.path or (only is not None and model.name not in only):
                continue  # a folder of this machine, or not asked for
            if has_class(version, (model.facts.config or {}).get("architectures", ())) is False:
                continue
            plain = [f"gpu={gpu.name}", f"model={model.name}"]
            sizes = [size for size in SIZES if size <= (gpu.facts.count or 1)]
            for size in sizes:
                if size < sizes[-1] and not _fits(estimate([*plain, f"tp_size={size}"])):
                    continue  # the weights decide, which are those of 0.5.2
                if size == 1:
                    yield from make(plain)  # the same server in other words
                made = list(make([*plain, f"tp_size={size}"]))
                yield from made
                if _fits(made):
                    break


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
