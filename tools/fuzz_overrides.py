"""Random command lines against the whole planning path: every one ends in a plan or in findings.

    python tools/fuzz_overrides.py --count 100000 --seed 1 [--kind overrides]

Everything runs in this process. A line fails when anything but a ConfigError comes out, when it takes longer than
--limit seconds, when a screen or a plan cannot be written, or when it starts a process, writes a file or opens a
connection. Failing lines are printed as Python, so that they can be pasted into a test. Exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from sglang_hydra.arguments.fields import FIELDS, Field
from sglang_hydra.arguments.reading import parse_argv
from sglang_hydra.cli.invocation import read_invocation
from sglang_hydra.cli.reading import requests_from_argv
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import NODES, Root
from sglang_hydra.facts import installed as packages
from sglang_hydra.facts import probe
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.recorded.input_files import read_document
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.show.plan import plan_screen
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.flags import BY_NAME, HYDRA_FLAGS, VERBS
from sglang_hydra.text.screen import write

# What every environment of a fuzzed plan holds: the hub is never asked.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "HOME": "/nonexistent", "SGLANG_X": "1"}

FRAGMENTS = (
    *"[](){}<>,:;=+-~!@#$%^&*?|\\/'\"` \t\n\r\0\x1b\x7f\u202e\ud800é日🚀",
    *("${", "}", "${}", "${gpu.count}", "${oc.env:HOME}", "${oc.env:NOPE}", "${tp_size}", "${model}", "${..x}", "???"),
    *("${probe:count}", "${probe:x}", "${tiny_path:}", "${oc.decode:'['}", "${oc.create:[1]}", "\\${x}", "${a:${b:c}}"),
    *("null", "true", "false", "on", "off", "nan", "inf", "-inf", "1e5", "0x8", "1_000", "-0", "1e999", "00"),
    *(
        "range(1,4)",
        "choice(1,2)",
        "interval(0,1)",
        "glob(*)",
        "sort(1,2)",
        "shuffle(1,2)",
        "cast",
        "int(3.5)",
        "str(1)",
    ),
    *("[1,2]", "[a,[b]]", "{a: 1}", "{a:{b:c}}", '{"a": 1}', "[{lora_name: a, lora_path: b}]", "{lora_name: 1}"),
    *("1,2,4", "a,b", "a=b", "a=b=c", "--", "-m", "_self_", "_global_", "gpu", "\x1b[31mred\x1b[0m", "[red]", "$(id)"),
    *("../../etc/passwd", "/dev/null", "/etc", ".", "~", "s3://b/k", "x.gguf", "org/name", "C:\\x", "http://[::1"),
)
NUMBERS = (0, 1, -1, 2, 3, 8, 16, 64, 128, 4096, 65535, 65536, 2**31, 2**63, 2**64, 10**30, -(10**30))
FLOATS = (0.0, -0.0, 0.5, 0.88, 1.0, 1.5, -1.0, 1e-300, 1e300, 8.0)
JSONS = (
    "{}",
    "[]",
    "null",
    "1",
    '{"architectures": []}',
    '{"architectures": 5}',
    '{"hidden_size": "x"}',
    '{"a":',
    "{'a': 1}",
)


class Words:
    """Random words, from a seed. Mostly such that they get past the first check, and sometimes anything at all."""

    def __init__(self, seed: int, composer: Composer) -> None:
        self.dice = random.Random(seed)
        self.fields = list(FIELDS.values())
        self.groups = {group: composer.options(group) for group in (*composer.groups(), "recipe", "experiment")}
        self.node_keys = [
            f"{node}.{key}"
            for node in NODES
            if hasattr(Root.__dataclass_fields__[node].type, "__dataclass_fields__")
            for key in Root.__dataclass_fields__[node].type.__dataclass_fields__  # type: ignore[union-attr]
        ]
        self.flags = [flag for field in self.fields for flag in field.flags]

    def overrides(self) -> list[str]:
        words = []
        if self.dice.random() < 0.8:
            words += [f"gpu={self.option('gpu')}", f"model={self.option('model')}"]
        words += [self.override() for _ in range(self.dice.choice((0, 1, 1, 1, 2, 2, 3, 5)))]
        self.dice.shuffle(words)
        return words

    def override(self) -> str:
        kind = self.dice.random()
        if kind < 0.65:
            field = self.dice.choice(self.fields)
            return f"{self.prefix()}{field.name}={self.value(field)}"
        if kind < 0.77:
            group = self.dice.choice(list(self.groups))
            return f"{self.prefix()}{group}={self.option(group)}"
        if kind < 0.90:
            return f"{self.prefix()}{self.node_key()}={self.anything()}"
        if kind < 0.95:
            return f"{self.prefix()}{self.mutated(self.dice.choice(self.fields).name)}={self.anything()}"
        return self.anything()

    def invocation(self) -> list[str]:
        words: list[str] = []
        for _ in range(self.dice.randrange(7)):
            source = self.dice.random()
            if source < 0.3:
                words.append(self.dice.choice((*VERBS, "help", "bench", "plna", "")))
            elif source < 0.6:
                words.append(self.dice.choice((*BY_NAME, *HYDRA_FLAGS, "--", "--config-dir=/", "--x")))
            else:
                words.append(self.override())
        return words

    def argv(self) -> list[str]:
        words: list[str] = ["--model-path", "org/name"] if self.dice.random() < 0.8 else []
        for _ in range(self.dice.randrange(6)):
            field = self.dice.choice(self.fields)
            flag = self.dice.choice(field.flags)
            if self.dice.random() < 0.2:
                flag = flag[: self.dice.randrange(1, len(flag) + 1)]
            value = self.value(field)
            words += [f"{flag}={value}"] if self.dice.random() < 0.2 else [flag, value]
            if self.dice.random() < 0.1:
                words.append(self.anything())
        return words

    def document(self) -> tuple[str, str]:
        """The suffix and the content of a file."""
        lines = []
        for _ in range(self.dice.randrange(6)):
            key, _, value = self.override().partition("=")
            quote = self.dice.choice(("", "'", '"'))
            lines.append(f"{key}: {quote}{value}{quote}")
        content = "\n".join(lines)
        if self.dice.random() < 0.3:
            content = f"defaults:\n- override /gpu: {self.option('gpu')}\n- {self.anything()}\n{content}"
        return ".yaml", content

    def value(self, field: Field) -> str:
        if self.dice.random() < 0.2:
            return self.anything()
        if field.arg.choices and self.dice.random() < 0.7:
            return str(self.dice.choice(list(field.arg.choices)))
        if field.arg.json:
            return self.dice.choice(JSONS)
        one = {
            "int": lambda: str(self.dice.choice(NUMBERS)),
            "float": lambda: str(self.dice.choice(FLOATS)),
            "bool": lambda: self.dice.choice(("true", "false")),
        }.get(field.kind, lambda: self.dice.choice(("name", "org/name", "a b", "8")))
        return f"[{one()},{one()}]" if field.is_list else one()

    def option(self, group: str) -> str:
        options = self.groups.get(group)
        if options and self.dice.random() < 0.9:
            # Mostly a few of them: what one choice comes to is kept, and a new one takes ten times as long.
            return self.dice.choice(options if self.dice.random() < 0.1 else options[:: max(len(options) // 5, 1)])
        return self.anything()

    def node_key(self) -> str:
        key = self.dice.choice(self.node_keys)
        return (
            f"{key}.{self.dice.choice(('x', 'tp_size', 'a.b', 'architectures', '0', ''))}"
            if self.dice.random() < 0.4
            else key
        )

    def prefix(self) -> str:
        return "" if self.dice.random() < 0.85 else self.dice.choice(("+", "++", "~", "--", "hydra."))

    def mutated(self, name: str) -> str:
        place = self.dice.randrange(len(name))
        return name[:place] + self.dice.choice(("", "x", "-", ".", "/", "@", " ", "_", "[0]", "é")) + name[place + 1 :]

    def anything(self) -> str:
        kind = self.dice.random()
        if kind < 0.15:
            return str(self.dice.choice((*NUMBERS, *FLOATS)))
        if kind < 0.18:
            return self.dice.choice(("[", "(", "{a:", "${", "'", "${a:", "choice(", "\\")) * self.dice.choice(
                (5, 50, 400)
            )
        if kind < 0.20:
            return "9" * self.dice.choice((20, 400, 5000))
        if kind < 0.24:
            return "".join(chr(self.dice.randrange(1, 0x3000)) for _ in range(self.dice.randrange(1, 12)))
        return "".join(self.dice.choice(FRAGMENTS) for _ in range(self.dice.choice((1, 1, 1, 2, 3, 6))))


class Forbidden(BaseException):
    """A line did what planning never does. Not an Exception, so that nothing on the way takes it for its own."""


class Guard:
    """While on: no process, no file for writing, no connection; and no line beyond its time."""

    _EVENTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "os.mkdir")

    def __init__(self, limit_s: float) -> None:
        self.on = False
        self.limit_s = limit_s
        sys.addaudithook(self._look)
        signal.signal(signal.SIGALRM, self._too_long)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self.on = True
        signal.setitimer(signal.ITIMER_REAL, self.limit_s)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.on = False

    def _look(self, event: str, details: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in self._EVENTS:
            raise Forbidden(f"{event} {details[:2]}")
        writes = event == "open" and isinstance(details[2], int) and details[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes and "__pycache__" not in str(details[0]):
            raise Forbidden(f"open for writing {details[0]!r}")

    def _too_long(self, *_: object) -> None:
        raise Forbidden(f"longer than {self.limit_s} s")


class Fuzz:
    """One fuzz run over one composer; ``folder`` is for its documents, ``outcomes`` counts what the lines ended in."""

    def __init__(self, folder: Path, seed: int, limit_s: float = 10.0) -> None:
        self.composer = Composer()
        self.words = Words(seed, self.composer)
        self.guard = Guard(limit_s)
        self.outcomes: Counter[str] = Counter()
        self.folder = folder
        self._turn = 0

    def one(self, kind: str) -> tuple[Any, str | None]:
        """A random line of that kind, and the traceback of what went wrong with it."""
        line = getattr(self.words, kind)()
        judge: Callable[[Any], str] = getattr(self, f"_judge_{kind}")
        if kind == "document":
            path = self.folder / f"fuzzed{line[0]}"
            path.write_text(line[1], encoding="utf-8", errors="surrogatepass")
        self._turn += 1
        try:
            with self.guard.watching():
                outcome = judge(line)
        except (Exception, Forbidden):  # noqa: BLE001 - whatever it is, it is what is looked for
            self.outcomes["FAILED"] += 1
            return line, traceback.format_exc(limit=-12)
        self.outcomes[outcome] += 1
        return line, None

    def _judge_overrides(self, line: list[str]) -> str:
        return self._plan([Request(text, f"argument {number}") for number, text in enumerate(line, 1)])

    def _judge_invocation(self, line: list[str]) -> str:
        try:
            invocation = read_invocation(line)
        except ConfigError as refused:
            return _said(refused)
        assert invocation.verb in VERBS
        return f"verb {invocation.verb}"

    def _judge_argv(self, line: list[str]) -> str:
        try:
            parse_argv(line)
            requests = requests_from_argv(line)
        except ConfigError as refused:
            return _said(refused)
        return self._plan([Request("gpu=h200", "argument 1"), *requests])

    def _judge_document(self, line: tuple[str, str]) -> str:
        try:
            document = read_document(self.folder / f"fuzzed{line[0]}")
        except ConfigError as refused:
            return _said(refused)
        return self._plan(list(document.requests))

    def _plan(self, requests: Sequence[Request]) -> str:
        try:
            plan = make_plan(self.composer, requests, env=ENVIRONMENT)
        except ConfigError as refused:
            return _said(refused)
        if self._turn % 5 == 0:
            _look_at(plan)
        return "plan that can be launched" if plan.launchable else "plan with errors"


def _said(refused: ConfigError) -> str:
    assert refused.findings
    out = io.StringIO()
    write(finding_lines(list(refused.findings)), out)
    _assert_harmless(out.getvalue())
    return f"findings {refused.findings[0].id}"


def _look_at(plan: Plan) -> None:
    out = io.StringIO()
    write(plan_screen(plan), out)
    _assert_harmless(out.getvalue())
    json.dumps(plan.to_json(), allow_nan=False)
    assert len(plan.server_id) == 16
    repr(plan)


def _assert_harmless(screen: str) -> None:
    odd = {char for char in screen if char != "\n" and not char.isprintable()}
    assert not odd, f"control characters on a screen: {odd}"


def no_accelerator(*_: object, **__: object) -> probe.GpuProbe:
    """Stands in for asking this machine."""
    return probe.GpuProbe(tried=("nothing was asked",))


KINDS = ("overrides", "invocation", "argv", "document")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=1500, help="lines of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=KINDS, action="append", help="only this kind; may be repeated")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds that one line may take")
    options = parser.parse_args()
    probe.probe_gpu = no_accelerator
    # engine.python=[ is a program, and it would be asked which packages it has.
    packages.find_python = lambda name: None if name else sys.executable
    probe.machine = lambda: no_accelerator()  # type: ignore[assignment]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for kind in options.kind or KINDS:
            fuzz, start = Fuzz(Path(folder), options.seed, options.limit), time.perf_counter()
            for _ in range(options.count):
                line, trouble = fuzz.one(kind)
                if trouble is not None:
                    failed += 1
                    print(f"{kind}: {line!r}\n{trouble}", flush=True)
            seconds, outcomes = time.perf_counter() - start, fuzz.outcomes
            print(f"{kind}: {options.count} lines, seed {options.seed}, {seconds:.0f} s, {outcomes['FAILED']} failed")
            for outcome, count in outcomes.most_common():
                print(f"  {count:7}  {outcome}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
