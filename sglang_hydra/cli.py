"""The command line: a verb, overrides, a few flags. It parses, calls, prints and returns an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from keyword import iskeyword
from typing import Any

from sglang_hydra.errors import ConfigError, MachineError, SglangHydraError
from sglang_hydra.findings import Finding
from sglang_hydra.flags import BY_NAME, FLAGS, HYDRA_FLAGS, VALUED_HYDRA_FLAGS, Flag, why_not
from sglang_hydra.overrides import Request
from sglang_hydra.words import nearest, program, short

VERBS = {
    "serve": "plan, check and start a server (the default): gpu=... model=..., or serve mine.yaml",
    "plan": "show what would be started, and why; starts nothing, needs no GPU: plan mine.yaml tp_size=4",
    "check": "judge overrides, YAML files, plans or folders of them; for CI",
    "explain": "explain NAME: what an argument or a key of ours is, and how its value came about; explain ID: a rule",
    "diff": "diff 'gpu=h100 tp_size=8' 'gpu=h200': which resolved values differ between two plans, and why",
    "upgrade": "upgrade --to 0.5.23 OVERRIDES|FILE|'COMMAND': what breaks, is renamed or moves, and the new command",
    "fit": "where the memory of a GPU goes, and what would make the model fit; -m gpu=h100,h200 compares",
    "export": "export FORMAT: a script or manifest that runs the plan without this package; -o FILE writes it",
    "import": "import FILE|-|'COMMAND': a launch command, script, manifest or log as an experiment; -o FILE writes it",
    "recipes": "published launch configurations with their verdicts: recipes gpu=h200 model=deepseek",
    "bench": "measure: bench -m model=qwen3_8b tp_size=1,2,4 bench.concurrency=1,8,64; starts each server once",
    "resume": "resume multirun/SWEEP: takes the points of a sweep that have no result; sweep.rerun=[failed] those too",
    "report": "report multirun/SWEEP...: what sweeps found; writes report.html; several are compared with the first",
    "audit": "every model on every GPU class, and every recipe",
    "diagnose": "diagnose FILE|-: why a server failed, from its log, and what to change; any SGLang since 0.4",
    "doctor": "what this machine has, what it lacks for a plan, and how to mend it",
    "completion": 'completion bash|zsh: the script for your shell: eval "$(sglang-hydra completion bash)"',
    "status": "the servers that launch.detach=true started: state, url, model, run folder; status multirun/SWEEP",
    "stop": "stop NAME, stop all: ends detached servers",
    "logs": "logs NAME: what a detached server wrote; -f goes on as it writes",
}
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass
class Invocation:
    """What was typed, taken apart. ``named``: the verb was typed, not the default. ``argv`` is what stood after a bare
    ``--``: SGLang's own flags. ``file`` is the experiment whose requests were taken in."""

    verb: str = "serve"
    named: bool = False
    requests: list[Request] = field(default_factory=list)
    argv: list[str] | None = None
    file: str | None = None
    config_dirs: list[str] = field(default_factory=list)
    config_name: str | None = None
    json: bool = False
    strict: bool = False
    help: bool = False
    version: bool = False
    multirun: bool = False
    hydra: bool = False
    follow: bool = False
    output: str | None = None
    base: str | None = None
    format: str | None = None
    against: str | None = None
    to: str | None = None
    since: str | None = None


