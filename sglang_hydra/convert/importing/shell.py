"""The state of a shell script when a command runs: its variables, files and functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sglang_hydra.convert.importing.expansion import Value, fields_of, text_of
from sglang_hydra.convert.importing.launches import has_launch_command, open_names, opened
from sglang_hydra.convert.importing.syntax import commands_of

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.ASCII | re.DOTALL)
_LONGEST = 1 << 16
_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*):?=(.*)\}", re.ASCII | re.DOTALL)
_FUNCTION = re.compile(
    r"^([ \t]*)(?:function[ \t]+([A-Za-z_][\w-]*)(?:[ \t]*\(\))?|([A-Za-z_][\w-]*)[ \t]*\(\))[ \t]*\n?[ \t]*"
    r"\{[ \t]*\n(.*?\n)\1\}",
    re.MULTILINE | re.DOTALL,
)
# Variables that are for the server process and not for the script alone.
FOR_PROCESS = re.compile(
    r"(SGLANG|SGL|NCCL|CUDA|HIP|ROCR|HSA|HF|HUGGING_FACE|TORCH|TORCHINDUCTOR|PYTORCH|MC|MOONCAKE|NVSHMEM|GLOO|UCX|NIXL"
    r"|NVIDIA|NVTE|TRITON|FLASHINFER|AITER|VLLM|OMP|MKL|TOKENIZERS|TRANSFORMERS|TVM|DG|DEEPEP|ASCEND|HCCL|HABANA|PT"
    r"|OUTLINES|OTEL|MODELSCOPE|DYN)_\w+|USE_ROCM_AITER_\w+|HF_TOKEN|LD_PRELOAD"
)


@dataclass
class Function:
    """A function of the script, the line before its body, and whether the script called it."""

    body: str
    line: int
    called: bool = False


@dataclass
class Shell:
    """The state of the script so far. ``all_for_process``: every exported variable is the server's, as in what
    ``export`` writes."""

    variables: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    files: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    all_for_process: bool = False

    def inner(self, variables: Mapping[str, Value] | None = None) -> Shell:
        """Returns the state of a child process."""
        return Shell(
            {**self.variables, **(variables or {})},
            set(self.exported),
            dict(self.files),
            self.functions,
            self.all_for_process,
        )

    def take_positional(self, words: Sequence[str]) -> None:
        """Sets ``$@``, ``$#``, ``$1`` and those behind it."""
        self.variables = {name: value for name, value in self.variables.items() if not name.isdigit() or name == "0"}
        self.variables |= {"@": list(words), "#": str(len(words))}
        self.variables |= {str(number): word for number, word in enumerate(words, 1)}

    def environment(self) -> dict[str, str]:
        return {
            name: value
            for name in sorted(self.exported)
            if isinstance(value := self.variables.get(name), str)
            and (self.all_for_process or FOR_PROCESS.fullmatch(name))
        }

    def assign(self, name: str, adds: str, value: str) -> None:
        """Assigns a variable."""
        made: Value
        if value.startswith("("):
            inner = value[1:].removesuffix(")")
            words = [word for one in commands_of(inner) for word in one.words]
            made = [item for word in words for item in fields_of(word, self.variables)]
        else:
            made = text_of(value, self.variables)
            if name in open_names(made) or f"${name}" in open_names(made):
                made = opened(f"${name}")
        before = self.variables.get(name)
        if adds and before is not None:
            items = before if isinstance(before, list) else [before]
            if isinstance(made, list):
                made = [*items, *made]
            else:
                made = [*items[:-1], items[-1] + made] if isinstance(before, list) and items else "".join(items) + made
        if sum(map(len, made)) + len(made) > _LONGEST:
            made = opened(f"${name}")
        self.variables[name] = made

    def pass_over(self, words: Sequence[str]) -> None:
        """Takes note of assignments that are not made: a variable that nothing else sets is empty."""
        for match in filter(None, map(ASSIGNMENT.fullmatch, words)):
            self.variables.setdefault(match[1], "")


def without_functions(text: str, first_line: int) -> tuple[str, dict[str, Function]]:
    """Removes the functions that start a server, keeping line numbers, and returns them by name."""
    found: dict[str, Function] = {}

    def take(match: re.Match[str]) -> str:
        if not has_launch_command(match[4]):
            return match[0]
        line = first_line + text.count("\n", 0, match.start(4))
        found[match[2] or match[3]] = Function(match[4], line)
        return "\n" * match[0].count("\n")

    return _FUNCTION.sub(take, text), found


def defaults_of(words: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the variables that ``: ${NAME:=value}`` sets where they have no value."""
    found = [_DEFAULT.fullmatch(word.strip('"')) for word in words]
    return [(match[1], match[2]) for match in found if match]
