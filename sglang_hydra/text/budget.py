"""Bounds what a file or a text of somebody else may cost to read, before anything recursive sees it.

Each reader has its limits in ``READERS``. YAML is looked at by its events and JSON by its brackets, in one pass without
recursion: a few lines of YAML can mean billions of values once its aliases and merges are followed, and more
brackets than the stack can hold end the process. What no count foresees ends after ``cpu_s``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from sglang_hydra.text.json_types import JsonObject

if TYPE_CHECKING:
    from types import FrameType


_MIB = 1 << 20
_FIRST, _FOR_MORE_S = 10_000_000, 3.0
"""Each further 10 MB may take as many seconds of the processor: six times what a log takes on a quiet machine."""
DIGITS = 400
"""Of one number: a float has at most 309 before its point, and Python turns no whole number of 4,301 into text."""
FINDINGS = 50
"""After as many mistakes the rest of a file is not looked at."""
EXPANSIONS, EXPANDED = 10_000, 1_000_000
"""As many interpolations are followed in one configuration, each as often as others lead to it, to so many letters."""
DEPTH = 50
"""Mappings and lists within each other; the deepest file that people write, a rendered Kubernetes manifest, has 20."""


class Limits(NamedTuple):
    """What one reader takes: ``nodes`` are the values and keys, each as often as its aliases and merges repeat it,
    ``items`` the lines, tensors or servers, ``cpu_s`` the seconds of the processor for the first 10 MB: with the start
    of a program, and saying what was found, at most 2."""

    size: int
    nodes: int = 0
    items: int = 0
    depth: int = DEPTH
    cpu_s: float = 1.5


READERS: Mapping[str, Limits] = {
    "argument": Limits(_MIB, nodes=10_000),  # JSON or YAML in an argument: json_model_override_args
    "config": Limits(_MIB, nodes=10_000),  # a YAML, TOML or JSON of ours: an experiment, a preset, settings
    "manifest": Limits(_MIB, nodes=30_000, items=32),  # Kubernetes, Compose, Helm, srtctl; servers
    "script": Limits(_MIB, items=20_000),  # lines of shell, Python, Markdown
    "log": Limits(256 * _MIB),  # a log of a server; one that is not packed may be larger
    "record": Limits(256 * _MIB, nodes=1_000_000),  # JSON that programs write: a plan, a result, config.json
    "dataset": Limits(256 * _MIB, nodes=3_000_000, items=3_000_000),  # prompts and traces, JSON or a line each
    "safetensors": Limits(100_000_000, nodes=2_000_000),  # the header of one file
    "gguf": Limits(64 * _MIB, items=1_000_000),  # the header: keys, tensors, items of a list of texts
}
"""Every reader of what somebody else wrote, with its limits (tests/security/test_budgets.py, docs/security.md)."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}
_DIGITS = re.compile(rf"[0-9]{{{DIGITS + 1}}}")
_NUMBER = re.compile(r"[-+.0-9][-+.:_0-9a-fA-FxXoO]*")
_REFERENCE = re.compile(r"\$\{\s*(\.*)([\w.\[\]'\"-]+)\s*\}")
_KEY = re.compile(r"[\w-]+")
_NUMERIC_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
# What PyYAML's constructors let through beside its own errors: ``!!int ""``, ``!!timestamp x``, ``0x_``.
_OF_CONSTRUCTORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


class OverBudget(ValueError):
    """A text is larger, deeper or slower to read than its reader takes; the message says which, and the limit."""


def check_size(text: str | bytes, reader: str) -> None:
    """Raises OverBudget for a text that is too long, or has too many lines where the reader counts these."""
    limits = READERS[reader]
    if len(text) > limits.size:
        raise OverBudget(f"it is larger than {_shown(limits.size)}")


def depth_of(text: str) -> int:
    """Returns how many brackets of a text are within each other."""
    return max(accumulate(_STEP[found] for found in _BRACKET.findall(text)), default=0)


def check_items(number: int, reader: str, what: str) -> None:
    """Raises OverBudget where there are more of them than the reader takes."""
    if number > READERS[reader].items:
        raise OverBudget(f"it has {number} {what}; at most {READERS[reader].items} are read")


