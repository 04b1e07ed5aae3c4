"""The servers that a shell script starts, without running any of it: assignments are followed, conditions are not."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace

from sglang_hydra.convert.importing.conditions import Choices, assigned, chosen, compared, is_test, tested
from sglang_hydra.convert.importing.expansion import Value, fields_of, replaced, text_of
from sglang_hydra.convert.importing.launches import (
    BEHIND_A_ROUTER,
    CONTAINERS,
    Launch,
    bare_flags,
    has_launch_command,
    is_open,
    opened,
    split_launch,
    without_marks,
    without_opened,
)
from sglang_hydra.convert.importing.readings import of_every_reading
from sglang_hydra.convert.importing.shell import (
    ASSIGNMENT,
    Shell,
    assign,
    defaults_of,
    remarks_on_conditions,
    without_functions,
)
from sglang_hydra.convert.importing.statements import Alternatives, Branches, Loop, Node, statements_of
from sglang_hydra.convert.importing.syntax import Command, commands_of, substituted
from sglang_hydra.convert.importing.wrappers import gpus_of_container, set_for_child
from sglang_hydra.convert.made_for import words_in
from sglang_hydra.text.words import is_digits

_DECLARING = ("export", "declare", "local", "readonly", "typeset")
_WRAPPERS = ("sudo", "command", "exec", "time", "nohup")
# Programs to which a launch command is only a text.
_TEXT_PROGRAMS = (
    "echo", "printf", "pkill", "pgrep", "kill", "killall", "grep", "egrep", "fgrep", "rg", "awk", "sed", "ps", "test",
    "[", "[[", "which", "pip", "pip3", "apt", "apt-get", "git", "curl", "wget", "cat", "tail", "head", "tee", "alias",
)  # fmt: skip
_DEEPEST = 5
_MOST_TURNS = 64
_ONE_OF_TWO = re.compile(r"\$\(\s*(\[.*\])\s*&&\s*echo\s+([^\s;&|]+)\s*\|\|\s*echo\s+([^\s;&|]+)\s*\)")
_SBATCH = re.compile(r"^#SBATCH[ \t]+(.*)$", re.MULTILINE)
_SLURM = {
    "SLURM_NNODES SLURM_JOB_NUM_NODES": r"(?:--nodes[= ]|-N ?)(\d+)\b",
    "SLURM_GPUS_ON_NODE SLURM_GPUS_PER_NODE": r"--gpus-per-node[= ](?:\w+:)?(\d+)\b",
    "SLURM_NTASKS_PER_NODE": r"--ntasks-per-node[= ](\d+)\b",
}
_IF_SET = re.compile(r"\$\{([A-Za-z_]\w*):?\+[^{}]*--", re.ASCII)


class Script:
    """Reads one script. ``other`` reads texts in it that are no script: a manifest that is piped to kubectl. ``home``
    is what ``~`` and ``$HOME`` come to, None where that is another machine's."""

    def __init__(self, place: str, other: Callable[[str, str], Sequence[Launch]], *, home: str | None = None) -> None:
        self.place = place
        self.other = other
        self.home = home
        self.choices = Choices()
        self.turns = 0
        self.parsed: dict[str, list[Node]] = {}

    def launches(self, text: str, given: Mapping[str, str] | None = None) -> list[Launch]:
        """Every server that the script starts: where its caller decides a condition, those of each answer. ``given``
        are the variables that its process has already."""

        def read(choices: Choices) -> list[Launch]:
            self.choices, self.turns = choices, 0
            variables = {**_of_job(text), **(given or {})}
            variables |= {"HOME": variables.get("HOME", self.home)} if self.home else {}
            shell = Shell(dict(variables), set(given or ()), all_for_process=bool(words_in(text)))
            return list(_once(self._run(text, shell, 0, 0)))

        return of_every_reading(read)

    def _run(self, text: str, shell: Shell, depth: int, first_line: int) -> Iterator[Launch]:
        alone = not has_launch_command(text)
        text, functions = without_functions(text, first_line)
        shell.functions |= functions
        if text not in self.parsed:
            self.parsed[text] = statements_of(commands_of(text))
        for launch in self._block(self.parsed[text], shell, depth, first_line):
            if launch.kind != "flags" or alone:  # else what is left of a command that was cut, a pattern of case
                yield launch
        for function in functions.values():
            if not function.called and depth < _DEEPEST:
                function.called = True
                yield from self._run(function.body, shell.inner(), depth + 1, function.line)

    def _block(
        self, nodes: Sequence[Node], shell: Shell, depth: int, first_line: int, *, end: int | None = None
    ) -> Iterator[Launch]:
        """Reads statements up to ``end``, but none behind ``&&`` and ``||`` of which it is known that it is passed."""
        for at, node in enumerate(nodes[:end]):
            joined = node.after in ("&&", "||")
            if joined and shell.status is not None and shell.status == (node.after == "||"):
                continue
            doubt = int(joined and shell.status is None)
            shell.conditions += doubt
            yield from self._node(node, nodes[at + 1 :], shell, depth, first_line)
            shell.conditions -= doubt

    def _node(
        self, node: Node, following: Sequence[Node], shell: Shell, depth: int, first_line: int
    ) -> Iterator[Launch]:
        if isinstance(node, Branches):
            yield from self._branches(node, shell, depth, first_line)
        elif isinstance(node, Alternatives):
            yield from self._alternatives(node, shell, depth, first_line)
        elif isinstance(node, Loop):
            yield from self._loop(node, shell, depth, first_line)
        elif is_test(node.words[node.words[:1] == ["!"] :]):
            sides = [[one for one in _joined(following) if one.after == sign] for sign in ("&&", "||")]
            shell.status = tested(node, shell, self.choices, sides) if _joined(following) else None
        elif node.words in (["true"], [":"], ["false"]):
            shell.status = node.words != ["false"]
        else:
            shell.status = None
            for launch in self._one(node, shell, depth, first_line):
                word, line = node.follower
                yield _cut_short(launch, word, first_line + line) if word[:2] == "--" else launch
            shell.status = True if ASSIGNMENT.fullmatch(node.words[-1]) else None

    def _branches(self, node: Branches, shell: Shell, depth: int, first_line: int) -> Iterator[Launch]:
        others = [body for _, body in node.options]
        for number, (condition, body) in enumerate(node.options):
            holds: bool | None = True
            if condition is not None:
                *before, last = condition or [Command(0, ["true"])]
                yield from self._block(condition, shell, depth, first_line, end=-1)
                sides = [body, others[number + 1] if number + 2 == len(others) else []]
                holds = yield from self._condition(last, bool(before), sides, shell, depth, first_line)
            doubt = int(holds is None)
            if holds is not False:
                shell.conditions += doubt
                yield from self._block(body, shell, depth, first_line)
                shell.conditions -= doubt
            if holds:
                break
        for name in {name for body in others for name in assigned(body)} - shell.variables.keys():
            if not self.choices.made.get((name, "-n", "")):
                shell.variables[name] = ""  # nothing has set it here, though a caller may
                shell.soft.add(name)
        shell.status = None

    def _condition(
        self, last: Node, is_long: bool, sides: Sequence[Sequence[Node]], shell: Shell, depth: int, first_line: int
    ) -> Generator[Launch, None, bool | None]:
        """Reads the last command of a condition; returns its answer, None inside a loop."""
        if isinstance(last, Command) and is_test(last.words[last.words[:1] == ["!"] :]):
            if not (last.joined and shell.status is not None and shell.status == (last.after == "||")):
                shell.status = tested(last, shell, self.choices, [[], []] if is_long else sides)
            return shell.status
        yield from self._block([last], shell, depth, first_line)
        if shell.status is not None or shell.loops:
            return shell.status
        words = last.words if isinstance(last, Command) else ["..."]
        negated = words[:1] == ["!"]
        key = (" ".join(words[negated:]), "?", "")
        return chosen(key, self.choices, sides[::-1] if negated else sides, likely=not negated) != negated

    def _alternatives(self, node: Alternatives, shell: Shell, depth: int, first_line: int) -> Iterator[Launch]:
        for patterns, body in node.options:
            holds: bool | None = None
            if not shell.loops:
                holds = any(
                    pattern == "*" or compared([node.subject, "=", pattern], shell, self.choices, [body, []])
                    for pattern in patterns
                )
            if holds is not False:
                doubt = int(holds is None)
                shell.conditions += doubt
                yield from self._block(body, shell, depth, first_line)
                shell.conditions -= doubt
            if holds:
                break
        shell.status = None

    def _loop(self, node: Loop, shell: Shell, depth: int, first_line: int) -> Iterator[Launch]:
        """Reads a loop over known items once for each of them, another one once."""
        name = node.words[0] if node.words else ""
        items = [item for word in node.words[2:] for item in fields_of(word, shell.variables)]
        self.turns += len(items)
        if items and not any(map(is_open, items)) and self.turns < _MOST_TURNS:
            for item in items:
                shell.variables[name] = item
                yield from self._block(node.body, shell, depth, first_line)
        else:
            if name.isidentifier():
                shell.variables[name] = opened(f"${name}")
            shell.conditions += 1
            shell.loops += bool(node.condition)
            yield from self._block([*node.condition, *node.body], shell, depth, first_line)
            shell.conditions -= 1
            shell.loops -= bool(node.condition)
        shell.status = None

    def _one(self, command: Command, shell: Shell, depth: int, first_line: int) -> Iterator[Launch]:
        words = [word for word in command.words if word != "!"] if command.words[0] == "!" else list(command.words)
        sure = shell.conditions == 0
        line = first_line + command.line
        own: dict[str, str] = {}
        while words and (match := ASSIGNMENT.fullmatch(words[0])):
            words.pop(0)
            name, adds, value = match.groups()
            if words:
                own[name] = text_of(value, shell.variables)
                continue
            if match := _ONE_OF_TWO.fullmatch(value):
                (test,) = commands_of(match[1])
                holds = tested(test, shell, self.choices, ((), ())) is not False
                value = match[2] if holds else match[3]
            assign(shell, name, adds, value, None if sure else line)
        for name in {name for word in words for name in _IF_SET.findall(word)} - shell.variables.keys():
            if self.choices.holds((name, "-n", ""), likely=False):
                shell.variables[name] = opened(f"${name}")
        if depth < _DEEPEST:
            for inner in (text for word in command.words for text in substituted(word) if has_launch_command(text)):
                yield from self._run(inner, shell.inner(), depth + 1, line - 1)
        yield from self._fed(command, shell, depth, line)
        if not words:
            shell.variables.update(own)
        elif words[0] == ":":
            for name, value in defaults_of(words[1:]):
                if name not in shell.variables:
                    assign(shell, name, "", f"${{{name}:-{value}}}")
        elif fields := [item for word in words for item in fields_of(word, shell.variables)]:
            yield from self._expanded(command, words, fields, own, shell, depth, line)

    def _expanded(
        self,
        command: Command,
        words: Sequence[str],
        fields: list[str],
        own: Mapping[str, str],
        shell: Shell,
        depth: int,
        line: int,
    ) -> Iterator[Launch]:
        """Reads a command by its expanded words."""
        if fields[0] in _DECLARING:
            self._declare(words[1:], shell, None if shell.conditions == 0 else line, exports=fields[0] != "local")
        elif fields[:2] == ["set", "--"]:
            shell.take_positional(fields[2:])
        elif fields[0] == "shift":
            rest = shell.variables.get("@")
            count = int(fields[1]) if len(fields) > 1 and is_digits(fields[1]) else 1
            if isinstance(rest, list) and shell.conditions == 0:
                shell.take_positional(rest[count:])
        elif fields[0] in shell.functions and depth < _DEEPEST:
            function = shell.functions[fields[0]]
            function.called = True
            called = shell.inner({"0": fields[0]})
            called.take_positional(fields[1:])
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
            elif command.words[:1] in (["cat"], ["read"]) and command.ended != "|":
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
        environment = {**shell.environment(), **own, **set_for_child(fields)}
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


