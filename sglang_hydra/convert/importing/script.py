"""Finds the servers that a shell script starts, without running it.

Follows assignments, and branches whose conditions depend on known values. Assumes that conditions on a caller or a
program hold, and reports them beside the servers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

from sglang_hydra.convert.importing.expansion import compared, fields_of, is_test, tested, text_of
from sglang_hydra.convert.importing.launches import (
    CONTAINERS,
    OPEN,
    Launch,
    bare_flags,
    fault_of_command,
    has_launch_command,
    is_one_of,
    of_every_node,
    opened,
    split_launch,
    without_marks,
    without_opened,
)
from sglang_hydra.convert.importing.shell import (
    ASSIGNMENT,
    Shell,
    defaults_of,
    gpus_of_container,
    gpus_of_slurm,
    set_by_slurm,
    set_for_child,
    where_slurm_runs,
)
from sglang_hydra.convert.importing.syntax import Command, commands_of, substituted
from sglang_hydra.convert.made_for import words_in
from sglang_hydra.text.words import short

_DECLARING = ("export", "declare", "local", "readonly", "typeset")
_WRAPPERS = ("sudo", "command", "exec", "time", "nohup")
_DEEPEST = 5
_OPENING = ("if", "while", "until", "{", "case", "for", "select")
_CLOSING = ("fi", "done", "esac", "}")
_WITHIN = ("then", "elif", "else", "do")
_OF_A_CALLER = re.compile(r"\$\{?[@*#1-9]|\bgetopts\b")
"""A loop over these reads a caller's options: it is read as without any."""
_ONE_OF_TWO = re.compile(r"\$\(\s*(\[.*\])\s*&&\s*echo\s+([^\s;&|]+)\s*\|\|\s*echo\s+([^\s;&|]+)\s*\)")
UNREAD = "a server is not read: "
_LISTENS = ("--host", "--port")
_PORT = "30000"
"""SGLang's default."""
_ENDING = ("wait", "kill", "pkill", "killall")
_ELSEWHERE = ("ssh", "srun", "pdsh", "mpirun", "kubectl")
_IF_SET = re.compile(r"\$\{([A-Za-z_]\w*):?\+[^{}]*--", re.ASCII)


@dataclass
class _Block:
    """A branch, loop or group around the next command: whether that command ``runs``, whether a branch was ``taken``,
    and the ``unknown`` condition that is assumed to hold; ``default`` is the variable whose default decides. A ``for``
    has its ``name``, a ``case`` its ``subject`` and, while they are read, its patterns."""

    kind: str
    runs: bool = True
    taken: bool = False
    unknown: str = ""
    default: str = ""
    name: str = ""
    subject: str = ""
    patterns: list[str] | None = None


@dataclass
class _Frame:
    """One text in progress. ``status`` is the answer of the last command, None if unknown, ``last`` that command and
    ``default`` the variable whose default decides it."""

    shell: Shell
    depth: int
    first_line: int
    blocks: list[_Block] = field(default_factory=list)
    status: bool | None = None
    last: str = ""
    default: str = ""

    @property
    def runs(self) -> bool:
        """Returns whether the next command is in running branches only."""
        return all(block.runs for block in self.blocks)

    def passes_over(self, command: Command) -> bool:
        """Returns whether the known answer before ``&&`` or ``||`` skips the command."""
        return command.joined and self.status is not None and self.status == (command.after == "||")

    @property
    def passed_by_default(self) -> str:
        """Returns the variable whose default alone skips the next command; empty for none."""
        off = [block.default for block in self.blocks if not block.runs]
        return (off[0] if all(off) else "") if off else self.default

    @property
    def unknown(self) -> str:
        """Returns the last command if its answer is unknown, else an empty text."""
        return self.last if self.status is None else ""


