"""The state of a shell script when a command runs: variables, files, and values that depend on a condition."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sglang_hydra.convert.importing.expansion import Value, fields_of, text_of
from sglang_hydra.convert.importing.launches import has_launch_command, open_names, opened
from sglang_hydra.convert.importing.syntax import commands_of

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.ASCII | re.DOTALL)
# What a caller gives: $1, ${1#*=}, and what getopts takes of it.
_POSITIONAL = re.compile(r"\$\{?(?:[0-9@*]|OPTARG)(?!\w).*", re.DOTALL)
_LONGEST = 1 << 16
_DEFAULTED = re.compile(r"\$\{([A-Za-z_]\w*):?[-=]", re.ASCII)
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
    """The state of the script so far. ``conditions`` are the conditions around the next command that nothing decides,
    ``loops`` those of them that end by a condition. ``status`` is the last command's answer, if it is known. ``soft``
    variables have a default that a caller may replace. ``all_for_process``: every exported variable is the server's, as
    in what ``export`` writes."""

    variables: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    files: dict[str, str] = field(default_factory=dict)
    conditions: int = 0
    loops: int = 0
    status: bool | None = None
    doubtful: dict[str, int] = field(default_factory=dict)
    soft: set[str] = field(default_factory=set)
    functions: dict[str, Function] = field(default_factory=dict)
    all_for_process: bool = False

    def inner(self, variables: Mapping[str, Value] | None = None) -> Shell:
        """Returns the state of a child process."""
        return Shell(
            {**self.variables, **(variables or {})},
            set(self.exported),
            dict(self.files),
            doubtful=dict(self.doubtful),
            functions=self.functions,
            soft=set(self.soft),
            all_for_process=self.all_for_process,
        )

    def take_positional(self, words: Sequence[str]) -> None:
        """Sets ``$@``, ``$1`` and those behind it."""
        self.variables = {name: value for name, value in self.variables.items() if not name.isdigit() or name == "0"}
        self.variables |= {"@": list(words), **{str(number): word for number, word in enumerate(words, 1)}}

    def is_soft(self, written: str) -> bool:
        """Whether a caller may give another value to what a word holds."""
        defaulted = any(name not in self.variables for name in _DEFAULTED.findall(written))
        return defaulted or any(_is_named(name, [written]) for name in (*self.soft, *self.doubtful))

    def environment(self) -> dict[str, str]:
        return {
            name: value
            for name in sorted(self.exported)
            if isinstance(value := self.variables.get(name), str)
            and (self.all_for_process or FOR_PROCESS.fullmatch(name))
        }


def assign(shell: Shell, name: str, adds: str, value: str, condition: int | None = None) -> None:
    """Assigns a variable. ``condition`` is the line of an assignment that depends on a condition."""
    made: Value
    soft = shell.is_soft(value) or (bool(adds) and name in shell.soft)
    if value.startswith("("):
        inner = value[1:].removesuffix(")")
        made = [item for one in commands_of(inner) for word in one.words for item in fields_of(word, shell.variables)]
    else:
        made = text_of(value, shell.variables)
        if name in open_names(made) or f"${name}" in open_names(made):
            made = opened(f"${name}")
    if len(made) > _LONGEST:
        made = opened(f"${name}")
    before = shell.variables.get(name)
    if condition is not None:
        if any(_POSITIONAL.fullmatch(name) for text in _listed(made) for name in open_names(text)):
            return  # what another caller may give does not replace the script's default
        if before is not None and (adds or made != before):
            shell.doubtful[name] = condition
    for known, line in list(shell.doubtful.items()):
        if _is_named(known, [value]):
            shell.doubtful.setdefault(name, line)
    if condition is None and not adds and not any(_is_named(known, [value]) for known in shell.doubtful):
        shell.doubtful.pop(name, None)
    if adds and before is not None:
        items = before if isinstance(before, list) else [before]
        if isinstance(made, list):
            made = [*items, *made]
        else:
            made = [*items[:-1], items[-1] + made] if isinstance(before, list) and items else "".join(items) + made
        made = opened(f"${name}") if sum(map(len, made)) + len(made) > _LONGEST else made
    shell.variables[name] = made
    (shell.soft.add if soft else shell.soft.discard)(name)


def _listed(value: Value) -> list[str]:
    return value if isinstance(value, list) else [value]


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


def remarks_on_conditions(words: Sequence[str], shell: Shell) -> tuple[str, ...]:
    """The remark about a command whose words hold a variable that a condition has set."""
    return tuple(
        f"{name} is set under a condition (line {line}), which is taken to hold"
        for name, line in shell.doubtful.items()
        if _is_named(name, words)
    )


def _is_named(name: str, words: Sequence[str]) -> bool:
    return any(re.search(rf"\$\{{?{re.escape(name)}\b", word) for word in words)
