"""Computes the reasons of random command lines again: each statement and each condition, from the operands it shows.

    python tools/recomputed_reasons.py 0.5.18 0.5.21 0.5.23 --changes 2000 --seed 1

The statement and the conditions of a step are read from the release's wheel; the values of their names, attributes and
calls are those that the step shows. A condition must come out as it was, a statement as the value that the change or
the next step has, and the statement of a change names its field. What a step does not show all operands of cannot be
computed, and is counted apart.

``arithmetic`` counts every statement that adds, multiplies or divides; those of which not all operands are shown are
listed. Of a long list only the first items are shown: what reads one is counted as ``of a cut list``. Exit code: 0
nothing is false, 1 something is, or a release has fewer changes than asked for.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that a bare checkout will do

from random_release_cases import drawn
from release_cases import MODELS

from sglang_hydra.releases import wheels
from sglang_hydra.releases.case import Case
from sglang_hydra.releases.child import source
from sglang_hydra.releases.child.reading import shortened
from sglang_hydra.releases.records import record_of
from sglang_hydra.releases.release import ask_release
from sglang_hydra.rules.answer import Change, Step

GPUS = ("h20", "h200", "b200", "mi300x", "l40s")
PURE: Mapping[str, Any] = {
    "abs": abs, "all": all, "any": any, "bool": bool, "callable": callable, "ceil": math.ceil, "dict": dict,
    "float": float, "floor": math.floor, "int": int, "isinstance": isinstance, "len": len, "list": list, "math": math,
    "max": max, "min": min, "range": range, "round": round, "set": set, "sorted": sorted, "str": str, "sum": sum,
    "tuple": tuple,
}  # fmt: skip
UNKNOWN = object()


class Shown(ast.NodeTransformer):
    """Puts a name in place of what has the text of a shown value, and keeps the ``values`` of these names. One that was
    cut has none, and so nothing is computed of it."""

    def __init__(self, operands: Mapping[str, Any]) -> None:
        self.operands, self.values = operands, dict[str, Any]()

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and (text := source.text_of(node)) in self.operands:
            name, value = f"shown_{len(self.values)}", self.operands[text]
            self.values[name] = UNKNOWN if "…" in str(value) or value == "***" else value
            return ast.copy_location(ast.Name(name, ast.Load()), node)
        return self.generic_visit(node)


def computed(expression: ast.expr, operands: Mapping[str, Any]) -> Any:
    """The value of an expression by its operands; UNKNOWN where one that decides is not shown, or was cut."""
    tree = ast.parse(source.text_of(expression), mode="eval")
    own = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    shown = Shown({text: value for text, value in operands.items() if text not in own})
    tree.body = shown.visit(tree.body)
    names = {name: value for name, value in shown.values.items() if value is not UNKNOWN}
    try:
        return eval(compile(ast.fix_missing_locations(tree), "shown", "eval"), {"__builtins__": {}, **PURE, **names})
    except Exception:  # noqa: BLE001 - a name or a call of which no value is shown
        return UNKNOWN


class Checker:
    """Checks the reasons of one release; ``counts`` says how many were computed, ``false`` has a line for each wrong
    one."""

    def __init__(self, version: str) -> None:
        self.record = record_of(version)
        assert self.record is not None
        self.version, self.counts = version, Counter[str]()
        self.false, self.unseen = list[str](), list[str]()

    def change(self, change: Change) -> None:
        self.counts["changes"] += 1
        if change.step is not None:
            self.place(change.step, change)
            self.step(change.step, None, change)

    def place(self, step: Step, change: Change) -> None:
        """The statement of a change names its field, or one within its value, or reads its name."""
        node = statement(self.source(step.file), step.line)
        text = f"{'' if node is None else source.text_of(node)} {list(step.inputs.values())}"
        within = re.findall(r"'(\w+)':", str(change.after)) if isinstance(change.after, dict) else []
        is_named = any(name in text for name in (change.field, *within))
        self.count("places", is_named, text, f"{step.place}: {change.field}")

    def step(self, step: Step, above: Step | None, change: Change) -> None:
        code = self.source(step.file)
        node = statement(code, step.line)
        self.conditions(step)
        if node is not None:
            self.statement(step, node, above, change)
            self.arithmetic(step, node, None if above else change.field)
        for before, after in zip(step.via, step.via[1:], strict=False):
            self.chained(before, after)
        for other in step.via:
            self.step(other, step, change)

    def conditions(self, step: Step) -> None:
        for each in step.conditions:
            test = self.source(each.file).tests.get(each.line)
            made = UNKNOWN if test is None else computed(test, each.operands)
            self.count("conditions", made is UNKNOWN or bool(made) == each.holds, made, f"{each.place} {each}")

    def statement(self, step: Step, node: ast.stmt, above: Step | None, change: Change) -> None:
        """A field's value is that of the change; a local or a returned one is what the statement above reads."""
        if above is None:
            value = source.named(node).get(change.field, (0, None))[1]
            wanted, made = change.after, UNKNOWN if value is None else computed(value, step.inputs)
            texts = map(source.text_of, source.targets(node))
            target = next((text for text in texts if text.rpartition(".")[2] == change.field), None)
            if target is not None:
                made = assigned(node, step.inputs, target)
            elif made is UNKNOWN:
                made = self.appended(node, step, wanted)
            if isinstance(wanted, dict) or "…" in str(wanted):
                return
        elif isinstance(node, ast.Return):
            calls = {text: ast.parse(text, mode="eval").body for text in above.inputs}
            mine = [
                t for t, each in calls.items() if isinstance(each, ast.Call) and source.called(each) == step.function
            ]
            if len(mine) != 1:
                return
            wanted, made = above.inputs[mine[0]], assigned(node, step.inputs)
        else:
            target = next(
                (text for each in source.targets(node) if (text := source.text_of(each)) in above.inputs), None
            )
            if target is None or above.via[-1:] != (step,):
                return
            wanted, made = above.inputs[target], assigned(node, step.inputs, target)
            if isinstance(node, ast.For):  # one of these
                made = computed(node.iter, step.inputs)
                made = made if made is UNKNOWN else next((each for each in made if same(each, wanted)), made)
        kind = "returns" if isinstance(node, ast.Return) else "statements"
        self.count(kind, made is UNKNOWN or same(made, wanted), made, f"{step.place}: {step.inputs} -> {wanted!r}")

    def appended(self, node: ast.stmt, step: Step, wanted: Any) -> Any:
        """What a list is after ``x.append(y)``; ``y`` is a record of the words that the statement before made it of,
        with the fields of the ``wanted`` one that its class fills in."""
        call = getattr(node, "value", None)
        place = getattr(call, "func", None)
        if not isinstance(call, ast.Call) or not isinstance(place, ast.Attribute) or place.attr != "append":
            return UNKNOWN
        before = computed(place.value, step.inputs)
        for other in step.via:
            made = statement(self.source(other.file), other.line)
            if made is not None and source.text_of(call.args[0]) in map(source.text_of, source.targets(made)):
                words = getattr(getattr(made, "value", None), "keywords", ())
                filled = wanted[-1] if isinstance(wanted, list) and wanted and isinstance(wanted[-1], dict) else {}
                return [*before, filled | {word.arg: computed(word.value, other.inputs) for word in words}]
        return UNKNOWN

    def arithmetic(self, step: Step, node: ast.stmt, field: str | None) -> None:
        """Every statement that adds, multiplies or divides shows all of its operands."""
        value = source.named(node).get(field or "", (0, getattr(node, "value", None)))[1]
        if isinstance(node, ast.AugAssign) or any(isinstance(each, ast.BinOp) for each in ast.walk(value or node)):
            made = UNKNOWN if value is None else computed(value, step.inputs)
            made = assigned(node, step.inputs) if isinstance(node, ast.AugAssign) else made
            text = f"{step.place}: {step.inputs}"
            self.count("arithmetic", True, made, text)
            self.unseen += [text] if made is UNKNOWN and "…" not in text else []

    def chained(self, before: Step, after: Step) -> None:
        """A statement that goes on from the one before reads what that one made."""
        nodes = [statement(self.source(each.file), each.line) for each in (before, after)]
        if before.file != after.file or nodes[0] is None or nodes[1] is None:
            return
        for name in {source.text_of(each) for each in source.targets(nodes[0])} & after.inputs.keys():
            if name in {source.text_of(each) for each in source.targets(nodes[1])}:
                made = assigned(nodes[0], before.inputs, name)
                is_true = made is UNKNOWN or same(made, after.inputs[name])
                self.count("sums", is_true, made, f"{before.place} -> {after.place}: {before.inputs} -> {after.inputs}")

    def count(self, kind: str, is_true: bool, made: Any, text: str) -> None:
        missing = "of a cut list" if "…" in text else "not computed"
        self.counts[kind if made is not UNKNOWN else f"{kind} {missing}"] += 1
        if not is_true:
            self.false.append(f"{self.version}: {kind}: {text}: computed {made!r}")

    def source(self, file: str) -> source.Source:
        assert self.record is not None
        return source.source_of(wheels.source_text(self.record.wheel, file) or "")


