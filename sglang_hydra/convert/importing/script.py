"""The servers that a shell script starts, without running any of it: assignments are followed, conditions are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from sglang_hydra.convert.importing.expansion import Value, fields_of, replaced, text_of
from sglang_hydra.convert.importing.launches import (
    BEHIND_A_ROUTER,
    CONTAINERS,
    Launch,
    bare_flags,
    has_launch_command,
    is_open,
    split_launch,
    without_marks,
    without_opened,
)
from sglang_hydra.convert.importing.shell import (
    ASSIGNMENT,
    KEYWORDS,
    Shell,
    assign,
    defaults_of,
    follow_conditions,
    remarks_on_conditions,
    without_functions,
)
from sglang_hydra.convert.importing.syntax import Command, commands_of, substituted
from sglang_hydra.text.words import is_digits

_DECLARING = ("export", "declare", "local", "readonly", "typeset")
_WRAPPERS = ("sudo", "command", "exec", "time", "nohup")
# Programs to which a launch command is only a text.
_TEXT_PROGRAMS = (
    "echo", "printf", "pkill", "pgrep", "kill", "killall", "grep", "egrep", "fgrep", "rg", "awk", "sed", "ps", "test",
    "[", "[[", "which", "pip", "pip3", "apt", "apt-get", "git", "curl", "wget", "cat", "tail", "head", "tee", "alias",
)  # fmt: skip
_DEEPEST = 5


class Script:
    """Reads one script. ``other`` reads texts in it that are no script: a manifest that is piped to kubectl. ``home``
    is what ``~`` and ``$HOME`` come to, None where that is another machine's."""

    def __init__(self, place: str, other: Callable[[str, str], Sequence[Launch]], *, home: str | None = None) -> None:
        self.place = place
        self.other = other
        self.home = home

    def launches(self, text: str, given: Mapping[str, str] | None = None) -> list[Launch]:
        """Every server that the script starts. ``given`` are the variables that its process has already."""
        shell = Shell({"HOME": self.home, **(given or {})} if self.home else dict(given or {}), set(given or ()))
        return list(_once(self._run(text, shell, 0, 0)))

    def _run(self, text: str, shell: Shell, depth: int, first_line: int) -> Iterator[Launch]:
        alone = not has_launch_command(text)
        text, functions = without_functions(text, first_line)
        shell.functions |= functions
        yield from self._commands(commands_of(text), shell, depth, first_line, alone=alone)
        for function in functions.values():
            if not function.called and depth < _DEEPEST:
                function.called = True
                yield from self._run(function.body, shell.inner(), depth + 1, function.line)

    def _commands(
        self, commands: Sequence[Command], shell: Shell, depth: int, first_line: int, *, alone: bool
    ) -> Iterator[Launch]:
        for number, command in enumerate(commands):
            for launch in self._one(command, shell, depth, first_line):
                if launch.kind == "flags" and not alone:
                    continue  # what is left of a command that was cut, a pattern of case
                after = commands[number + 1].words[0] if number + 1 < len(commands) else ""
                yield _cut_short(launch, after, first_line + commands[number + 1].line) if after[:2] == "--" else launch

    def _one(self, command: Command, shell: Shell, depth: int, first_line: int) -> Iterator[Launch]:
        words = list(command.words)
        follow_conditions(words, shell)
        while words and words[0] in KEYWORDS:
            words.pop(0)
        sure = shell.conditions == 0 and not command.joined
        line = first_line + command.line
        own: dict[str, str] = {}
        while words and (match := ASSIGNMENT.fullmatch(words[0])):
            words.pop(0)
            name, adds, value = match.groups()
            if words:
                own[name] = text_of(value, shell.variables)
            else:
                assign(shell, name, adds, value, None if sure else line)
        if depth < _DEEPEST:
            for inner in (text for word in command.words for text in substituted(word) if has_launch_command(text)):
                yield from self._run(inner, shell.inner(), depth + 1, line - 1)
        yield from self._fed(command, shell, depth, line)
        if not words:
            shell.variables.update(own)
            return
        if words[0] == ":":
            for name, value in defaults_of(words[1:]):
                shell.variables.setdefault(name, text_of(value, shell.variables))
            return
        fields = [item for word in words for item in fields_of(word, shell.variables)]
        if not fields:
            return
        if fields[0] in _DECLARING:
            self._declare(words[1:], shell, None if sure else line, exports=fields[0] != "local")
        elif fields[:2] == ["set", "--"]:
            shell.variables["@"] = fields[2:]
        elif fields[0] in shell.functions and depth < _DEEPEST:
            function = shell.functions[fields[0]]
            function.called = True
            called = shell.inner({**{str(number): word for number, word in enumerate(fields)}, "@": fields[1:]})
            yield from self._run(function.body, called, depth + 1, function.line)
        elif fields[0] == "read" and command.heredocs:
            heredoc = command.heredocs[-1]
            shell.variables[fields[-1]] = heredoc.body if heredoc.literal else replaced(heredoc.body, shell.variables)
        else:
            remarks = remarks_on_conditions(command.words, shell)
            for launch in self._started(fields, own, shell, depth, line):
                yield replace(launch, remarks=(*launch.remarks, *remarks)) if remarks else launch

    def _declare(self, words: Sequence[str], shell: Shell, condition: int | None, *, exports: bool) -> None:
        for word in words:
            if match := ASSIGNMENT.fullmatch(word):
                name, adds, value = match.groups()
                assign(shell, name, adds, value, condition)
            if exports and not word.startswith("-"):
                shell.exported.add(word.partition("=")[0].rstrip("+"))

    def _fed(self, command: Command, shell: Shell, depth: int, line: int) -> Iterator[Launch]:
        """Reads the texts in a script: files that it writes, scripts and manifests that it pipes to a program."""
        for heredoc in command.heredocs:
            body = heredoc.body if heredoc.literal else replaced(heredoc.body, shell.variables)
            if command.target is not None:
                shell.files[text_of(command.target, shell.variables)] = body
            elif command.words[:1] in (["cat"], ["read"]) and not command.piped:
                continue  # a help text, a variable
            if "apiVersion:" in body or "\nservices:" in f"\n{body}":
                yield from self.other(body, self._at(line))
            elif depth < _DEEPEST and has_launch_command(body):
                yield from self._run(body, shell.inner(), depth + 1, line)

    def _started(
        self, fields: list[str], own: Mapping[str, str], shell: Shell, depth: int, line: int
    ) -> Iterator[Launch]:
        program = next((word for word in fields if word not in _WRAPPERS), "")
        if program.rpartition("/")[2] in _TEXT_PROGRAMS:
            return
        nested = [
            text
            for text in fields
            if " " in text.strip() and depth < _DEEPEST and has_launch_command(without_opened(text))
        ]
        environment = {**shell.environment(), **own, **_set_for_child(fields)}
        split = split_launch(fields)
        if split is None and nested:
            inner = {**shell.variables, **environment}
            if any(word.rpartition("/")[2] in (*CONTAINERS, "ssh") for word in fields):
                inner.pop("HOME", None)
            for text in nested:
                below = Shell(dict(inner), {*shell.exported, *environment}, dict(shell.files))
                below.variables.update(_positional(fields, text))
                for launch in self._run(text, below, depth + 1, line - 1):
                    mentions = (*launch.mentions, *fields[: fields.index(text)])
                    yield replace(launch, mentions=mentions, environment={**environment, **launch.environment})
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
            mentions=tuple(without_marks(word) for word in before),
            gpu_count=gpus_of_container(before) if kind == "container" else None,
            files=dict(shell.files),
            behind_router=before[-1:] == [BEHIND_A_ROUTER],
        )

    def _at(self, line: int) -> str:
        return f"{self.place}:{line}" if self.place else f"line {line}"


