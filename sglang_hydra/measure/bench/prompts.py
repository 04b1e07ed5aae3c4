"""Makes the prompts of a load: of exact lengths, equal for equal seeds and different for all others.

Random prompts are token ids. A server that takes ids gets these; one that takes text gets a text with the same number
of tokens for its own tokenizer, made by ``child_prompts`` in the engine's environment."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import random
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

from sglang_hydra.measure.bench.load import Load, content_digest
from sglang_hydra.measure.bench.trace import read_trace, tokens_of
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.errors import ConfigError, MachineError
from sglang_hydra.text.file_text import read_text
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import Json, JsonDict

_MESSAGE_KEYS = ("conversations", "conversation", "messages")
_LOWEST_ID = 256  # below it tokenizers keep special tokens and single bytes


class Prompt(NamedTuple):
    """One request: ``ids`` or ``text``, and the tokens requested in answer. ``input_len`` is None if only the server
    can count it."""

    output_len: int
    ids: tuple[int, ...] = ()
    text: str | None = None
    input_len: int | None = None


def point_seed(seed: int, point_id: str, repeat: int) -> int:
    """Returns the seed of a point's prompts. It differs for every point and repeat, so that no point finds another
    one's prompts in a prefix cache."""
    digest = hashlib.sha256(f"{seed}/{point_id}/{repeat}".encode()).digest()
    return int.from_bytes(digest[:6], "big")


def make_prompts(
    load: Load, count: int, seed: int, vocab_size: int, shared: int | None = None, start: int = 0
) -> list[Prompt]:
    """Returns ``count`` requests. ``shared`` is the seed of the parts shared between calls (None: ``seed``): the
    prefixes, and the order of a file, of which ``start`` prompts were already sent.

    Raises ConfigError for a file that cannot be read or has no prompt."""
    draw = random.Random(seed)
    if load.trace is not None:
        return _from_trace(load, count, seed if shared is None else shared, vocab_size, start)
    if load.dataset == "file":
        return _from_file(load, count, seed if shared is None else shared, start)
    ranges = [(max(1, int(longest * load.range_ratio)), longest) for longest in (load.input_len, load.output_len)]
    lengths = [[draw.randint(*ends) for ends in ranges] for _ in range(count)]
    prefixes: list[tuple[int, ...]] = [()]
    if load.dataset == "shared_prefix":
        prefixes = list(_prefixes(load.prefix_len, load.prefix_groups, seed if shared is None else shared, vocab_size))
    prompts = []
    first = draw.randrange(len(prefixes))
    for number, (input_len, output_len) in enumerate(lengths):
        prefix = prefixes[(first + number) % len(prefixes)]
        own = _ids(draw, max(1, input_len - len(prefix)), vocab_size)
        prompts.append(Prompt(output_len, (*prefix, *own), None, len(prefix) + len(own)))
    return prompts


@functools.lru_cache(maxsize=4)
def _prefixes(length: int, groups: int, seed: int, vocab_size: int) -> tuple[tuple[int, ...], ...]:
    draw = random.Random(f"prefixes/{seed}")
    return tuple(_ids(draw, length, vocab_size) for _ in range(groups))


