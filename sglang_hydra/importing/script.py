"""The servers that a shell script starts, without running any of it: assignments are followed, conditions are not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sglang_hydra.importing.launches import (
    CONTAINERS,
    Launch,
    bare_flags,
    is_open,
    open_names,
    opened,
    speaks_of_launch,
    split_launch,
    without_marks,
)
from sglang_hydra.importing.syntax import Command, Value, commands_of, fields_of, replaced, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.ASCII | re.DOTALL)
_KEYWORDS = ("if", "then", "else", "elif", "do", "while", "until", "time", "!", "{")
_DECLARING = ("export", "declare", "local", "readonly", "typeset")
_DEEPEST = 5
_LONGEST = 1 << 16
# Variables that are for the server process and not for the script alone.
FOR_PROCESS = re.compile(
    r"(SGLANG|SGL|NCCL|CUDA|HIP|ROCR|HSA|HF|HUGGING_FACE|TORCH|TORCHINDUCTOR|PYTORCH|MC|MOONCAKE|NVSHMEM|GLOO|UCX|NIXL"
    r"|NVIDIA|NVTE|TRITON|FLASHINFER|AITER|VLLM|OMP|MKL|TOKENIZERS|TRANSFORMERS|TVM|DG|DEEPEP|ASCEND|HCCL|HABANA|PT"
    r"|OUTLINES|OTEL|MODELSCOPE|DYN)_\w+|USE_ROCM_AITER_\w+|HF_TOKEN|LD_PRELOAD"
)


@dataclass
class _Shell:
    """What the script has set so far."""

    variables: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    files: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        return {
            name: value
            for name in sorted(self.exported)
            if isinstance(value := self.variables.get(name), str) and FOR_PROCESS.fullmatch(name)
        }


class Script:
    """Reads one script. ``other`` reads texts in it that are no script: a manifest that is piped to kubectl."""

    def __init__(self, place: str, other: Callable[[str, str], Sequence[Launch]]) -> None:
        self.place = place
        self.other = other

    def launches(self, text: str, given: Mapping[str, str] | None = None) -> list[Launch]:
        """Every server that the script starts. ``given`` are the variables that its process has already."""
        shell = _Shell(dict(given or {}), set(given or ()))
        return list(self._run(text, shell, 0, 0))

    def _run(self, text: str, shell: _Shell, depth: int, first_line: int) -> Iterator[Launch]:
        commands = commands_of(text)
        for number, command in enumerate(commands):
            for launch in self._one(command, shell, depth, first_line):
                after = commands[number + 1].words[0] if number + 1 < len(commands) else ""
                yield _cut_short(launch, after, first_line + commands[number + 1].line) if after[:2] == "--" else launch

    def _one(self, command: Command, shell: _Shell, depth: int, first_line: int) -> Iterator[Launch]:
        words = list(command.words)
        while words and words[0] in _KEYWORDS:
            words.pop(0)
        own: dict[str, str] = {}
        while words and (match := _ASSIGNMENT.fullmatch(words[0])):
            words.pop(0)
            name, adds, value = match.groups()
            if words:
                own[name] = text_of(value, shell.variables)
            else:
                _assign(shell, name, adds, value)
        line = first_line + command.line
        yield from self._fed(command, shell, depth, line)
        if not words:
            shell.variables.update(own)
            return
        fields = [item for word in words for item in fields_of(word, shell.variables)]
        if not fields:
            return
        if fields[0] in _DECLARING:
            self._declare(words[1:], shell, exports=fields[0] != "local")
        elif fields[:2] == ["set", "--"]:
            shell.variables["@"] = fields[2:]
        else:
            yield from self._started(fields, own, shell, depth, line)

    def _declare(self, words: Sequence[str], shell: _Shell, *, exports: bool) -> None:
        for word in words:
            if match := _ASSIGNMENT.fullmatch(word):
                _assign(shell, *match.groups())
            if exports and not word.startswith("-"):
                shell.exported.add(word.partition("=")[0].rstrip("+"))

    def _fed(self, command: Command, shell: _Shell, depth: int, line: int) -> Iterator[Launch]:
        """Texts in the script: files that it writes, scripts and manifests that it feeds to a program."""
        for heredoc in command.heredocs:
            body = heredoc.body if heredoc.literal else replaced(heredoc.body, shell.variables)
            if command.target is not None:
                shell.files[text_of(command.target, shell.variables)] = body
            if "apiVersion:" in body or "\nservices:" in f"\n{body}":
                yield from self.other(body, self._at(line))
            elif depth < _DEEPEST and speaks_of_launch(body):
                inner = _Shell(dict(shell.variables), set(shell.exported), dict(shell.files))
                yield from self._run(body, inner, depth + 1, line)

    def _started(
        self, fields: list[str], own: Mapping[str, str], shell: _Shell, depth: int, line: int
    ) -> Iterator[Launch]:
        nested = [text for text in fields if " " in text.strip() and depth < _DEEPEST and speaks_of_launch(text)]
        environment = {**shell.environment(), **own, **_set_for_child(fields)}
        split = split_launch(fields)
        if split is None and nested:
            inner = {**shell.variables, **environment}
            for text in nested:
                below = _Shell(dict(inner), {*shell.exported, *environment}, dict(shell.files))
                below.variables.update(_positional(fields, text))
                for launch in self._run(text, below, depth + 1, line - 1):
                    said = (*launch.said, *fields[: fields.index(text)])
                    yield replace(launch, said=said, environment={**environment, **launch.environment})
            return
        kind = "command"
        if split is None and not own and (flags := bare_flags(fields)) is not None:
            split, kind = ([], flags), "flags"
        if split is None:
            return
        before, words = split
        if any(word.rpartition("/")[2] in CONTAINERS for word in before):
            kind = "container"
        yield Launch(
            kind,
            self._at(line),
            words=tuple(words),
            environment=environment,
            said=tuple(without_marks(word) for word in before),
            gpu_count=gpus_of_container(before) if kind == "container" else None,
            files=dict(shell.files),
        )

    def _at(self, line: int) -> str:
        return f"{self.place}:{line}" if self.place else f"line {line}"


def _assign(shell: _Shell, name: str, adds: str, value: str) -> None:
    made: Value
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
    if adds and before is not None:
        items = before if isinstance(before, list) else [before]
        if isinstance(made, list):
            made = [*items, *made]
        else:
            made = [*items[:-1], items[-1] + made] if isinstance(before, list) and items else "".join(items) + made
        made = opened(f"${name}") if sum(map(len, made)) + len(made) > _LONGEST else made
    shell.variables[name] = made


def _set_for_child(fields: Sequence[str]) -> dict[str, str]:
    """What ``env A=B``, ``docker run -e A=B`` and ``srun --export=A=B`` set, up to SGLang's own flags."""
    found: dict[str, str] = {}
    split = split_launch(fields)
    before = split[0] if split else list(fields)
    in_container = any(word.rpartition("/")[2] in CONTAINERS for word in before)
    takes_pairs = any(word.rpartition("/")[2] == "env" for word in before)
    for at, word in enumerate(before):
        option, equals, rest = word.partition("=")
        if in_container and word in ("-e", "--env") and at + 1 < len(before):
            option, equals, rest = "--env", "=", before[at + 1]
        elif in_container and word.startswith("-e") and not word.startswith("--"):
            option, equals, rest = "--env", "=", word[2:].lstrip("=")
        if option in ("--env", "--export") and equals:
            for pair in rest.split(",") if option == "--export" else [rest]:
                name, has_value, value = pair.partition("=")
                if has_value and name.isidentifier():
                    found[name] = value
        elif takes_pairs and equals and option.isidentifier():
            found[option] = rest
    return found


def _positional(fields: Sequence[str], text: str) -> dict[str, Value]:
    """``bash -c TEXT name a b``: what the text finds as $0, $1 and $@."""
    rest = list(fields[fields.index(text) + 1 :])
    return {"@": rest[1:], **{str(number): word for number, word in enumerate(rest[:10])}} if rest else {}


def gpus_of_container(words: Sequence[str]) -> int | None:
    """How many GPUs ``docker run --gpus`` gives; None for all of them, or where it does not say."""
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option == "--gpus":
            value = value if equals else words[at + 1] if at + 1 < len(words) else ""
            value = value.strip("'\"")
            if value.removeprefix("count=").isdigit():
                return int(value.removeprefix("count="))
            if value.startswith("device=") and not is_open(value):
                return len(value.removeprefix("device=").split(","))
    return None


def _cut_short(launch: Launch, after: str, line: int) -> Launch:
    remark = f"the command ends before line {line}, which begins with {after}: a comment or an empty line cuts it"
    return replace(launch, remarks=(*launch.remarks, remark))