def _once(launches: Iterator[Launch]) -> Iterator[Launch]:
    """Yields each server once: a script that prints the command before it runs it has it twice."""
    seen: list[tuple[object, ...]] = []
    for launch in launches:
        key = (launch.words, launch.values, launch.environment, launch.name, launch.behind_router)
        if key not in seen:
            seen.append(key)
            yield launch


def _set_for_child(fields: Sequence[str]) -> dict[str, str]:
    """Returns the variables that ``env A=B``, ``docker run -e A=B`` and ``srun --export=A=B`` set, up to SGLang's
    own flags."""
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
    """Returns $0, $1 and $@ of ``bash -c TEXT name a b``."""
    rest = list(fields[fields.index(text) + 1 :])
    return {"@": rest[1:], **{str(number): word for number, word in enumerate(rest[:10])}} if rest else {}


def gpus_of_container(words: Sequence[str]) -> int | None:
    """Returns how many GPUs ``docker run --gpus`` gives; None for all of them, or where it does not say."""
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option == "--gpus":
            value = value if equals else words[at + 1] if at + 1 < len(words) else ""
            value = value.strip("'\"")
            if is_digits(value.removeprefix("count=")):
                return int(value.removeprefix("count="))
            if value.startswith("device=") and not is_open(value):
                return len(value.removeprefix("device=").split(","))
    return None


def _cut_short(launch: Launch, after: str, line: int) -> Launch:
    remark = f"the command ends before line {line}, which begins with {after}: a comment or an empty line cuts it"
    return replace(launch, remarks=(*launch.remarks, remark))