def statement(code: source.Source, line: int) -> ast.stmt | None:
    function = code.function_at(line)
    return source.statements(function).get(line) if function is not None else None


def assigned(node: ast.stmt, operands: Mapping[str, Any], target: str | None = None) -> Any:
    """What a statement makes of the ``target`` that it assigns to, its only one without, or what it returns."""
    value = getattr(node, "value", None)
    if isinstance(node, ast.AugAssign):
        return computed(ast.BinOp(node.target, node.op, node.value), operands)
    made = UNKNOWN if value is None else computed(value, operands)
    if not any(isinstance(each, (ast.Tuple, ast.List)) for each in getattr(node, "targets", ())):
        return made
    names = [source.text_of(each) for each in source.targets(node)]
    return made[names.index(target)] if target in names and isinstance(made, (list, tuple)) else UNKNOWN


def same(left: Any, right: Any) -> bool:
    """Whether a computed value is the shown one, which may be cut."""
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return math.isclose(left, right, rel_tol=1e-9)
    return bool(left == right or json.loads(json.dumps(shortened(left), default=str)) == right)


def changes(version: str, seed: int, count: int) -> Iterator[Change]:
    """The changes of random command lines that the release accepts, ``count`` of them."""
    models = json.loads(MODELS.read_text(encoding="utf-8"))
    rows = list(drawn(version, count // 4, seed, GPUS, models))
    random.Random(seed).shuffle(rows)
    for start in range(0, len(rows), 20):
        batch = sorted(rows[start : start + 20], key=lambda row: str(row["gpu"]))
        asked = [Case(tuple(row["argv"]), row["machine"], row["models"]) for row in batch]
        for answer in ask_release(version, asked, use_kept=False, why=True):
            for change in answer.changes:
                yield change
                count -= 1
                if not count:
                    return


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", nargs="+")
    parser.add_argument("--changes", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    failed = False
    warnings.simplefilter("ignore", SyntaxWarning)  # "is" beside a value that stands for a name
    for version in options.version:
        checker = Checker(version)
        for change in changes(version, options.seed, options.changes):
            checker.change(change)
        print(*checker.false[:20], *dict.fromkeys(checker.unseen[:20]), sep="\n")
        print(f"{version}: {len(checker.false)} false; {dict(sorted(checker.counts.items()))}", flush=True)
        failed |= bool(checker.false) or checker.counts["changes"] < options.changes
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
