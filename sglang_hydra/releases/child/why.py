"""Explains values: each change of a field in one case, with its place, the conditions and the values that they read.

A function of the release that names a field is traced line by line, of any other only results and exceptions, at most
40 times a case. The release is only observed: none of its objects is replaced. A step has ``file`` and ``line`` in the
wheel, ``function``, ``inputs`` (the values that the statement read), ``conditions`` ({line, holds, operands}, the
innermost first) and ``via``, the steps from which the value came. It holds no text of the release's source."""

from __future__ import annotations

import argparse
import ast
import functools
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

from . import source
from .questions import Asked
from .reading import HIDDEN, SECRET, Results, differing, is_simple, names_secret, scopes_of, shortened, value_of
from .release_code import Code, code_of

_MOST_CONDITIONS = 6
_DEEPEST = 8
_LONGEST_CHAIN = 16
"""Kept assignments of one name, each of which reads the result of the one before."""
_MOST_STEPS = 40
"""Statements behind one change."""
_MOST_CALLS = 40
"""After that many calls in one case, a function is no longer traced: it reads values, and decides none."""


class Done:
    """A statement that ran once: the values that it read, and the results of its calls. A function without traced lines
    has one for all of its statements."""

    __slots__ = ("calls", "node", "reads", "results")

    def __init__(self, node: ast.stmt | None) -> None:
        self.node = node
        self.reads: dict[str, Any] = {}
        self.calls: dict[str, Run] = {}
        self.results: Results = {}


class Run:
    """A running or finished function. ``moved`` is the number of fields that had values at its start."""

    __slots__ = ("assigned", "at", "caller", "code", "done", "frame", "last", "moved", "seen")

    def __init__(self, code: Code, caller: Run | None, frame: FrameType, moved: int) -> None:
        self.code, self.caller, self.frame, self.moved = code, caller, frame, moved
        self.seen: ast.stmt | None = None
        self.at = (caller.frame.f_lineno, caller.seen) if caller else (0, None)
        self.done = Done(None)
        self.last: dict[ast.stmt, Done] = {}
        self.assigned: dict[str, list[Done]] = {}

    @property
    def called(self) -> ast.stmt | None:
        """Returns the statement of the caller."""
        line, seen = self.at
        return self.caller.code.statements.get(line) if self.caller and self.caller.code.is_quiet else seen

    @property
    def node(self) -> ast.stmt | None:
        """Returns the statement that runs, or ran last."""
        return self.code.statements.get(self.frame.f_lineno) if self.code.is_quiet else self.seen