def _ids(draw: random.Random, count: int, vocab_size: int) -> tuple[int, ...]:
    lowest = min(_LOWEST_ID, vocab_size // 2)
    # Ten times as fast as randrange, during a measurement. 32 bits leave no relevant bias.
    return tuple(lowest + number % (vocab_size - lowest) for number in array("I", draw.randbytes(4 * count)))


def _from_trace(load: Load, count: int, seed: int, vocab_size: int, start: int) -> list[Prompt]:
    """Returns requests of a trace from number ``start`` on, with its lengths and shared blocks."""
    lowest = min(_LOWEST_ID, vocab_size // 2)
    arrivals = read_trace(str(load.trace), load.num_prompts).arrivals[start : start + count]
    made = ((each, tokens_of(each, seed, number, vocab_size, lowest)) for number, each in enumerate(arrivals, start))
    return [Prompt(each.output_len, tokens, None, each.input_len) for each, tokens in made]


def _from_file(load: Load, count: int, seed: int, start: int) -> list[Prompt]:
    """Returns prompts of a JSONL file (``prompt`` and optionally ``output_len``) or of a ShareGPT file (JSON: a list of
    conversations), in an order drawn from the seed, repeated if there are too few."""
    rows = _ordered(str(load.path), content_digest(str(load.path)), load.output_len, seed)
    return [rows[number % len(rows)] for number in range(start, start + count)]


@functools.lru_cache(maxsize=2)
def _ordered(name: str, stamp: object, output_len: int, seed: int) -> list[Prompt]:
    """Reads and shuffles a file once for all requests of a run, some of which are made during it. ``stamp`` changes
    with the file."""
    rows = file_prompts(name, output_len)
    random.Random(seed).shuffle(rows)
    return rows


def file_prompts(name: str, output_len: int) -> list[Prompt]:
    """Reads the prompts of a file. Raises ConfigError for an entry that cannot be sent."""
    path = Path(name).expanduser()
    rows = [_row(path, number, row, output_len) for number, row in _rows(path) if not _is_empty(row)]
    if not rows:
        raise ConfigError(_bad_file(f"{path} holds no prompt"))
    return rows


def _rows(path: Path) -> list[tuple[int, Json]]:
    try:
        content = read_text(path, encoding="utf-8-sig")
        if content.lstrip().startswith("["):
            return list(enumerate(read_json(content, "dataset"), 1))
        # Only a line feed ends a line of JSON; its text may contain other line ends.
        lines = enumerate(content.split("\n"), 1)
        return [(number, read_json(line, "dataset")) for number, line in lines if line.strip()]
    except (OSError, UnicodeError) as failure:
        raise ConfigError(_bad_file(f"bench.path={path} cannot be read: {failure}")) from None
    except (ValueError, RecursionError) as failure:
        raise ConfigError(_bad_file(f"bench.path={path} is neither JSON nor JSON lines: {failure}")) from None


def _row(path: Path, number: int, row: object, output_len: int) -> Prompt:
    text, asked = None, output_len
    if isinstance(row, dict):
        text, asked = row.get("prompt", row.get("text", _first_message(row))), row.get("output_len", asked)
    if not isinstance(text, str) or not text or not isinstance(asked, int) or isinstance(asked, bool) or asked < 1:
        message = f"{path}, entry {number}: no text under prompt, text or conversations, or no output_len above 0"
        raise ConfigError(_bad_file(message))
    return Prompt(asked, (), text)


def _is_empty(row: object) -> bool:
    """Returns whether the row is an empty conversation; ShareGPT's own file has some."""
    if not isinstance(row, dict) or "prompt" in row or "text" in row:
        return False
    return any(isinstance(row.get(key), list) for key in _MESSAGE_KEYS) and _first_message(row) in (None, "")


def _first_message(row: JsonDict) -> object:
    """Returns the first message that is not a system instruction."""
    turns: Sequence[Json] = next((row[key] for key in _MESSAGE_KEYS if isinstance(row.get(key), list)), [])
    spoken = (turn for turn in turns if isinstance(turn, dict) and turn.get("role", turn.get("from")) != "system")
    first = next(spoken, {})
    return first.get("value", first.get("content"))


def _bad_file(message: str) -> Finding:
    hint = 'one JSON object a line, {"prompt": "...", "output_len": 128}, or a ShareGPT file'
    return Finding("error", "BEN003", message, ("bench.path",), hint)


_CHILD = Path(__file__).with_name("child_prompts.py")
_LONGEST_REASON = 500


class TextMaker:
    """Turns prompts of ids into texts with the same number of tokens. The process starts at the first call and stays.

    Raises MachineError if the engine's environment cannot read the model's tokenizer."""

    def __init__(self, python: str | None, model_path: str) -> None:
        self._command = [python or sys.executable, str(_CHILD), model_path]
        self._running: tuple[subprocess.Popen[str], IO[str]] | None = None

    def texts(self, prompts: Sequence[Prompt], seed: int) -> list[Prompt]:
        made = self._answer({"seed": seed, "lengths": [len(prompt.ids) for prompt in prompts]})
        both = zip(prompts, made, strict=True)
        return [Prompt(prompt.output_len, (), text, tokens) for prompt, (text, tokens) in both]

    def close(self) -> None:
        if self._running is not None:
            process, errors = self._running
            self._running = None
            process.kill()
            process.communicate()
            errors.close()

    def _answer(self, request: dict[str, object]) -> Json:
        """Returns the process's answer to a request, each a line of JSON. Skips other lines, which packages print at
        import."""
        process, errors = self._running = self._running or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the missing answer shows it
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        for line in process.stdout:
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, list):
                    return record
        process.wait()
        errors.seek(0)
        last = next((line.strip() for line in reversed(errors.read().splitlines()) if line.strip()), "it wrote nothing")
        self.close()
        message = f"the tokenizer of {self._command[-1]} cannot be used in {self._command[0]}: {last[:_LONGEST_REASON]}"
        hint = "tokenizer_path=FOLDER, where the tokenizer's files are"
        raise MachineError(Finding("error", "BEN011", message, ("tokenizer_path",), hint))

    def _started(self) -> tuple[subprocess.Popen[str], IO[str]]:
        # A file, because an unread pipe would fill up and block the process.
        errors: IO[str] = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed by close()
        pipe = subprocess.PIPE
        return subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=errors, text=True), errors
