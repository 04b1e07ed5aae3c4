"""Files that cost much where nothing bounds them: each by its name, with what reads it and words of the finding."""

from __future__ import annotations

import json
import struct
from typing import NamedTuple

SERVER = "gpu: h200\nmodel: qwen3_8b\n"


class Hostile(NamedTuple):
    """A file, the verb that reads it (``{}`` stands for its path), and what the finding says of the limit."""

    name: str
    content: str | bytes
    words: str = "check {}"
    told: str = ""


def _merges() -> str:
    levels = [f"a{n}: &a{n} {{<<: [{','.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 9)]
    return "a0: &a0 {x: 1}\n" + "".join(levels)


def _interpolations() -> str:
    lines = [f"  {key}: {('${extra.' + of + '}') * 10}\n" for of, key in zip("abcde", "bcdef", strict=True)]
    return f"{SERVER}served_model_name: ${{extra.f}}\nextra:\n  a: xxxxxxxxxx\n{''.join(lines)}"


def _made_keys() -> str:
    """Interpolations whose keys are made by others, which no count foresees."""
    lines = [
        f"  {key}: {('${extra.${extra.n' + of + '}}') * 10}\n  n{of}: {of}\n"
        for of, key in zip("abcde", "bcdef", strict=True)
    ]
    return f"{SERVER}served_model_name: ${{extra.f}}\nextra:\n  a: xxxxxxxxxx\n{''.join(lines)}"


def _each(line: str, number: int) -> str:
    """``line`` with 0, 1, 2 and so on for #, and the number after it for @."""
    return "".join(line.replace("#", str(at)).replace("@", str(at + 1)) for at in range(number))


def _gguf(layers: int) -> bytes:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    kind = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + kind + text("llama.block_count") + struct.pack("<II", 4, layers)


def _split(kind: int, value: bytes) -> bytes:
    """A header whose number of parts is no number."""
    keys = [(b"general.architecture", 8, struct.pack("<Q", 5) + b"llama"), (b"split.count", kind, value)]
    packed = [struct.pack("<Q", len(name)) + name + struct.pack("<I", of) + content for name, of, content in keys]
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + b"".join(packed)


def _skips(*patterns: str) -> str:
    skips = {"quant_method": "fp8", "ignored_layers": [f"re:{pattern}" for pattern in patterns]}
    sizes = {"hidden_size": 64, "num_hidden_layers": 99, "num_attention_heads": 4, "vocab_size": 999}
    about = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "intermediate_size": 64}
    return json.dumps({**about, **sizes, "quantization_config": skips})


def _servers(number: int) -> str:
    one = (
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: s{0}}}\nspec:\n  containers:\n  - name: c\n"
        "    command: [python, -m, sglang.launch_server, --model-path, Qwen/Qwen3-8B, --port, '{0}']\n"
    )
    return "---\n".join(one.format(port) for port in range(30000, 30000 + number))


def _of_containers(kind: str, number: int) -> str:
    """A manifest or a Compose file with ``number`` variables."""
    if kind == "Pod":
        variables = _each("    - {name: A#, value: x}\n", number)
        return (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: s}\nspec:\n  containers:\n  - name: c\n"
            f"    command: [{', '.join(COMMAND.split())}]\n    env:\n{variables}"
        )
    return f"services:\n  s:\n    command: {COMMAND}\n    environment:\n" + _each("      A#: x\n", number)