class Why:
    """Watches one case, inside ``with``. ``kind`` is the class of the arguments, ``plain`` converts a value to JSON."""

    def __init__(self, kind: type, plain: Callable[[Any], Any]) -> None:
        self.kind, self.plain = kind, plain
        home = os.path.abspath(sys.modules[kind.__module__].__file__ or "")
        self.package = home[: home.rindex("/sglang/") + len("/sglang/")]
        self.owner: Any = None
        self.names: frozenset[str] = frozenset()
        self.values: dict[str, Any] = {}
        self.parsed: dict[str, Any] = {}
        self.written: dict[str, Any] = {}
        self.defaults: dict[str, Any] = {}
        self.changes: list[dict[str, Any]] = []
        self.named: dict[str, tuple[Run, ast.stmt]] = {}
        self.filled: dict[str, tuple[Run, ast.stmt, dict[ast.stmt, Done]]] = {}  # items that may belong to fields
        self.raised: dict[int, tuple[BaseException, Run, ast.stmt | None]] = {}
        self.failed: str | None = None
        self.runs: dict[FrameType, Run] = {}
        self.calls: Counter[Code] = Counter()
        self.stash: tuple[Any, int] = (None, 0)
        self.seen: list[Any] = []
        self.declared: dict[str, list[Any]] = {}  # the declared values of fields, written at the end
        self.records: set[str] = set()  # fields whose value has fields, written one by one
        self.parts: dict[str, list[tuple[Run, Done, Any]]] = {}  # the values that an attribute of some object got
        self.moved: list[str] = []
        self.shown: set[int] = set()
        self.secrets: list[str] = []

    def __enter__(self) -> Why:
        """Watches from the parsing of the command line on: the parser's own calls are many, and set nothing."""

        def parse(*values: Any, **options: Any) -> Any:
            parsed = _parse(*values, **options)
            sys.settrace(self._called)
            return parsed

        argparse.ArgumentParser.parse_known_args = parse  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stops watching: the following code only writes the values down."""
        sys.settrace(None)
        argparse.ArgumentParser.parse_known_args = _parse  # type: ignore[method-assign]

    def answer(self, values: Mapping[str, Any] | None, error: BaseException | None) -> dict[str, Any]:
        """Returns the changes and the refusing check. An unobserved change has no place."""
        for name, value in (values or {}).items():
            is_default = self.values.get(name) == self.parsed.get(name) and self.defaults.get(name) == value
            if name in self.values and self.values[name] != value and not is_default:
                self._changed(name, value, {})
        _, run, node = self.raised.get(id(error), (None, None, None))
        check = self._step(run, node) if run and node else None
        return {"changes": self.changes, "check": check, "failed": self.failed}

    # -- the trace

    def _called(self, frame: FrameType, event: str, value: Any) -> Any:
        code = _codes.get(frame.f_code, self)
        return self._line if code is not None and self._safely(self._enter, frame, code) else None

    def _line(self, frame: FrameType, event: str, value: Any) -> Any:
        return self._line if self._safely(self._passed, frame, event, value) else None

    def _safely(self, step: Callable[..., bool], *values: Any) -> bool:
        """Runs a step whose failure must not reach the release; after a failure the rest of the case is not watched."""
        first = Asked.first
        try:
            return step(*values)
        except BaseException as error:  # noqa: BLE001 - a question that is refused is no Exception
            Asked.first = first
            self.failed = f"{type(error).__name__}: {error}"
            self.end()
            return False

    def _enter(self, frame: FrameType, code: Any) -> bool:
        if code is self:
            code = _codes[frame.f_code] = code_of(frame.f_code, self.package)
            if code is None:
                return False
        if self.owner is None:
            if frame.f_code.co_name != "__post_init__":
                return False
            self._begin(frame.f_locals.get("self"))
        self.calls[code] += 1
        if self.calls[code] > _MOST_CALLS:
            if frame.f_back in self.runs:
                self.runs[frame.f_back].done.results.setdefault(code.name, []).append((None, None))
            return False
        if code.is_quiet is None:
            code.is_quiet = not (code.counts or code.names_one_of(self.names))
        frame.f_trace_lines = not code.is_quiet
        caller = frame.f_back
        while caller is not None and caller not in self.runs:
            caller = caller.f_back
        self.runs[frame] = Run(code, self.runs[caller] if caller else None, frame, len(self.moved))
        return True

    def _begin(self, owner: Any) -> None:
        if isinstance(owner, self.kind):
            self.owner = owner
            names = getattr(owner, "__struct_fields__", ()) or getattr(owner, "__dataclass_fields__", ())
            self.names = frozenset(name for name in names if name[:1] != "_")
            self.values = {name: self._plain(getattr(owner, name)) for name in self.names}
            self.parsed, self.written = dict(self.values), dict(self.values)
            self.defaults = self._plain(owner.resolved_dict()) if hasattr(owner, "resolved_dict") else {}
            given = [self.values[name] for name in self.names if SECRET.search(name)]
            self.secrets = [value for value in given if isinstance(value, str) and value]

    def _passed(self, frame: FrameType, event: str, value: Any) -> bool:
        run = self.runs[frame]
        if event == "line":
            node = run.code.statements.get(frame.f_lineno)
            if node is not run.node or node is None:  # a long condition comes back to its first line
                self._finish(run, frame)
                run.seen = node
                if node is not None:
                    self._start(run, node, frame)
        elif event == "return":
            if not run.code.is_quiet:
                self._finish(run, frame)
            del self.runs[frame]
            if run.caller is not None:
                run.caller.done.calls[run.code.name] = run
                run.caller.done.results.setdefault(run.code.name, []).append((frame.f_code, value))
        elif event == "exception" and id(value[1]) not in self.raised:
            self.raised[id(value[1])] = (value[1], run, run.node)
        return True

    def _start(self, run: Run, node: ast.stmt, frame: FrameType) -> None:
        head = run.code.head(node)
        run.done = run.last[node] = Done(node)
        if head.nodes:
            run.done.reads = self._read(head.before, frame, {})
        for name in head.locals:
            earlier = run.assigned.get(name, []) if name in head.nodes else []  # x = max(x, y) goes on
            run.assigned[name] = [*earlier[1 - _LONGEST_CHAIN :], run.done]
        for name in head.named:
            self.named[name] = (run, node)
        for index in head.items:  # fields[name] = value, in a loop: the value then
            self.filled[self._name_of(index, frame)] = (run, node, dict(run.last))

    def _finish(self, run: Run, frame: FrameType) -> None:
        """Finishes the statement that ran last: its calls have returned, and fields may have new values."""
        if run.node is not None:
            head = run.code.head(run.node)
            if head.after:  # its first reading counts: it may have written since
                run.done.reads = self._read(head.after, frame, run.done.results) | run.done.reads
            for part, target in head.parts:
                value = self._read([(part, target)], frame, {}).get(part, HIDDEN)
                self.parts[part] = [*self.parts.get(part, [])[1 - _LONGEST_CHAIN :], (run, run.done, value)]
            if self.owner is not None:
                for name in head.writes:
                    self._look(name, run, self._place)
                for each in head.dynamic:
                    self._look(self._name_of(each, frame), run, self._place)
                for name in self.records if head.writes_within else ():
                    self._look(name, run, self._here)
        stash = getattr(self.owner, "_resolved_overrides", None)
        if stash and (stash, len(stash)) != self.stash:
            self._declared(stash, run)

    def _name_of(self, node: ast.expr, frame: FrameType) -> str:
        return str(self._read([("", node)], frame, {}).get(""))

    # -- what changed

    def _look(self, name: str, run: Run, place: Callable[[str, Run], dict[str, Any]]) -> None:
        """Checks whether a statement has written another value; a declared value may have overtaken it."""
        if name in self.values:
            value = self._plain(getattr(self.owner, name))
            is_written, self.written[name] = value != self.written[name], value
            if isinstance(value, dict):
                self.records.add(name)
            declared = self.declared.get(name, [])
            is_replayed = value in declared and self.values[name] == declared[-1]
            if is_written and value != self.values[name] and not is_replayed:
                self._moves(name)
                self._changed(name, value, place(name, run))

    def _declared(self, stash: Sequence[Any], run: Run) -> None:
        self.stash = (stash, len(stash))
        for entry in stash:
            if not any(entry is other for other in self.seen):
                self.seen.append(entry)
                for name, value in entry[1].items():
                    made = self._plain(value)
                    self.declared.setdefault(name, []).append(made)
                    if name in self.values and made != self.values[name]:
                        self._moves(name)
                        self._changed(name, made, self._place(name, run))

    def _moves(self, name: str) -> None:
        self.moved.append(name)
        self.shown.clear()

    def _changed(self, name: str, value: Any, step: dict[str, Any]) -> None:
        before, self.values[name] = self.values[name], value
        before, after = differing(before, value)
        if step:
            step["via"] += self._written_within(after)
        if SECRET.search(name):
            before, after = (HIDDEN if each else each for each in (before, after))
        self.changes.append({"field": name, "before": shortened(before), "after": shortened(after), **step})

    def _written_within(self, after: Any) -> list[dict[str, Any]]:
        """Returns the statements that wrote the parts of a value one by one, before it became the argument's."""
        found = []
        for name, value in after.items() if isinstance(after, dict) else ():
            if isinstance(value, dict):
                found += self._written_within(value)
            else:
                same = [(run, done) for run, done, written in self.parts.get(name, ()) if written == shortened(value)]
                for run, done in same[-1:]:
                    found += self._steps(run, [done], 0)
        return found

    def _plain(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        first = Asked.first
        try:
            return self.plain(value)
        except BaseException:  # noqa: BLE001 - an inert name among the values; the answer itself will refuse it
            return HIDDEN
        finally:
            Asked.first = first

    # -- where and why

    def _place(self, name: str, run: Run) -> dict[str, Any]:
        """Returns the step that set a field: the innermost running statement that names it, else the last one that ran,
        else the statement that wrote it."""
        at: Run | None = run
        while at is not None:
            if at.node is not None and name in at.code.head(at.node).named:
                self.named.pop(name, None)
                return self._step(at, at.node, name)
            at = at.caller
        if name in self.named:
            return self._step(*self.named.pop(name), name)
        if name not in self.filled:
            return self._here(name, run)
        run, node, then = self.filled.pop(name)
        now, run.last = run.last, then
        try:
            return self._step(run, node, name)
        finally:
            run.last = now

    def _here(self, name: str, run: Run) -> dict[str, Any]:
        return self._step(run, run.node) if run.node is not None else {}

    def _step(
        self, run: Run, node: ast.stmt, name: str | None = None, depth: int = 0, done: Done | None = None
    ) -> dict[str, Any]:
        done = done or run.last.get(node, run.done)
        read = getattr(node, "value", getattr(node, "iter", None))
        line, value = run.code.head(node).named.get(name or "", (node.lineno, read))
        self.shown.add(id(done))
        conditions = self._conditions(run, node)
        via = [] if value is None or depth >= _DEEPEST else self._via(run, value, depth, done)
        for each in via:
            each["conditions"] = [one for one in each["conditions"] if one not in conditions]
        return {
            "file": run.code.place,
            "line": line,
            "function": run.code.name,
            "inputs": self._inputs(run, node, value, done),
            "conditions": conditions,
            "via": via,
        }

    def _inputs(self, run: Run, node: ast.stmt, value: ast.expr | None, done: Done) -> dict[str, Any]:
        if value is None:
            return {}
        before = [node.target] if isinstance(node, ast.AugAssign) else run.code.head(node).items
        mine = {source.text_of(each) for each in source.operands([value, *before])}
        return {text: read for text, read in self._operands(run, node, done).items() if text in mine}

    def _via(self, run: Run, value: ast.expr, depth: int, done: Done) -> list[dict[str, Any]]:
        """Returns the origin of a value: the statements that computed its names, if conditions or several statements
        decide, and the results of functions of the release."""
        found: list[dict[str, Any]] = []
        is_answer = isinstance(value, ast.Call) and source.called(value) in done.calls
        for each in [value] if is_answer else ast.walk(value):
            if isinstance(each, ast.Name):
                before = [one for one in run.assigned.get(each.id, ()) if one is not done]
                if done in run.assigned.get(each.id, ()):  # x += y: the chain has the old x
                    continue
                if each is value or len(before) > 1 or any(self._is_decided(run, one) for one in before):
                    found += self._steps(run, before, depth + 1)
            elif isinstance(each, ast.Call) and (other := done.calls.get(source.called(each))):
                is_number = any(type(answer) in (int, float) for _, answer in done.results[source.called(each)])
                if (each is value or is_number) and isinstance(other.node, ast.Return):
                    found += self._steps(other, [other.last.get(other.node, other.done)], depth + 1)
        return found

    def _is_decided(self, run: Run, done: Done) -> bool:
        """Returns whether an assignment depends on conditions, computes, or takes a function's number."""
        answers = [value for listed in done.results.values() for _, value in listed]
        node = done.node
        return node is not None and (
            bool(run.code.source.guards(node))
            or any(isinstance(each, ast.BinOp) for each in ast.walk(node))
            or any(type(v) in (int, float) for v in answers)
        )

    def _steps(self, run: Run, listed: Sequence[Done], depth: int) -> list[dict[str, Any]]:
        """Returns each statement once, up to the limit of one change."""
        found = []
        for done in listed:
            node = done.node or run.node
            if node is not None and id(done) not in self.shown and len(self.shown) < _MOST_STEPS:
                found.append(self._step(run, node, None, depth, done))
        return found

    def _conditions(self, run: Run, node: ast.stmt) -> list[dict[str, Any]]:
        found = self._held(run, run.code.source.guards(node))
        while not found and run.caller is not None and run.called is not None:
            around = [guard for guard in run.caller.code.source.guards(run.called) if guard.is_around]
            run = run.caller
            found = self._held(run, around)
        return found[:_MOST_CONDITIONS]

    def _held(self, run: Run, guards: Sequence[source.Guard]) -> list[dict[str, Any]]:
        return [
            {
                "file": run.code.place,
                "line": guard.test.lineno,
                "holds": guard.holds,
                "operands": self._operands(run, guard.node, run.last.get(guard.node, run.done)),
            }
            for guard in sorted(guards, key=lambda each: not each.is_around)
        ]

    # -- what was read

    def _operands(self, run: Run, node: ast.stmt, done: Done) -> dict[str, Any]:
        """Returns the values that a statement read: for a running one with the results of its calls so far; in a
        function without traced lines its present values, except fields that have new values since its start."""
        if not run.code.is_quiet:
            if done.node is node and done is run.done and run.frame in self.runs:
                return self._read(run.code.head(node).answered, run.frame, done.results) | done.reads
            return done.reads if done.node is node else {}
        head, moved = run.code.head(node), set(self.moved[run.moved :])
        still = [each for each in (*head.before, *head.after) if moved.isdisjoint(source.attributes(each[1]))]
        return self._read(still, run.frame, run.done.results)

    def _read(self, operands: Sequence[tuple[str, ast.expr]], frame: FrameType, results: Results) -> dict[str, Any]:
        if not operands:
            return {}
        first, assumed, scopes = Asked.first, dict(Asked.assumed), scopes_of(frame)
        found = {}
        for text, node in operands:
            try:
                value = value_of(node, scopes, results)
                if is_simple(value):
                    found[text] = self._masked(text, value)
            except BaseException:  # noqa: BLE001 - it cannot be read without running the release
                continue
        Asked.first, Asked.assumed = first, assumed
        return found

    def _masked(self, text: str, value: Any) -> Any:
        texts = [each for each in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(each, str)]
        is_secret = value and (names_secret(text) or any(secret in each for secret in self.secrets for each in texts))
        return HIDDEN if is_secret else shortened(value)


_parse = argparse.ArgumentParser.parse_known_args
_codes: dict[CodeType, Code | None] = {}


def unwatched(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns ``function`` so that it runs without a trace: it sets no argument."""

    @functools.wraps(function)
    def run(*values: Any, **options: Any) -> Any:
        watching = sys.gettrace()
        if watching is None:
            return function(*values, **options)
        sys.settrace(None)
        try:
            return function(*values, **options)
        finally:
            sys.settrace(watching)

    return run
