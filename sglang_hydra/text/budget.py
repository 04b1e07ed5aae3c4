"""Limits the cost of reading untrusted text, before any recursive reader sees it.

Each reader has its limits in ``READERS``. One pass without recursion counts the events of YAML and the brackets of
JSON: a few lines of YAML can mean billions of values once aliases and merges are followed, and too many brackets
overflow the stack and end the process. ``cpu_limit`` stops whatever the counts do not foresee."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from sglang_hydra.text.json_types import JsonObject

if TYPE_CHECKING:
    from types import FrameType


_MIB = 1 << 20
_FIRST, _FOR_MORE_S = 10_000_000, 3.0
"""A text may take ``_FOR_MORE_S`` CPU seconds for each further 10 MB: six times what a log takes on a quiet machine."""
START_S = 0.25
"""What starting costs at most on a quiet machine, in CPU seconds; 0.2 s were measured."""
FILE_S, SERVER_S, LAST_S = 0.005, 0.1, 0.2
"""CPU seconds more for each file of a folder, for each of its servers, and for printing what is known."""
DIGITS = 400
"""The most digits of one number: a float has at most 309 before its point, and Python prints no int of 4,301."""
FINDINGS = 50
"""The most findings in one file: after the fiftieth, the rest of the file is not checked."""
EXPANSIONS, EXPANDED = 10_000, 1_000_000
"""The most interpolations in one configuration, counted once for each reference, and the most expanded letters."""
DEPTH = 50
"""The deepest nesting; the deepest file that people write, a rendered Kubernetes manifest, has 20 levels."""


class Limits(NamedTuple):
    """The limits of one reader. ``size`` counts bytes or characters; ``nodes`` counts keys and values, each as often as
    aliases and merges repeat it; ``items`` counts lines, tensors or servers. ``cpu_s`` is CPU seconds for the first 10
    MB: with startup and printing, a command stays below 2 s."""

    size: int
    nodes: int = 0
    items: int = 0
    depth: int = DEPTH
    cpu_s: float = 1.3


READERS: Mapping[str, Limits] = {
    "command": Limits(0, cpu_s=1.7),  # the whole of a verb that only reads: plan, check, import
    "folder": Limits(0, nodes=1_000, items=10_000),  # what check reads: files that start a server, files in all
    "words": Limits(1 << 16, nodes=3_000, items=1_000),  # overrides of a plan; variables in a foreign file
    "argument": Limits(_MIB, nodes=10_000),  # JSON or YAML in an argument: json_model_override_args
    "config": Limits(_MIB, nodes=10_000),  # a YAML, TOML or JSON of ours: an experiment, a preset, settings
    "manifest": Limits(_MIB, nodes=30_000, items=32),  # Kubernetes, Compose, Helm, srtctl; servers
    "script": Limits(_MIB, items=20_000),  # lines of shell, Python, Markdown
    "log": Limits(256 * _MIB),  # a log of a server; one that is not packed may be larger
    "record": Limits(256 * _MIB, nodes=1_000_000),  # JSON that programs write: a plan, a result, config.json
    "dataset": Limits(256 * _MIB, nodes=3_000_000, items=3_000_000),  # prompts and traces, JSON or a line each
    "safetensors": Limits(100_000_000, nodes=2_000_000),  # the header of one file
    "wheel": Limits(2 * _MIB, items=12_000),  # the list of files in a wheel; the largest of SGLang has 5,777
    "gguf": Limits(64 * _MIB, items=1_000_000),  # the header: keys, tensors, items of a list of texts
}
"""Every reader of untrusted files, with its limits (tests/security/test_budgets.py, docs/security.md)."""

# Two patterns without backtracking: a string that does not end is one, too, and one letter costs no memory.
_ESCAPE, _STRING = re.compile(r"\\.", re.DOTALL), re.compile(r'"[^"]*"?')
_BRACKET = re.compile(r"[\[\]{}()]")
_STEP = {"[": 1, "{": 1, "(": 1, "]": -1, "}": -1, ")": -1}
_DIGITS = re.compile(rf"[0-9]{{{DIGITS + 1}}}")
_NUMBER = re.compile(r"[-+.0-9][-+.:_0-9a-fA-FxXoO]*")
_REFERENCE = re.compile(r"\$\{\s*(\.*)([\w.\[\]'\"-]+)\s*\}")
_KEY = re.compile(r"[\w-]+")
_NUMERIC_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
# PyYAML's constructors raise these besides its own errors: ``!!int ""``, ``!!timestamp x``, ``0x_``.
_OF_CONSTRUCTORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


class OverBudget(ValueError):
    """A text is larger, deeper or slower to read than its reader allows; the message names the limit."""


def check_size(text: str | bytes | int, reader: str) -> None:
    """Raises OverBudget for a text, or a number of letters, above the reader's ``size``."""
    limits = READERS[reader]
    if (text if isinstance(text, int) else len(text)) > limits.size:
        raise OverBudget(f"it is larger than {_shown(limits.size)}")