COMMAND = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B"
_FACTS = "plan gpu=h200 model=a/b model.facts_from={}"
_DEEP, _MANY, _LONG, _SELF = "50 levels deep", "values once its aliases", "400 digits", "is within"
HOSTILE = (
    Hostile("merges.yaml", _merges(), told=_MANY),
    Hostile("aliases_of_a_chain.yaml", "a0: &a0 [x]\n" + _each("a@: &a@ [*a#]\n", 900), told=_DEEP),
    Hostile("merge_of_itself.yaml", f"{SERVER}extra: &a\n  <<: *a\n", told=_SELF),
    Hostile("alias_of_itself.yaml", f"{SERVER}extra: &a [*a]\n", told=_SELF),
    Hostile("brackets.yaml", f"tp_size: {'[' * 30_000}", told="nest"),
    Hostile("braces.yaml", f"tp_size: {'{a: ' * 5_000}", told=_DEEP),
    Hostile("deep.json", f'{{"tp_size": {"[" * 60_000}{"]" * 60_000}}}', told=_DEEP),
    Hostile("plan.json", f'{{"schema": "sglang_hydra.plan/1", "a": {"[" * 60_000}{"]" * 60_000}}}', told=_DEEP),
    Hostile("overrides.yaml", f"{SERVER}json_model_override_args: '{'[' * 60_000}'", told=_DEEP),
    Hostile("base60.yaml", f"{SERVER}tp_size: 1{':59' * 3_000}\n", told=_LONG),
    Hostile("hexadecimal.yaml", f"{SERVER}tp_size: 0x{'f' * 5_000}\n", told=_LONG),
    Hostile("binary.yaml", f"{SERVER}tp_size: 0b{'1' * 50_000}\n", told=_LONG),
    Hostile("tagged.yaml", f"{SERVER}tp_size: !!int '0x{'f' * 5_000}'\n", told=_LONG),
    Hostile("no_number.yaml", f"{SERVER}tp_size: !!int ''\n", told="it is no YAML"),
    Hostile("no_time.yaml", f"{SERVER}tp_size: !!timestamp x\n", told="it is no YAML"),
    Hostile("interpolations.yaml", _interpolations(), told="10000 others or 1000000 letters"),
    Hostile("chain.yaml", f"{SERVER}extra:\n" + _each("  a#: ${extra.a@}\n", 500), told="50 times"),
    Hostile("made_keys.yaml", _made_keys(), told="1.7 s of the processor"),
    Hostile("unknown_keys.yaml", SERVER + _each("foo_#: 1\n", 3_000), told="after 50 mistakes"),
    Hostile("unknown_extras.yaml", f"{SERVER}extra:\n" + _each("  foo#: 1\n", 3_000), told="1.7 s of the processor"),
    Hostile("ignored.yaml", f"{SERVER}ignore: [{_each('FIT#,', 2_900)}]\n", told="CLI011"),
    Hostile("variables.yaml", f"{SERVER}engine:\n  env:\n" + _each("    A_#: x\n", 4_999), told=_MANY),
    Hostile("items.list.yaml", f"{SERVER}cuda_graph_bs: [{_each('@,', 9_000)}]\n", told="more than 3000 values"),
    Hostile("long_value.yaml", f"{SERVER}served_model_name: {'a' * 900_000}\n", told="larger than 64 KiB"),
    Hostile("calls.yaml", f"{SERVER}tp_size: {'int(' * 5_000}8{')' * 5_000}\n", told="is not an int"),
    Hostile("variables.pod.yaml", _of_containers("Pod", 5_900), "import {}", "5900 variables; at most 1000"),
    Hostile("variables.compose.yaml", _of_containers("Compose", 9_900), told="9900 variables; at most 1000"),
    Hostile("server_args.log", "server_args=ServerArgs(model_path='m', tp_size=1)\n" * 120_000, "import {}", "1.7 s"),
    Hostile("steps.log", "[2025-09-01 10:00:00] Decode batch. #running-req: 1\n" * 150_000, "import {}", "1 MiB"),
    Hostile("layers.gguf", _gguf(2**32 - 1), "plan gpu=h200 model={}", "4294967295 layers"),
    Hostile("fences.md", "```bash\nx\n```\n" * 12_000, "import {}", "20000 are read"),
    Hostile("few_fences.md", "```bash\nx\n```\n" * 6_000, "import {}", "starts no SGLang server"),
    Hostile("continued.sh", COMMAND + " \\\n --tp 2" * 50_000 + "\n", "import {}", "20000 are read"),
    Hostile("words.sh", f"{COMMAND}{' --tp 2' * 50_000}\n", "import {}", "1.7 s of the processor"),
    Hostile("servers.yaml", _servers(3_000), "import {}", "20000 are read"),
    Hostile("fewer_servers.yaml", _servers(200), "check {}", "at most 32 are read"),
    Hostile("odd_keys.yaml", f"{SERVER}1: 2\nnull: 4\ntrue: 5\n.nan: 7\n", told="CLI001"),
    Hostile("open_string.json", '{"a": "' + '[\\"' * 300_000, told="it is no JSON"),
    Hostile("open_string.config.json", '{"model_type": "' + '[\\"' * 3_000_000, _FACTS, "this is no JSON"),
    Hostile("split_text.gguf", _split(8, struct.pack("<Q", 1) + b"x"), "plan gpu=h200 model={}", "GGUF"),
    Hostile("split_nan.gguf", _split(6, struct.pack("<f", float("nan"))), "plan gpu=h200 model={}", "GGUF"),
    Hostile("patterns.config.json", _skips(*["(.*)*(.*)*x"] * 9), _FACTS, "1.7 s of the processor"),
    Hostile("deep_pattern.config.json", _skips("(" * 5_000), _FACTS, "Plan "),
    Hostile("items.yaml", "apiVersion: v1\nkind: Pod\nitems: 5\n", "import {}", "starts no SGLang server"),
    Hostile(
        "environment.yaml", f"services: {{s: {{image: sglang, environment: 5, command: {COMMAND}}}}}\n", "import {}", ""
    ),
    Hostile("lora.log", "target modules lora " * 410 + "\n", "diagnose {}", ""),
    Hostile(
        "snapshots.log",
        f"[2025-09-01 10:00:00] server_args=ServerArgs(model_path='{'models--' * 2_000}')\n",
        "diagnose {}",
        "",
    ),
)
