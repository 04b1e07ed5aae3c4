"""Why a value is what it is: each change of a field in one case, with its place, the conditions and what they read.

A function of the release that names a field is traced line by line, of any other what it returns or raises, at most
40 times a case. It is only watched: no object of the release is replaced. A step has ``file`` and ``line`` in the
wheel, ``function``, ``inputs`` (what the statement read), ``conditions`` ({line, holds, operands}, the innermost first)
and ``via``, the steps that the value came from. No text of the release's source is in it.
"""

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
from .reading import HIDDEN, SECRET, differing, is_simple, names_secret, scopes_of, shortened, value_of
from .release_code import Code, code_of

_MOST_CONDITIONS = 6
_MOST_STEPS = 4
_MOST_CALLS = 40
"""After so many calls in one case a function is no longer watched: it reads values, and decides none."""


class Run:
    """A function that runs or has run."""

    __slots__ = ("assigned", "at", "caller", "code", "frame", "reads", "results", "returned", "seen")

    def __init__(self, code: Code, caller: Run | None, frame: FrameType) -> None:
        self.code, self.caller, self.frame = code, caller, frame
        self.seen: ast.stmt | None = None
        self.at = (caller.frame.f_lineno, caller.seen) if caller else (0, None)
        self.reads: dict[ast.stmt, dict[str, Any]] = {}
        self.assigned: dict[str, list[ast.stmt]] = {}
        self.returned: dict[str, Run] = {}
        self.results: dict[str, Any] = {}

    @property
    def called(self) -> ast.stmt | None:
        """The statement of the caller."""
        line, seen = self.at
        return self.caller.code.statements.get(line) if self.caller and self.caller.code.is_quiet else seen

    @property
    def node(self) -> ast.stmt | None:
        """The statement that runs, or ran last."""
        return self.code.statements.get(self.frame.f_lineno) if self.code.is_quiet else self.seen