def depth_of(text: str) -> int:
    """Returns how deep the brackets of a text are nested."""
    return max(accumulate(_STEP[found] for found in _BRACKET.findall(text)), default=0)


def check_items(number: int, reader: str, what: str) -> None:
    """Raises OverBudget for more items than the reader allows; ``what`` names them in the message."""
    if number > READERS[reader].items:
        raise OverBudget(f"it has {number} {what}; at most {READERS[reader].items} are read")


def _check_words(words: Sequence[str]) -> None:
    """Raises OverBudget for overrides that are too long together, or whose lists have too many items."""
    check_size(sum(map(len, words)), "words")
    if sum(word.count(",") for word in words) > READERS["words"].nodes:
        raise OverBudget(f"its lists hold more than {READERS['words'].nodes} values")


def read_json(text: str | bytes, reader: str, **options: Any) -> Any:
    """Parses JSON text within the reader's limits. Raises json.JSONDecodeError, OverBudget, or another ValueError."""
    import json

    if isinstance(text, (str, bytes)):  # json refuses other types itself
        check_size(text, reader)
        text = text.decode(json.detect_encoding(text)) if isinstance(text, bytes) else text
        _check_json(text, READERS[reader])
    return json.loads(text, **options)


def read_yaml(text: str, reader: str, loader: Any = None) -> Any:
    """Loads the only document of a YAML text. Raises yaml.YAMLError or OverBudget."""
    import yaml

    check_yaml(text, reader)
    with _constructor_errors():
        return yaml.load(text, Loader=loader or quick_loader())


def read_documents(text: str, reader: str) -> list[Any]:
    """Loads every document of a YAML text. Raises yaml.YAMLError or OverBudget."""
    import yaml

    check_yaml(text, reader)
    with _constructor_errors():
        return list(yaml.load_all(text, Loader=quick_loader()))


def yaml_nodes(text: str, reader: str, loader: Any = None) -> list[Any]:
    """Returns the root node of each document, with the line of every key. Raises yaml.YAMLError or OverBudget."""
    import yaml

    check_yaml(text, reader)
    return list(yaml.compose_all(text, Loader=loader or quick_loader()))


def check_yaml(text: str, reader: str) -> None:
    """Counts the events of a YAML text. Raises OverBudget for a text over the limits or an alias inside its own anchor,
    and yaml.YAMLError for invalid YAML."""
    import yaml

    check_size(text, reader)
    weigher = _Weigher(READERS[reader])
    for event in yaml.parse(text, Loader=quick_loader()):
        weigher.take(event)


class Clock:
    """The running limit: user seconds of the process, at its start and allowed. ``pace`` is above 1 where starting
    the program took more than ``START_S`` CPU seconds."""

    began = allowed = 0.0
    pace = 1.0
    is_paused = False


