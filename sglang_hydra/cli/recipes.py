"""``recipes``: shows published launch configurations, each with its verdict."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence

from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.recipes import Recipe
from sglang_hydra.compose.recipes import recipes as published
from sglang_hydra.compose.schema import EngineNode
from sglang_hydra.planning.choosing.audit import Judged, Judging, judge_recipes, legend, legend_lines
from sglang_hydra.planning.engines.planned import plan_engine
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.flags import FILLERS
from sglang_hydra.text.screen import Line, print_json, shown, table, text, write
from sglang_hydra.text.user_settings import settings
from sglang_hydra.text.words import nearest, program, shell_word, some_of

_SOURCE_WIDTH, _WHOLE = 48, 10_000
_SEARCHED = ("gpu", "model", "scenario")


def run(invocation: Invocation) -> int:
    """Prints the published configurations that match ``gpu=`` and ``model=`` (parts of names), each with its verdict by
    the chosen release."""
    by = judging(invocation)
    chosen = chosen_recipes(invocation.requests)
    judged = list(judge_recipes(composer_of(invocation), chosen, by))
    if invocation.has("json"):
        results = [_recipe_record(recipe, item) for recipe, item in zip(chosen, judged, strict=True)]
        print_json({"schema": "sglang_hydra.recipes/1", "recipes": results})
    else:
        write(_recipe_lines(chosen, judged, by.engine.version if by else SPECIFIED_VERSION))
    return 0


def judging(invocation: Invocation) -> Judging | None:
    """Returns the release that judges: that of ``engine.version=``, which is removed from the requests, else the one
    that a plan would be for. None for 0.5.2, whose rules are ours. Raises ConfigError for an unknown release."""
    typed = [request.text.partition("=")[2] for request in invocation.requests if _is_release(request)]
    invocation.requests = [request for request in invocation.requests if not _is_release(request)]
    engine = plan_engine(EngineNode("sglang", version=typed[-1] if typed else None))
    is_open = not typed and settings().release is None and engine.installed is None
    return None if engine.provider.is_by_rules else Judging(engine, invocation.has("exact"), is_open)


def _is_release(request: Request) -> bool:
    return request.text.startswith("engine.version=")


def chosen_recipes(requests: Sequence[Request], presets: Mapping[str, Collection[str]] | None = None) -> list[Recipe]:
    """Returns the matching recipes, with ``presets`` as in ``filters``."""
    chosen = list(published().values())
    for key, value in filters(requests, presets):
        chosen = [recipe for recipe in chosen if matches(value, str(getattr(recipe, key) or ""), key)]
    return chosen


def filters(
    requests: Sequence[Request], presets: Mapping[str, Collection[str]] | None = None
) -> Iterator[tuple[str, str]]:
    """Yields the key and part of a name for each word, for names of recipes and of ``presets`` (names by key). Raises
    ConfigError for any other word, and for a part that no name has."""
    asked = [item for item in requests if item.text not in FILLERS]
    for request in asked:
        key, equals, value = request.text.rstrip("*").partition("=")
        if key not in _SEARCHED or not equals:
            message = f"{request.text}: the catalog is searched by gpu=, model= and scenario=, each a part of the name"
            hint = _meant([item.text for item in asked], "audit" if presets else "recipes")
            raise ConfigError.of("CLI021", message, hint=hint)
        known = {str(getattr(recipe, key)) for recipe in published().values() if getattr(recipe, key)}
        names = sorted({*known, *(presets or {}).get(key, ())})
        if not any(matches(value, name, key) for name in names):
            near = nearest(value, names)
            fix = f"{key}={near}" if near else None
            hint = f"there are {some_of(value, names, f'{program()} recipes')}"
            raise ConfigError.of("CLI021", f"{request.text}: nothing was published for it", key, hint=hint, fix=fix)
        yield key, value


def _meant(typed: Sequence[str], verb: str) -> str:
    """Returns the search that words ask for: ``--gpu h100`` is gpu=h100, a bare word a class or part of the name of a
    model. Names the words that no search has; for a file or folder, its check."""
    words, made, left_out = list(typed), [], []
    while words:
        word = words.pop(0)
        key, equals, value = word.lstrip("-").partition("=")
        if word.startswith((".", "/")):
            return f"{program()} check {shell_word(word)} checks files"
        if word in published():
            return f"{program()} plan recipe={word}"
        if word[:1] == "-" and not equals and words and "=" not in words[0] and words[0][:1] != "-":
            value = words.pop(0)
        elif not equals and word == key != "":
            is_class = any(matches(word, recipe.gpu, "gpu") for recipe in published().values())
            key, value = "gpu" if is_class else "model", word
        key = "engine.version" if key in ("release", "version", "sglang-version") else key
        if key in (*_SEARCHED, "engine.version") and value:
            made.append(shell_word(f"{key}={value}"))
        else:
            left_out.append(word)
    without = f", without {' '.join(left_out)}" if left_out else ""
    return f"{program()} {verb} {' '.join(made)}{without}" if made else f"{program()} {verb} --help"


def matches(asked: str | None, name: str, key: str) -> bool:
    """Returns whether the name contains one of the parts between commas; for ``gpu``, whether the part is the class, or
    several classes begin with it (``a100``, but not ``a10``)."""
    if asked is None:
        return True
    parts = [part.strip().lower() for part in asked.split(",")]
    if key != "gpu":
        return any(part in name for part in parts)
    whole = {recipe.gpu for recipe in published().values()}
    return any(name == part or (part not in whole and name.startswith(f"{part}_")) for part in parts)


def _recipe_record(recipe: Recipe, judged: Judged) -> dict[str, object]:
    return {
        **judged.to_json(),
        "id": recipe.id,
        "gpu": recipe.gpu,
        "gpus": recipe.gpus,
        "nodes": recipe.nodes,
        "model": recipe.model,
        "scenario": recipe.scenario,
        "version": recipe.version,
        "source": recipe.source,
        "note": recipe.note,
    }


def _recipe_lines(chosen: Sequence[Recipe], judged: Sequence[Judged], version: str) -> list[Line]:
    if not chosen:
        message = "No published configuration matches all words; each word alone matches some"
        return [[text(f"{message}: {program()} recipes model=..., or gpu=...")]]
    titles = ("recipe=", "GPUs", "for SGLang", f"verdict on {version}", "weights GiB", "KV tokens", "source")
    rows = [[text(title, "bold") for title in titles]]
    width = _SOURCE_WIDTH if sys.stdout.isatty() else _WHOLE
    for recipe, item in zip(chosen, judged, strict=True):
        style = {"ok": "yellow" if item.why else "green", "unknown": "yellow"}.get(item.state, "red")
        verdict = item.state if not item.why else f"{item.state}: {', '.join(item.why)}"
        verdict += f" on {item.release}" if item.release else ""
        rows.append(
            [
                text(recipe.id),
                text(f"{recipe.gpus} x {recipe.gpu}"),
                text(recipe.version),
                text(verdict, style),
                text("?" if item.weights_gib is None else f"{item.weights_gib:.1f}"),
                text("?" if item.kv_tokens is None else f"{item.kv_tokens:,}"),
                text(shown(recipe.source, width=width), "dim"),
            ]
        )
    return [*table(rows), *legend_lines(legend(judged))]