class Script:
    """Reads one script. ``other`` reads embedded texts that are no scripts, such as a manifest piped to kubectl.
    ``home`` replaces ``~`` and ``$HOME``, None for another machine."""

    def __init__(self, place: str, other: Callable[[str, str], Sequence[Launch]], *, home: str | None = None) -> None:
        self.place = place
        self.other = other
        self.home = home
        self.unknown: dict[str, None] = {}
        self.unread: dict[tuple[str, ...], str] = {}
        self.cut: dict[str, list[tuple[str, Command]]] = {}
        self.listening: dict[str, str] = {}

    def launches(self, text: str, given: Mapping[str, str] | None = None) -> list[Launch]:
        """Returns every server that the script starts. ``given`` are the variables of its process. Assumes that
        undecided conditions hold, and adds a remark if a server depends on one."""
        variables = {"#": "0", **set_by_slurm(text), **(given or {})}
        variables |= {"HOME": variables.get("HOME", self.home)} if self.home else {}
        shell = Shell(dict(variables), set(given or ()), all_for_process=bool(words_in(text)))
        found = _once(self._run(text, shell, 0, 0))
        open_names = {place.rpartition("$")[2] for place in self.unread.values()} - variables.keys()
        if not found and open_names:
            return self.launches(text, {**(given or {}), **{name: opened(f"${name}") for name in open_names}})
        read = [of_every_node(launch.words, _LISTENS) for launch in found]
        remarks = [f"{UNREAD}{place}" for words, place in self.unread.items() if words not in read]
        if "\r\n" in text and self.place.endswith((".sh", ".bash", ".sbatch", ".slurm")):
            remarks.append("its lines end as on Windows, and a shell takes the \\r into a word: sed -i 's/\\r$//' FILE")
        if self.unknown:
            conditions = "; ".join(self.unknown)
            remarks.append(f"conditions that are taken to hold: {conditions}; --env NAME=VALUE decides one")
        gpus, named = gpus_of_slurm(text), where_slurm_runs(text)
        made = [replace(one, remarks=(*one.remarks, *remarks), mentions=(*one.mentions, *named)) for one in found]
        return [replace(launch, gpu_count=launch.gpu_count or gpus) for launch in made]

    def _run(self, text: str, shell: Shell, depth: int, first_line: int) -> Iterator[Launch]:
        alone = not has_launch_command(text)
        if text not in self.cut:
            self.cut[text] = list(_tokens(commands_of(text)))
        for launch in self._read(self.cut[text], _Frame(shell, depth, first_line)):
            if launch.kind != "flags" or alone:  # else the rest of a cut command, or a pattern of case
                yield launch

    def _read(self, tokens: Sequence[tuple[str, Command]], frame: _Frame) -> Iterator[Launch]:
        for word, command in tokens:
            top = frame.blocks[-1] if frame.blocks else None
            of_case = top is not None and top.kind == "case" and word != "esac"
            if top is not None and of_case and (top.patterns is not None or command.after == ";;"):
                self._match(top, command.words, command.ended, frame)
            elif word in _OPENING:
                frame.blocks.append(self._opened(word, command, frame))
            elif top is not None and word in _CLOSING:
                frame.blocks.pop()
                frame.status, frame.last = None, ""
            elif top is not None and word in _WITHIN:
                self._turn(word, top, frame)
            elif not word:
                yield from self._command(command, frame)

    def _opened(self, word: str, command: Command, frame: _Frame) -> _Block:
        if not frame.runs or frame.passes_over(command):
            return _Block("", runs=False, default=frame.passed_by_default)
        block = _Block(word, unknown=frame.unknown if command.joined else "")
        frame.status, frame.last = None, ""
        if word == "case":
            block.subject, *_, block.patterns = *command.words[1:2], "", []
            block.default = frame.shell.default_in([block.subject])
            self._match(block, command.words[3:], command.ended, frame)
        elif word in ("for", "select"):
            words = command.words[1:]  # NAME in ITEMS
            block.name = words[0] if words else ""
            # The body is read once, with an unknown item; for a caller's options not at all.
            block.runs = len(words) > 2 and not any(map(_OF_A_CALLER.search, words))
            if block.runs:
                block.unknown = short(" ".join(words), 60)
                frame.shell.variables[block.name] = opened(f"${block.name}")
        return block

    def _turn(self, word: str, block: _Block, frame: _Frame) -> None:
        """Decides at ``then``, ``elif``, ``else`` and ``do`` whether the next commands run."""
        if word in ("then", "do") and frame.runs and not block.name:
            block.unknown = block.unknown or frame.unknown
            block.default = block.default or frame.default
            is_of_caller = word == "do" and _OF_A_CALLER.search(frame.last) is not None
            block.runs = block.taken = frame.status is not False and not is_of_caller
        elif word in ("elif", "else") and block.kind:
            block.runs = not block.taken
        frame.status, frame.last = None, ""

    def _match(self, block: _Block, words: Sequence[str], ended: str, frame: _Frame) -> None:
        """Reads patterns of a ``case``, and decides after the last one whether its commands run."""
        block.patterns = [*(block.patterns or ()), *words]
        if ended != ")":
            return
        block.runs = False
        for pattern in [] if block.taken else block.patterns:
            holds = pattern == "*" or compared([block.subject, "=", pattern], frame.shell.variables)
            if holds is not False:
                block.unknown = "" if holds else f"{block.subject} = {pattern}"
                block.runs = block.taken = True
                break
        block.patterns = None

    def _command(self, command: Command, frame: _Frame) -> Iterator[Launch]:
        """Reads a command if it runs, and records its answer."""
        shell = frame.shell
        sets = ASSIGNMENT.fullmatch(command.words[-1]) is not None
        around = [block.unknown for block in frame.blocks]
        if not frame.runs or frame.passes_over(command):
            shell.pass_over(command.words, around)
            self._rests_on(around if sets else ())
            self._passed(command, frame)
            return
        doubt = frame.unknown if command.joined and (sets or is_test(frame.last.split())) else ""
        before = [frame.unknown, command.after] if command.joined and frame.unknown and is_test(command.words) else []
        frame.last = short(" ".join([*before, *command.words]), 60)
        frame.default = shell.default_in(command.words) if is_test(command.words) else ""
        if command.words[0] in _ENDING:
            self.listening.clear()
        if is_test(command.words):
            frame.status = tested(command.words, shell.variables)
        elif command.words in (["true"], [":"], ["false"]):
            frame.status = command.words != ["false"]
        else:
            launches = list(self._one(command, frame))
            self._rests_on([*around, doubt] if sets or launches else ())
            for launch in launches:
                word, line = command.follower
                if word[:2] == "--":
                    end = f"the command ends before line {frame.first_line + line}, which begins with {word}"
                    remark = f"{end}: a comment or an empty line cuts it"
                    launch = replace(launch, remarks=(*launch.remarks, remark))
                if command.torn:
                    where = f"line {frame.first_line + command.torn} ends in a space behind its \\"
                    remark = f"{where}: the shell ends the command there"
                    launch = replace(launch, remarks=(*launch.remarks, remark))
                yield self._with_port(launch, command)
            frame.status = True if sets else None

    def _with_port(self, launch: Launch, command: Command) -> Launch:
        """Returns a server with a remark if one that still runs listens on its port, on the same machine."""
        if launch.kind != "command" or "--node-rank" in launch.words or {*launch.mentions}.intersection(_ELSEWHERE):
            return launch
        flags = [word for text in launch.words for word in text.split("=", 1)]
        port = flags[flags.index("--port") + 1] if "--port" in flags[:-1] else _PORT
        first = self.listening.get(port)
        if command.ended == "&" and OPEN not in port:
            self.listening.setdefault(port, launch.place)
        if first is None:
            return launch
        remark = f"{first} starts a server on port {port} too, which still runs: each server needs a --port of its own"
        return replace(launch, remarks=(*launch.remarks, remark))

    def _passed(self, command: Command, frame: _Frame) -> None:
        """Records a server that only a default skips."""
        name = frame.passed_by_default
        split = split_launch([item for word in command.words for item in fields_of(word, frame.shell.variables)])
        if name and split and not is_one_of("text_programs", command.words[0]):
            place = f"{self._at(frame.first_line + command.line)}, which runs for another value of ${name}"
            self.unread.setdefault(of_every_node(split[1], _LISTENS), place)

    def _rests_on(self, conditions: Iterable[str]) -> None:
        """Records unknown conditions that decide a variable or a server."""
        self.unknown |= dict.fromkeys(filter(None, conditions))

    def _one(self, command: Command, frame: _Frame) -> Iterator[Launch]:
        shell, line = frame.shell, frame.first_line + command.line
        words = list(command.words[command.words[0] == "!" :])
        own: dict[str, str] = {}
        while words and (match := ASSIGNMENT.fullmatch(words[0])):
            words.pop(0)
            name, adds, value = match.groups()
            if words:
                own[name] = text_of(value, shell.variables)
                continue
            if match := _ONE_OF_TWO.fullmatch(value):
                holds = tested(commands_of(match[1])[0].words, shell.variables)
                value = match[3] if holds is False else match[2]
                self._rests_on([match[1]] if holds is None else ())
            shell.assign(name, adds, value)
        unset = {name for word in words for name in _IF_SET.findall(word)} - shell.variables.keys()
        self._rests_on(f"{name} is not set" for name in sorted(unset))
        for inner in (text for word in command.words for text in substituted(word)):
            yield from self._nested(inner, shell, frame, line)
        yield from self._fed(command, frame, line)
        fields = [item for word in words for item in fields_of(word, shell.variables)]
        if not words:
            shell.variables.update(own)
        elif words[0] == ":":
            for name, value in defaults_of(words[1:]):
                if name not in shell.variables:
                    shell.assign(name, "", f"${{{name}:-{value}}}")
        elif fields and fields[0] in _DECLARING:
            for word in words[1:]:
                if match := ASSIGNMENT.fullmatch(word):
                    shell.assign(match[1], match[2], match[3])
                if fields[0] != "local" and not word.startswith("-"):
                    shell.exported.add(word.partition("=")[0].rstrip("+"))
        elif fields and fields[0] == "read" and command.heredocs:
            shell.variables[fields[-1]] = shell.content_of(command.heredocs[-1])
        elif fields:
            yield from self._started(fields, own, frame, line)

    def _nested(self, text: str, shell: Shell, frame: _Frame, line: int) -> Iterator[Launch]:
        """Reads a script inside the script, with the state ``shell`` of its process."""
        if frame.depth < _DEEPEST and has_launch_command(without_opened(text)):
            yield from self._run(text, deepcopy(shell), frame.depth + 1, line - 1)

    def _fed(self, command: Command, frame: _Frame, line: int) -> Iterator[Launch]:
        """Reads the texts in a script: written files, and scripts and manifests piped to a program."""
        for heredoc in command.heredocs:
            body = frame.shell.content_of(heredoc)
            if command.target is not None:
                frame.shell.files[text_of(command.target, frame.shell.variables)] = body
            elif command.words[:1] in (["cat"], ["read"]) and command.ended != "|":
                continue  # a help text, a variable
            if "apiVersion:" in body or "\nservices:" in f"\n{body}":
                yield from self.other(body, self._at(line))
            else:
                yield from self._nested(body, frame.shell, frame, line + 1)

    def _started(self, fields: list[str], own: Mapping[str, str], frame: _Frame, line: int) -> Iterator[Launch]:
        shell = frame.shell
        program = next((word for word in fields if word not in _WRAPPERS), "")
        if is_one_of("text_programs", program.rpartition("/")[2]):
            return
        environment = {**shell.environment(), **own, **set_for_child(fields)}
        split, kind = split_launch(fields), "command"
        texts = [text for text in fields if " " in text.strip()] if split is None else []
        programs = {word.rpartition("/")[2] for word in (split[0] if split else fields)}
        for text in texts:
            rest = list(fields[fields.index(text) + 1 :])  # $0, $1 and $@ of bash -c TEXT name a b
            numbered = {str(number): word for number, word in enumerate(rest[:10])}
            inner = {**shell.variables, **environment, **numbered, **({"@": rest[1:]} if rest else {})}
            if not programs.isdisjoint((*CONTAINERS, "ssh")):
                inner.pop("HOME", None)
            below = Shell(inner, {*shell.exported, *environment}, shell.files)
            for launch in self._nested(text, below, frame, line):
                mentions = (*launch.mentions, *fields[: fields.index(text)])
                fault = fault_of_command(fields) or launch.fault
                yield replace(launch, mentions=mentions, environment={**environment, **launch.environment}, fault=fault)
        has_nested = any(has_launch_command(without_opened(text)) for text in texts) and frame.depth < _DEEPEST
        if split is None and not has_nested and not own and (flags := bare_flags(fields)) is not None:
            split, kind = ([], flags), "flags"
        if split is None or len(fields) == 1:  # a program that is only named
            return
        before, words = split
        if not programs.isdisjoint(CONTAINERS) and before:
            kind = "container"
        yield Launch(
            kind,
            self._at(line),
            words=tuple(words),
            environment=environment,
            variables=dict(shell.variables),
            mentions=tuple(without_marks(word) for word in before),
            gpu_count=gpus_of_container(before) if kind == "container" else None,
            files=dict(shell.files),
            fault=fault_of_command(fields),
        )

    def _at(self, line: int) -> str:
        return f"{self.place}:{line}" if self.place else f"line {line}"