@contextlib.contextmanager
def cpu_limit(reader: str, size: int = 0, words: Sequence[str] = ()) -> Iterator[None]:
    """Stops the block with OverBudget after the reader's CPU seconds, scaled for a text of ``size`` bytes.

    The limit also stops a slow regular expression, because ``re`` checks for signals. An inner block only adds what its
    size allows. It holds only in the main thread of a process that does not use SIGVTALRM itself. ``words`` are the
    overrides that the block reads, which have limits as well. Objects that the process already held are frozen
    meanwhile: collecting them as garbage would be charged to the text."""
    import gc
    import signal
    import threading

    _check_words(words)
    more = max(0, size - _FIRST) / _FIRST * _FOR_MORE_S
    set_timer = getattr(signal, "setitimer", None)  # a browser has none
    is_main = threading.current_thread() is threading.main_thread()
    if set_timer is None or not is_main or signal.getsignal(signal.SIGVTALRM) is not signal.SIG_DFL:
        if is_main:
            allow_more(more)
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        if Clock.is_paused or _user_s() - Clock.began < Clock.allowed:
            return
        raise OverBudget(f"it takes more than {Clock.allowed:.1f} s of the processor")

    Clock.began, Clock.allowed = _user_s(), (READERS[reader].cpu_s + more) * Clock.pace
    Clock.is_paused = False
    signal.signal(signal.SIGVTALRM, end)
    sets_aside = gc.get_freeze_count() == 0  # else the program has frozen objects itself
    if sets_aside:
        gc.freeze()
    try:
        set_timer(signal.ITIMER_VIRTUAL, Clock.allowed, 0.1)  # repeats, in case other code catches the first error
        yield
    finally:
        set_timer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
        if sets_aside:
            gc.unfreeze()


def allow_more(seconds: float) -> None:
    """Lengthens the running limit, as for each further file of a folder."""
    Clock.allowed += seconds * Clock.pace


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Leaves a block out of the running limit: the work of the first time, such as unpacking a release."""
    began, was_paused = _user_s(), Clock.is_paused
    Clock.is_paused = True
    try:
        yield
    finally:
        Clock.is_paused = was_paused
        Clock.allowed += 0.0 if was_paused else _user_s() - began


def _user_s() -> float:
    return os.times().user


def check_expansions(tree: JsonObject) -> None:
    """Raises OverBudget for a configuration whose interpolations expand too often, too deep or to too long a text.
    ``tree`` holds the interpolations as written. A nested interpolation (``${a.${b}}``) is not followed."""
    expander = _Expander(tree)
    for path, text in _texts(tree, ()):
        expander.add(path, text)


def _check_json(text: str, limits: Limits) -> None:
    brackets = text.count("[") + text.count("{")
    if brackets <= limits.depth and brackets + text.count(",") <= limits.nodes and not _DIGITS.search(text):
        return
    bare = _STRING.sub("", _ESCAPE.sub("", text))
    if depth_of(bare) > limits.depth:
        raise OverBudget(_too_deep(limits))
    # Keys of a mapping count, as in YAML.
    if bare.count("[") + bare.count("{") + bare.count(",") + bare.count(":") > limits.nodes:
        raise OverBudget(_too_many(limits))
    if _DIGITS.search(bare):
        raise OverBudget(_too_long())


class _Weigher:
    """Counts the nodes that YAML expands to, and keeps the nodes and levels below each anchor for its aliases."""

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
        """Records that the innermost open collection holds an item with ``below`` levels."""
        if self._open:
            self._open[-1][2] = max(self._open[-1][2], below)
        if len(self._open) + below > self._limits.depth:
            raise OverBudget(_too_deep(self._limits))


class _Expander:
    """Adds up the cost of a configuration's interpolations."""

    def __init__(self, tree: JsonObject) -> None:
        self._tree = tree
        self._known: dict[tuple[str, ...], tuple[int, int]] = {}
        self._steps = self._letters = 0

    def add(self, path: tuple[str, ...], text: str) -> None:
        steps, letters = self._cost(path, text, ())
        self._steps, self._letters = self._steps + steps, self._letters + letters
        self._check(self._steps, self._letters)

    def _cost(self, path: tuple[str, ...], text: str, above: tuple[tuple[str, ...], ...]) -> tuple[int, int]:
        """Counts the interpolations and letters of one expanded text. A cycle counts 0: OmegaConf reports it."""
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
    """Yields every text at or below a node, with the keys that lead to it."""
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
    return f"{size >> 20} MiB" if size >= _MIB else f"{size >> 10} KiB"


def _too_deep(limits: Limits) -> str:
    return f"it is nested more than {limits.depth} levels deep"


def _too_many(limits: Limits) -> str:
    return f"it holds more than {limits.nodes} values once its aliases are followed"


def _too_long() -> str:
    return f"a number in it has more than {DIGITS} digits"


def quick_load(text: str) -> Any:
    """Loads a YAML text without limits. Raises yaml.YAMLError for invalid YAML."""
    import yaml

    return yaml.load(text, Loader=quick_loader())


def quick_loader() -> Any:
    """Returns PyYAML's safe loader class: the one in C where it is installed."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)