def read_json(text: str | bytes, reader: str, **options: Any) -> Any:
    """Returns what JSON text holds. Raises json.JSONDecodeError, OverBudget, or another ValueError."""
    import json

    if isinstance(text, (str, bytes)):  # json refuses anything else in its own words
        check_size(text, reader)
        text = text.decode(json.detect_encoding(text)) if isinstance(text, bytes) else text
        _check_json(text, READERS[reader])
    return json.loads(text, **options)


def read_yaml(text: str, reader: str, loader: Any = None) -> Any:
    """Returns what the one document of a YAML text holds. Raises yaml.YAMLError or OverBudget."""
    import yaml

    check_yaml(text, reader)
    with _constructor_errors():
        return yaml.load(text, Loader=loader or quick_loader())


def read_documents(text: str, reader: str) -> list[Any]:
    """Returns what each document of a YAML text holds. Raises yaml.YAMLError or OverBudget."""
    import yaml

    check_yaml(text, reader)
    with _constructor_errors():
        return list(yaml.load_all(text, Loader=quick_loader()))


def yaml_nodes(text: str, reader: str, loader: Any = None) -> list[Any]:
    """Returns the node of each document, for the places of its keys. Raises yaml.YAMLError or OverBudget."""
    import yaml

    check_yaml(text, reader)
    return list(yaml.compose_all(text, Loader=loader or quick_loader()))


def check_yaml(text: str, reader: str) -> None:
    """Follows a YAML text by its events. Raises OverBudget for one that holds too much, and for an alias within what it
    means; yaml.YAMLError for what is none."""
    import yaml

    check_size(text, reader)
    weigher = _Weigher(READERS[reader])
    for event in yaml.parse(text, Loader=quick_loader()):
        weigher.take(event)


@contextlib.contextmanager
def cpu_limit(reader: str, size: int = 0) -> Iterator[None]:
    """Ends the block with OverBudget once it has used the reader's seconds, for a text of ``size`` bytes.

    ``re`` looks for signals as well, so that a pattern is ended too. Only the outermost of several blocks counts, and
    only in the main thread of a process that does not use this timer itself. Searching the objects that the process
    held before for garbage is no cost of the text: they are set aside meanwhile.
    """
    import gc
    import signal
    import threading

    set_timer = getattr(signal, "setitimer", None)  # a browser has none
    is_main = threading.current_thread() is threading.main_thread()
    if set_timer is None or not is_main or signal.getsignal(signal.SIGVTALRM) is not signal.SIG_DFL:
        yield
        return
    seconds = READERS[reader].cpu_s + max(0, size - _FIRST) / _FIRST * _FOR_MORE_S

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise OverBudget(f"it takes more than {seconds:g} s of the processor")

    signal.signal(signal.SIGVTALRM, end)
    sets_aside = gc.get_freeze_count() == 0  # else the program has set objects aside itself
    if sets_aside:
        gc.freeze()
    try:
        set_timer(signal.ITIMER_VIRTUAL, seconds, 0.1)  # again, where somebody takes the error for one of his own
        yield
    finally:
        set_timer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
        if sets_aside:
            gc.unfreeze()


def check_expansions(tree: JsonObject) -> None:
    """Raises OverBudget for a configuration whose interpolations lead to each other too often, too deep or to too long
    a text. ``tree`` has them as they are written; a key that an interpolation makes (``${a.${b}}``) is not followed."""
    expander = _Expander(tree)
    for path, text in _texts(tree, ()):
        expander.add(path, text)


def _check_json(text: str, limits: Limits) -> None:
    brackets = text.count("[") + text.count("{")
    if brackets <= limits.depth and brackets + text.count(",") <= limits.nodes and not _DIGITS.search(text):
        return
    bare = _STRING.sub("", text)
    if depth_of(bare) > limits.depth:
        raise OverBudget(_too_deep(limits))
    # A mapping's keys count as they do in YAML.
    if bare.count("[") + bare.count("{") + bare.count(",") + bare.count(":") > limits.nodes:
        raise OverBudget(_too_many(limits))
    if _DIGITS.search(bare):
        raise OverBudget(_too_long())