def _tokens(commands: Sequence[Command]) -> Iterator[tuple[str, Command]]:
    """Yields each command with its first keyword, or ""; keywords before a command come alone."""
    for command in commands:
        words = list(command.words)
        while words and words[0] in (*_OPENING[:4], *_WITHIN, *_CLOSING, "time"):
            word = words.pop(0)
            if word != "time":
                yield word, command
        if words:
            kind = words[0] if words[0] in _OPENING else ""
            is_first = len(words) == len(command.words)
            yield kind, command if is_first else replace(command, words=words, after="")


def _once(launches: Iterable[Launch]) -> list[Launch]:
    """Returns each server once, without a fault where one of its commands has none: a script may print its command,
    without the quotes, before running it."""
    found: dict[str, Launch] = {}
    for launch in launches:
        key = repr((launch.words, launch.values, launch.environment, launch.name))
        first = found.setdefault(key, launch)
        found[key] = first if launch.fault else replace(first, fault=_same_rank(first, launch))
    return list(found.values())


def _same_rank(first: Launch, second: Launch) -> str | None:
    """Returns why two jobs of a script are no two nodes of a server: both have the same rank; None for others."""
    rank = next((second.words[at + 1 :][:1] for at, word in enumerate(second.words) if word == "--node-rank"), ())
    if first.place == second.place or "srun" not in second.mentions or not "".join(rank).isdigit():
        return None
    return (
        f"{first.place} and {second.place.rpartition(':')[2]} both start --node-rank {rank[0]}; each node has its own"
    )
