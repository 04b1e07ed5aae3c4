"""Files of a known structure against every reader: each ends in what was read or in a finding, within its budget.

    python tools/fuzz_readers.py --count 20000 --seed 1 [--reader yaml]

Everything runs in this process, so that a signal ends it and its exit code says so; ``--last FILE`` keeps the input
that was read then. An input fails when anything but the errors of its reader comes out, or when it takes longer than
--limit seconds of the processor. The report has a line for each reader; exit code 1 where an input failed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from sglang_hydra.arguments.fields.check import check_json
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.convert.importing.sources import Source, launches_of
from sglang_hydra.facts.config_view import UnreadableOverrides, read_overrides
from sglang_hydra.facts.gguf import UnreadableGguf, config_of, read_header
from sglang_hydra.facts.hub import read_config
from sglang_hydra.fit.checkpoint import read_checkpoint
from sglang_hydra.measure.bench.prompts import file_prompts
from sglang_hydra.measure.bench.trace import read_trace
from sglang_hydra.planning.recorded.input_files import documents, read_document
from sglang_hydra.planning.recorded.saved import NotAPlan, OtherSchema, parse_plan
from sglang_hydra.run.diagnose.classes import failure_classes
from sglang_hydra.run.diagnose.diagnosis import diagnose
from sglang_hydra.run.diagnose.lines import read_lines
from sglang_hydra.text import user_settings
from sglang_hydra.text.errors import SglangHydraError

SERVER = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B"
SCALARS = (
    *("1", "-1", "0x1F", "0b11", "0o17", "1:30", "1e5", ".inf", ".nan", "1_000", "9" * 5_000, "0x" + "f" * 5_000),
    *(
        "true",
        "off",
        "null",
        "~",
        "",
        "''",
        "2001-01-01",
        "2001-99-99",
        "=",
        "<<",
        "x" * 5_000,
        "\\ud800",
        "\U0001f680",
    ),
    *("${tp_size}", "${gpu.count}", "${oc.env:HOME}", "${..x}", "${", "${a.${b}}", "h200", "qwen3_8b", "8", "\x1b[31m"),
    *("!!int ''", "!!float x", "!!timestamp x", "!!binary x", "!!set {a}", "!!python/object:os.system x", "!!bool x"),
)
KEYS = ("gpu", "model", "tp_size", "extra", "engine", "defaults", "hydra", "ignore", "lora_paths", "bench", "a", "b")
NEEDLES = sorted({text for failure in failure_classes() for one in failure.signatures for text in one.needles})


class Reader(NamedTuple):
    """How inputs are made, how one is read, and what it may raise."""

    make: Callable[[random.Random], bytes]
    read: Callable[[Path], object]
    errors: tuple[type[BaseException], ...] = (SglangHydraError,)


def yaml_text(draw: random.Random, depth: int = 0, anchors: int = 0) -> str:
    """Flow YAML of mappings, lists and scalars with anchors, aliases, merges and tags, now and then deep or cut off."""
    kind = draw.random()
    if depth > draw.choice((2, 4, 60)) or kind < 0.3:
        return draw.choice(SCALARS)
    name = draw.randrange(4)
    anchor = f"&a{name} " if draw.random() < 0.3 else ""
    if kind < 0.4:
        return f"*a{name}"
    inner = [yaml_text(draw, depth + 1) for _ in range(draw.randrange(1, 4))]
    if kind < 0.7:
        return f"{anchor}[{', '.join(inner)}]"
    keys = [draw.choice((*KEYS, "<<", "? [a]", f"*a{name} ")) for _ in inner]
    return f"{anchor}{{{', '.join(f'{key}: {value}' for key, value in zip(keys, inner, strict=True))}}}"


def experiment(draw: random.Random) -> bytes:
    lines = [f"{draw.choice(KEYS)}: {yaml_text(draw)}" for _ in range(draw.randrange(1, 8))]
    return mutated(draw, ("gpu: h200\nmodel: qwen3_8b\n" + "\n".join(lines) + "\n").encode("utf-8", "replace"))


def json_value(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.random()
    if depth > draw.choice((2, 4, 80)) or kind < 0.4:
        plain = (None, True, 0, -1, 8, 1e308, 10**400, 10**18, "x", "", "\ud800", "a" * 300, "LlamaForCausalLM", 0.5)
        return draw.choice(plain)
    inner = [json_value(draw, depth + 1) for _ in range(draw.randrange(4))]
    if kind < 0.6:
        return inner
    return {draw.choice((*CONFIG, *KEYS)): value for value in inner}


CONFIG: tuple[str, ...] = (
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "architectures",
    "text_config",
    "vision_config",
    "schema",
)
CONFIG += ("quantization_config", "vocab_size", "torch_dtype", "rope_scaling", "head_dim", "num_attention_heads")


def json_text(draw: random.Random) -> bytes:
    content = {key: json_value(draw) for key in draw.sample(CONFIG, draw.randrange(1, 8))}
    text = json.dumps(content if draw.random() < 0.9 else json_value(draw))
    return mutated(draw, text.encode()) if draw.random() < 0.8 else b"[" * draw.randrange(100_000)


def plan_text(draw: random.Random) -> bytes:
    content = {"schema": "sglang_hydra.plan/1", **{name: json_value(draw) for name in ("intent", "values", "engine")}}
    return mutated(draw, json.dumps(content).encode())


def safetensors(draw: random.Random) -> bytes:
    tensors = {
        f"model.layers.{n}.w": {"data_offsets": json_value(draw), "shape": [1]} for n in range(draw.randrange(5))
    }
    header = mutated(draw, json.dumps({**tensors, "__metadata__": json_value(draw)}).encode())
    length = len(header) if draw.random() < 0.8 else draw.choice((0, 1, 2**40, 2**63, len(header) * 2))
    return struct.pack("<Q", length) + header + b"\0" * 8


def gguf(draw: random.Random) -> bytes:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    names = ("general.architecture", "llama.block_count", "llama.embedding_length", "split.count", "x")
    numbers = (0, 1, 8, 2**31, 2**32 - 1)
    keys = []
    for _ in range(draw.randrange(6)):
        kind = draw.choice((0, 4, 6, 7, 8, 9, 10, 12, 13))
        value = struct.pack("<I", draw.choice(numbers))
        if kind == 8:
            value = text(draw.choice(("llama", "qwen2", "", "x" * 99)))
        elif kind == 9:
            value = struct.pack("<IQ", draw.choice((0, 4, 8, 9)), draw.choice((0, 1, 3, 2**24, 2**63)))
        elif kind in (10, 12):
            value = struct.pack("<Q", draw.choice((0, 8, 2**63)))
        keys.append(text(draw.choice(names)) + struct.pack("<I", kind) + value)
    tensors = [
        text(f"blk.{n}.attn_q.weight") + struct.pack("<IQQIQ", 2, 8, 2**40, draw.randrange(40), 0) for n in range(3)
    ]
    counted = draw.choice((len(keys), len(keys), len(keys), 2**20, 2**63))
    head = b"GGUF" + struct.pack("<IQQ", draw.choice((2, 3, 3, 9)), len(tensors), counted)
    return mutated(draw, head + b"".join(keys) + b"".join(tensors))


def script(draw: random.Random) -> bytes:
    parts = (
        *(SERVER, "--tp 8", "\\\n", "$TP", "${TP:-8}", "$((1+1))", "`x`", "$(x)", "'", '"', "{1..3}", "| tee x", "&& "),
        *("for i in 1 2; do ", "done\n", "if true; then ", "fi\n", "TP=8\n", "```bash\n", "```\n", "<<EOF\n", "EOF\n"),
        *("FROM x\n", "CMD [", "]", "apiVersion: v1\nkind: Pod\n", "  command: [", "import sglang\n", "sglang.Engine("),
        *("services:\n", "{{ .Values.x }}", "{% if x %}", "(", ")", "[", "]", "-" * 300, "\0", "\n", " ", "# ", "x."),
    )
    text = "".join(draw.choice(parts) * draw.choice((1, 1, 1, 1, 30, 900)) for _ in range(draw.randrange(1, 25)))
    return mutated(draw, text.encode())


def log(draw: random.Random) -> bytes:
    parts = (
        *(
            "[2025-06-11 08:14:02 TP0] ",
            "Traceback (most recent call last):\n",
            '  File "/x/sglang/srt/a.py", line 1, in f\n',
        ),
        *(
            "server_args=ServerArgs(model_path='a', tp_size=8)",
            "server_args={'a': ",
            "Error: ",
            "\n",
            " ",
            "\x1b[31m",
            "\r",
        ),
        *("{", "}", "(", "'", "\\", "\x00", '{"log": "x"}\n', "models--a--b/", "exit code 137"),
    )
    pieces = [draw.choice((*parts, *draw.sample(NEEDLES, 5))) for _ in range(draw.randrange(1, 60))]
    return mutated(draw, "".join(piece * draw.choice((1, 1, 1, 1, 1, 200)) for piece in pieces).encode())


def lines_of_json(draw: random.Random) -> bytes:
    rows = [
        {
            "timestamp": json_value(draw, 2),
            "input_length": json_value(draw, 2),
            "hash_ids": json_value(draw, 2),
            "prompt": "x",
        }
        for _ in range(draw.randrange(1, 6))
    ]
    return mutated(draw, "\n".join(map(json.dumps, rows)).encode())


def mutated(draw: random.Random, content: bytes) -> bytes:
    """The same, now and then cut, repeated, or with other bytes in it."""
    kind, at = draw.random(), draw.randrange(len(content) + 1)
    if kind < 0.1:
        return content[:at]
    if kind < 0.2:
        return content[:at] + draw.randbytes(draw.randrange(1, 9)) + content[at:]
    if kind < 0.25:
        return content[:at] + content[at : at + 9] * draw.randrange(1, 3_000) + content[at:]
    return content


def _readers(composer: Composer) -> dict[str, Reader]:
    def composed(file: Path) -> object:
        document = read_document(file)
        return composer.compose([*document.requests])

    def imported(file: Path) -> object:
        text = file.read_bytes().decode("utf-8", "replace")
        return launches_of(Source(file.name, text), composer)

    def diagnosed(file: Path) -> object:
        with file.open("rb") as stream:
            return diagnose(read_lines(stream), None)

    def typed(file: Path) -> object:
        text = file.read_bytes().decode("utf-8", "replace")
        return check_json("json_model_override_args", text), read_overrides(text)

    def settings(file: Path) -> object:
        os.environ[user_settings.FILE_VARIABLE] = str(file)
        try:
            user_settings.begin()
            return user_settings.settings()
        finally:
            os.environ[user_settings.FILE_VARIABLE] = ""
            user_settings.begin()

    def header(file: Path) -> object:
        return config_of(read_header(str(file)))

    def plan(file: Path) -> object:
        return parse_plan("plan.json", file.read_text(encoding="utf-8", errors="replace"))

    return {
        "yaml": Reader(experiment, composed),
        "folder": Reader(experiment, lambda file: list(documents([Request(str(file.parent), "")], None))),
        "settings": Reader(experiment, settings),
        "config.json": Reader(json_text, lambda file: read_config(str(file))),
        "plan": Reader(plan_text, plan, (NotAPlan, OtherSchema)),
        "argument": Reader(json_text, typed, (UnreadableOverrides,)),
        "safetensors": Reader(safetensors, lambda file: read_checkpoint(str(file.parent))),
        "gguf": Reader(gguf, header, (UnreadableGguf,)),
        "script": Reader(script, imported),
        "log": Reader(log, diagnosed),
        "trace": Reader(lines_of_json, lambda file: read_trace(str(file))),
        "prompts": Reader(lines_of_json, lambda file: file_prompts(str(file), 8)),
    }


_NAMES = {"yaml": "a.yaml", "folder": "a.yaml", "config.json": "config.json", "plan": "plan.json"}
_NAMES |= {"safetensors": "model.safetensors", "gguf": "a.gguf", "script": "run.sh", "log": "server.log"}


def fuzz(name: str, reader: Reader, count: int, seed: int, limit: float, last: Path | None) -> tuple[list[str], float]:
    """What failed of ``count`` inputs, and the longest time of one in seconds of the processor."""
    failures, longest = [], 0.0
    with tempfile.TemporaryDirectory() as made:
        file = Path(made) / _NAMES.get(name, "a.jsonl")
        for number in range(count):
            content = reader.make(random.Random(f"{name} {seed} {number}"))
            file.write_bytes(content)
            if last is not None:
                last.write_bytes(content)
            began = time.process_time()
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    reader.read(file)
            except reader.errors:
                pass
            except Exception:  # noqa: BLE001 - what else comes out is what is looked for
                failures.append(f"{name}, seed {seed}, input {number}: {content[:300]!r}\n{traceback.format_exc(-4)}")
            took = time.process_time() - began
            longest = max(longest, took)
            if took > limit:
                failures.append(f"{name}, seed {seed}, input {number}: {took:.1f} s: {content[:300]!r}")
    return failures, longest


def _most_mib() -> int:
    """The largest memory of this process so far, in MiB. getrusage would count that of the process that started it."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) >> 10


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=600, help="inputs in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=2.5, help="seconds of the processor for an input")
    parser.add_argument("--reader", action="append", help="only this one")
    parser.add_argument("--last", type=Path, help="keeps the input that is read")
    given = parser.parse_args(words)
    readers = _readers(Composer())
    chosen = {name: reader for name, reader in readers.items() if not given.reader or name in given.reader}
    failed = []
    for name, reader in chosen.items():
        count = -(-given.count // len(chosen))
        found, longest = fuzz(name, reader, count, given.seed, given.limit, given.last)
        failed += found
        print(f"{name}: {count} inputs, {len(found)} failed, the longest took {longest:.2f} s", flush=True)
    print(f"{_most_mib()} MiB")
    for failure in failed[:20]:
        print(failure)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