class _Weigher:
    """Counts what a YAML expands to. Of each anchor the nodes and levels below it are kept, for its aliases."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._nodes = 0
        self._open: list[list[Any]] = []  # anchor, nodes before it, levels below it
        self._known: dict[str, tuple[int, int]] = {}

    def take(self, event: Any) -> None:
        import yaml

        if isinstance(event, yaml.CollectionStartEvent):
            self._nodes += 1
            self._open.append([event.anchor, self._nodes, 0])
            self._level(0)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before, levels = self._open.pop()
            if anchor is not None:
                self._known[anchor] = self._nodes - before + 1, levels + 1
            self._level(levels + 1)
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _, _ in self._open):
                raise OverBudget(f"the alias *{event.anchor} is within the value that it names")
            nodes, levels = self._known.get(str(event.anchor), (1, 0))
            self._nodes += nodes
            self._level(levels)
        elif isinstance(event, yaml.ScalarEvent):
            self._nodes += 1
            is_number = event.tag in _NUMERIC_TAGS or event.implicit[0]
            if is_number and len(event.value) > DIGITS and _NUMBER.fullmatch(event.value):
                raise OverBudget(_too_long())
            if event.anchor is not None:
                self._known[event.anchor] = 1, 0
        elif isinstance(event, yaml.DocumentStartEvent):
            self._known.clear()
        if self._nodes > self._limits.nodes:
            raise OverBudget(_too_many(self._limits))

    def _level(self, below: int) -> None:
        """Notes that something with ``below`` levels is in the innermost open collection."""
        if self._open:
            self._open[-1][2] = max(self._open[-1][2], below)
        if len(self._open) + below > self._limits.depth:
            raise OverBudget(_too_deep(self._limits))


class _Expander:
    """Adds up what the interpolations of a configuration cost."""

    def __init__(self, tree: JsonObject) -> None:
        self._tree = tree
        self._known: dict[tuple[str, ...], tuple[int, int]] = {}
        self._steps = self._letters = 0

    def add(self, path: tuple[str, ...], text: str) -> None:
        steps, letters = self._cost(path, text, ())
        self._steps, self._letters = self._steps + steps, self._letters + letters
        self._check(self._steps, self._letters)

    def _cost(self, path: tuple[str, ...], text: str, above: tuple[tuple[str, ...], ...]) -> tuple[int, int]:
        """Counts the interpolations that one text expands to, and the letters; OmegaConf reports circles."""
        if path in self._known or path in above:
            return self._known.get(path, (0, 0))
        if len(above) > DEPTH:
            raise OverBudget(f"its interpolations lead to each other more than {DEPTH} times")
        steps, letters = 0, len(text)
        for found in _REFERENCE.finditer(text):
            base = path[: len(path) - len(found[1])] if found[1] else ()
            target = (*base, *_KEY.findall(found[2]))
            for inner, value in _texts(_at(self._tree, target), target):
                more, longer = self._cost(inner, value, (*above, path))
                steps, letters = steps + more, letters + longer
            steps += 1
            self._check(steps, letters)
        self._known[path] = steps, letters
        return steps, letters

    def _check(self, steps: int, letters: int) -> None:
        if steps > EXPANSIONS or letters > EXPANDED:
            raise OverBudget(f"its interpolations expand to more than {EXPANSIONS} others or {EXPANDED} letters")


def _texts(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields every text at or below a node, with its keys."""
    if isinstance(node, str):
        yield path, node
    elif isinstance(node, (dict, list)):
        for name, item in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _texts(item, (*path, str(name)))


def _at(node: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if isinstance(node, list) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        else:
            node = node.get(name) if isinstance(node, dict) else None
    return node


@contextlib.contextmanager
def _constructor_errors() -> Iterator[None]:
    import yaml

    try:
        yield
    except OverBudget:
        raise
    except _OF_CONSTRUCTORS as failure:
        raise yaml.constructor.ConstructorError(None, None, f"a value in it cannot be read: {failure}") from failure


def _shown(size: int) -> str:
    return f"{size >> 20} MiB" if size >= _MIB else f"{size} bytes"


def _too_deep(limits: Limits) -> str:
    return f"it is nested more than {limits.depth} levels deep"


def _too_many(limits: Limits) -> str:
    return f"it holds more than {limits.nodes} values once its aliases are followed"


def _too_long() -> str:
    return f"a number in it has more than {DIGITS} digits"


def quick_load(text: str) -> Any:
    """Returns what a YAML text holds. Raises yaml.YAMLError for what is none."""
    import yaml

    return yaml.load(text, Loader=quick_loader())


def quick_loader() -> Any:
    """Returns the loader class, for ``yaml.compose`` and its like."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)