def entry(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code: 0 done, 1 a bug of ours, 2 invalid configuration, 3 this
    machine cannot serve it, 4 the server failed, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:  # closed by whoever started us, who then wants the exit code alone
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    try:
        code = _run(read_invocation(words))
        sys.stdout.flush()
        return code
    except SglangHydraError as failure:
        try:
            _report(failure, "--json" in words)
            sys.stdout.flush()
        except OSError:
            _send_no_more()  # the exit code says it too
        return failure.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has gone (head, less): nothing more can be said to it, not even by the interpreter's last flush.
        _send_no_more()
        return 0
    except OSError as failure:
        if failure.errno not in _NO_ROOM:
            raise
        _send_no_more()
        where = f" to {failure.filename}" if failure.filename else ""
        hint = "free space there (df -h, quota -s), or work in another folder"
        found = Finding("error", "CLI027", f"nothing can be written{where}: {failure.strerror}", hint=hint)
        unwritten = MachineError(found)
        _report(unwritten, as_json=False)
        return unwritten.exit_code


def _send_no_more() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def read_invocation(words: Sequence[str]) -> Invocation:
    """Takes a command line apart. Raises ConfigError for an unknown verb or a flag without its value."""
    invocation = Invocation()
    words = list(words)
    if "--" in words:
        cut = words.index("--")
        words, invocation.argv = words[:cut], words[cut + 1 :]
    verb: str | None = None
    rest = list(enumerate(words, 1))
    while rest:
        position, word = rest.pop(0)
        name, has_value, value = word.partition("=")
        flag = BY_NAME.get(name)
        if flag is not None and flag.value:
            if not has_value:
                value = rest.pop(0)[1] if rest else _lacks_value(name, flag)
            _take_value(invocation, flag, name, value)
        elif flag is not None and not has_value:
            setattr(invocation, flag.sets, True)
        elif name in HYDRA_FLAGS:
            invocation.hydra = True
            if name in VALUED_HYDRA_FLAGS and not has_value and rest:
                rest.pop(0)
        elif verb is None and not invocation.requests and not invocation.help and _is_bare(word) and not _is_file(word):
            verb = word
        elif word:
            invocation.requests.append(Request(word, f"argument {position}"))
    if verb == "help":
        invocation.help = True
    elif verb is not None and verb not in VERBS:
        raise _unknown_verb(verb)
    elif verb is not None:
        invocation.verb, invocation.named = verb, True
    return invocation


def _take_value(invocation: Invocation, flag: Flag, typed: str, value: str) -> None:
    if flag.sets == "config_dirs":
        invocation.config_dirs.append(_existing_folder(typed, value))
    elif flag.sets == "config_name":
        invocation.config_name = value.removesuffix(".yaml")
    else:
        setattr(invocation, flag.sets, value)


def _is_bare(word: str) -> bool:
    return bool(word) and not word.startswith("-") and "=" not in word


def _is_file(word: str) -> bool:
    return word.endswith((".yaml", ".yml", ".json"))


def _lacks_value(typed: str, flag: Flag) -> str:
    raise ConfigError(Finding("error", "CLI012", f"{typed} needs a value", hint=f"{typed} {flag.value}"))


def _run(invocation: Invocation) -> int:
    from sglang_hydra import actions

    if invocation.version:
        from sglang_hydra import __version__

        print(f"sglang-hydra {__version__}")
        return 0
    if invocation.help:
        return actions.show_help(invocation)
    _refuse_misplaced(invocation)
    if invocation.argv is not None and invocation.verb not in ("import", "upgrade"):
        invocation.requests += requests_from_argv(invocation.argv)
    if any("=" not in request.text for request in invocation.requests):
        from sglang_hydra.typed_files import take_in

        take_in(invocation)
    action: Any = getattr(actions, f"{invocation.verb}_" if iskeyword(invocation.verb) else invocation.verb)
    return int(action(invocation))


def _refuse_misplaced(invocation: Invocation) -> None:
    """Raises ConfigError for the first flag that does not go with the verb, or not beside another flag."""
    verb = invocation.verb
    if invocation.hydra and verb != "serve":
        message = f"Hydra's own flags go with serve, and {verb} runs without Hydra's run folder"
        raise ConfigError(Finding("error", "CLI019", message, hint=f"{program()} --cfg job ..., or plan --json"))
    given = [flag for flag in FLAGS if getattr(invocation, flag.sets) not in (None, False, [])]
    for flag in given:
        why = why_not(flag, verb, given)
        if why is not None and flag.elsewhere is not None:
            id, message, hint = flag.elsewhere
            said = {"verb": verb, "why": why, "program": program()}
            raise ConfigError(Finding("error", id, message.format(**said), hint=hint.format(**said)))


def requests_from_argv(argv: Sequence[str]) -> list[Request]:
    """SGLang's own flags as overrides, each with the place of the flag. Raises ConfigError as its parser refuses."""
    from sglang_hydra.argv import parse_argv_with_places

    values, places = parse_argv_with_places(argv)
    return [Request.typed(name, value, f"argument {places[name]} after --") for name, value in values.items()]


def _report(failure: SglangHydraError, as_json: bool) -> None:
    if as_json:
        import json

        record = {"schema": "sglang_hydra.findings/1", "findings": [item.to_json() for item in failure.findings]}
        print(json.dumps(record, indent=2))
        return
    from sglang_hydra.explain import finding_lines
    from sglang_hydra.screen import write

    write(finding_lines(list(failure.findings)), sys.stderr)


def _unknown_verb(word: str) -> ConfigError:
    near = nearest(word, [*VERBS, *(flag.names[0] for flag in FLAGS)])
    hint = f"did you mean {near}? " if near else ""
    return ConfigError(
        Finding(
            "error",
            "CLI014",
            f"{short(word)!r} is no verb; the verbs are {', '.join(VERBS)}",
            hint=f"{hint}Values are typed as key=value: model=..., gpu=..., tp_size=8",
        )
    )


def _existing_folder(flag: str, path: str) -> str:
    if not os.path.isdir(path):
        raise ConfigError(Finding("error", "CLI012", f"{flag} {path}: there is no such folder"))
    return path