def _joined(nodes: Sequence[Node]) -> list[Node]:
    """The statements that ``&&`` and ``||`` join to the one before them."""
    end = next((at for at, node in enumerate(nodes) if node.after not in ("&&", "||")), len(nodes))
    return list(nodes[:end])


def _once(launches: Iterator[Launch]) -> Iterator[Launch]:
    """Yields each server once: a script that prints the command before it runs it has it twice."""
    seen: list[tuple[object, ...]] = []
    for launch in launches:
        key = (launch.words, launch.values, launch.environment, launch.name, launch.behind_router)
        if key not in seen:
            seen.append(key)
            yield launch


def _of_job(text: str) -> dict[str, Value]:
    """The variables that Slurm sets by the script's own ``#SBATCH`` lines."""
    lines = " ".join(_SBATCH.findall(text))
    found = {names: match[1] for names, pattern in _SLURM.items() if (match := re.search(pattern, lines))}
    return {name: value for names, value in found.items() for name in names.split()}


def _positional(fields: Sequence[str], text: str) -> dict[str, Value]:
    """Returns $0, $1 and $@ of ``bash -c TEXT name a b``."""
    rest = list(fields[fields.index(text) + 1 :])
    return {"@": rest[1:], **{str(number): word for number, word in enumerate(rest[:10])}} if rest else {}


def _cut_short(launch: Launch, after: str, line: int) -> Launch:
    remark = f"the command ends before line {line}, which begins with {after}: a comment or an empty line cuts it"
    return replace(launch, remarks=(*launch.remarks, remark))