class Why:
    """Watches one case, inside ``with``. ``kind`` is the class of the arguments, ``plain`` makes JSON of a value."""

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
        self.raised: dict[int, tuple[BaseException, Run, ast.stmt | None]] = {}
        self.failed: str | None = None
        self.runs: dict[FrameType, Run] = {}
        self.calls: Counter[Code] = Counter()
        self.stash: tuple[Any, int] = (None, 0)
        self.seen: list[Any] = []
        self.records: set[str] = set()  # fields whose value has fields of its own, which are written one by one
        self.secrets: list[str] = []

    def __enter__(self) -> Why:
        """Watches from the moment when the command line is parsed: the parser's own calls are many, and set nothing."""

        def parse(*values: Any, **options: Any) -> Any:
            parsed = _parse(*values, **options)
            sys.settrace(self._called)
            return parsed

        argparse.ArgumentParser.parse_known_args = parse  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Watches no longer: what follows only writes the values down."""
        sys.settrace(None)
        argparse.ArgumentParser.parse_known_args = _parse  # type: ignore[method-assign]

    def answer(self, values: Mapping[str, Any] | None, error: BaseException | None) -> dict[str, Any]:
        """The changes, and the check that refused. A field that changed unseen has a change without a place."""
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
        """What fails here must not reach the release: then the rest of the case is not watched."""
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
            return False
        if code.is_quiet is None:
            code.is_quiet = not code.names_one_of(self.names)
        frame.f_trace_lines = not code.is_quiet
        caller = frame.f_back
        while caller is not None and caller not in self.runs:
            caller = caller.f_back
        self.runs[frame] = Run(code, self.runs[caller] if caller else None, frame)
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
                run.caller.returned[run.code.name] = run
                run.caller.results[run.code.name] = value
        elif event == "exception" and id(value[1]) not in self.raised:
            self.raised[id(value[1])] = (value[1], run, run.node)
        return True

    def _start(self, run: Run, node: ast.stmt, frame: FrameType) -> None:
        head = run.code.head(node)
        run.results = {}
        if head.nodes:
            run.reads[node] = self._read(head.before, frame, {})
        for name in head.locals:
            earlier = run.assigned.get(name, []) if name in head.nodes else []  # x = max(x, y) goes on
            run.assigned[name] = [*earlier[-_MOST_STEPS:], node]
        for name in head.named:
            self.named[name] = (run, node)

    def _finish(self, run: Run, frame: FrameType) -> None:
        """What the statement did that ran last: its calls have answered, and fields may have new values."""
        if run.node is not None:
            head = run.code.head(run.node)
            if head.after:
                run.reads[run.node] |= self._read(head.after, frame, run.results)
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
        """Whether a statement has written another value; what was declared may have overtaken it."""
        if name in self.values:
            value = self._plain(getattr(self.owner, name))
            is_written, self.written[name] = value != self.written[name], value
            if isinstance(value, dict):
                self.records.add(name)
            if is_written and value != self.values[name]:
                self._changed(name, value, place(name, run))

    def _declared(self, stash: Sequence[Any], run: Run) -> None:
        self.stash = (stash, len(stash))
        for entry in stash:
            if not any(entry is other for other in self.seen):
                self.seen.append(entry)
                for name, value in entry[1].items():
                    made = self._plain(value)
                    if name in self.values and made != self.values[name]:
                        self._changed(name, made, self._place(name, run))

    def _changed(self, name: str, value: Any, step: dict[str, Any]) -> None:
        before, self.values[name] = self.values[name], value
        before, after = differing(before, value)
        if SECRET.search(name):
            before, after = (HIDDEN if each else each for each in (before, after))
        self.changes.append({"field": name, "before": shortened(before), "after": shortened(after), **step})

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
        """The step that set a field: the innermost statement now running that names it, else the last one that ran,
        else the statement that wrote it."""
        at: Run | None = run
        while at is not None:
            if at.node is not None and name in at.code.head(at.node).named:
                self.named.pop(name, None)
                return self._step(at, at.node, name)
            at = at.caller
        if name in self.named:
            return self._step(*self.named.pop(name), name)
        return self._here(name, run)

    def _here(self, name: str, run: Run) -> dict[str, Any]:
        return self._step(run, run.node) if run.node is not None else {}

    def _step(self, run: Run, node: ast.stmt, name: str | None = None, depth: int = 0) -> dict[str, Any]:
        line, value = run.code.head(node).named.get(name or "", (node.lineno, getattr(node, "value", None)))
        conditions = self._conditions(run, node)
        via: list[dict[str, Any]] = []
        if depth < _MOST_STEPS and value is not None:
            via = self._via(run, value, depth)
        return {
            "file": run.code.place,
            "line": line,
            "function": run.code.name,
            "inputs": self._inputs(run, node, value),
            "conditions": conditions,
            "via": via,
        }

    def _inputs(self, run: Run, node: ast.stmt, value: ast.expr | None) -> dict[str, Any]:
        if value is None:
            return {}
        mine, nodes = set(source.operands([value])), run.code.head(node).nodes
        return {text: read for text, read in self._operands(run, node).items() if nodes[text] in mine}

    def _via(self, run: Run, value: ast.expr, depth: int) -> list[dict[str, Any]]:
        """Where a value came from that is a name, or computed of names that conditions decide, or answered by a
        function of the release."""
        if isinstance(value, ast.Call) and (other := run.returned.get(source.called(value))):
            return [self._step(other, other.node, None, depth + 1)] if isinstance(other.node, ast.Return) else []
        names = [value] if isinstance(value, ast.Name) else [] if depth else ast.walk(value)
        return [
            self._step(run, node, None, depth + 1)
            for name in dict.fromkeys(each.id for each in names if isinstance(each, ast.Name))
            for node in run.assigned.get(name, ())
            if isinstance(value, ast.Name) or len(run.assigned[name]) > 1 or run.code.source.guards(node)
        ]

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
                "operands": self._operands(run, guard.node),
            }
            for guard in sorted(guards, key=lambda each: not each.is_around)
        ]

    # -- what was read

    def _operands(self, run: Run, node: ast.stmt) -> dict[str, Any]:
        """What a statement read; of a function whose lines were not seen what it would read now."""
        if run.code.is_quiet and node not in run.reads:
            head = run.code.head(node)
            run.reads[node] = self._read([*head.before, *head.after], run.frame, run.results)
        return run.reads.get(node, {})

    def _read(
        self, operands: Sequence[tuple[str, ast.expr]], frame: FrameType, results: Mapping[str, Any]
    ) -> dict[str, Any]:
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
        is_secret = value and (names_secret(text) or any(secret in str(value) for secret in self.secrets))
        return HIDDEN if is_secret else shortened(value)


_parse = argparse.ArgumentParser.parse_known_args


_codes: dict[CodeType, Code | None] = {}


def unwatched(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` without a trace of what it runs: it imports a module or reads a model, and sets no argument."""

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
