"""Reads the words after the verb: what only Hydra knows, SGLang's own flags, a file."""

from __future__ import annotations

import contextlib
import glob
import io
import os
import shlex
from collections.abc import Callable, Sequence
from importlib import import_module
from keyword import iskeyword

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.vllm import counterpart
from sglang_hydra.cli.hydra_words import check_hydra_keys_of_file, settle_hydra_words
from sglang_hydra.cli.invocation import Invocation, read_invocation
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.compose.corrections import ADVICE, key_meant, may_be
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.nodes import has_several_servers
from sglang_hydra.planning.recorded.input_files import is_document
from sglang_hydra.releases.fetching import nothing_fetched
from sglang_hydra.text import user_settings as settings
from sglang_hydra.text.errors import ConfigError, MachineError
from sglang_hydra.text.exit_codes import FAIL_ON
from sglang_hydra.text.findings import Finding, Remedy
from sglang_hydra.text.flags import FLAGS, why_not
from sglang_hydra.text.json_types import JsonObject
from sglang_hydra.text.locations import SUFFIXES
from sglang_hydra.text.words import nearest, program

_NAME_A_MODEL = {"model", "model_path", "recipe", "experiment", "lock"}
_COMPOSED = ("serve", "plan", "check", "fit", "export", "explain", "bench")
"""Verbs whose overrides make one plan."""
_ANSWERED = ("explain", "diff", "import", "upgrade", "recipes", "models", "gpus")
"""Verbs that only show something, and soon: their answer is made, if that writes no file and asks no server."""


def read_words(invocation: Invocation) -> None:
    """Reads the words after the verb: Hydra's own, SGLang's flags, a file. Raises ConfigError for wrong ones."""
    settle_hydra_words(invocation)
    _refuse_misplaced(invocation)
    settings.begin(invocation.allowed)
    if invocation.argv is not None and invocation.verb == "diff":
        message, after = "diff has its words in two quoted sides, and none after --", shlex.join(invocation.argv)
        fix = Remedy.fixed(after, f"{after} before the --")
        raise ConfigError.of("DIF001", message, typed=("--", *invocation.argv), fix=fix)
    if invocation.argv is not None and invocation.verb not in ("import", "upgrade"):
        invocation.requests += requests_from_argv(invocation.argv, invocation.requests)
    invocation.requests = [one for request in invocation.requests for one in _matches(request)]
    if any("=" not in request.text for request in invocation.requests):
        from sglang_hydra.cli.file_argument import read_file_argument

        read_file_argument(invocation)
        check_hydra_keys_of_file(invocation)


def verb_of(name: str) -> Callable[[Invocation], int]:
    """Returns the function of a verb: ``run`` of ``cli/NAME.py``, or of ``NAME_.py`` if the name is a keyword."""
    module = import_module(f"sglang_hydra.cli.{name}_" if iskeyword(name) else f"sglang_hydra.cli.{name}")
    run: Callable[[Invocation], int] = module.run
    return run


def _matches(request: Request) -> Sequence[Request]:
    """Returns a request for each file of a pattern that the shell left as it is, as in quotes; else the request."""
    word = request.text
    if not ("*" in word and word.endswith(SUFFIXES)) or "=" in word or os.path.exists(word):
        return [request]
    return [request._replace(text=file) for file in sorted(glob.glob(word))] or [request]


def refused(words: Sequence[str]) -> Sequence[Finding]:
    """Returns what is wrong with a command line, as far as that is visible before the verb runs."""
    try:
        with nothing_fetched():
            return _refused(words)
    except ConfigError as failure:
        return failure.findings
    except MachineError:
        return ()


def _refused(words: Sequence[str]) -> Sequence[Finding]:
    """Returns what the verb would refuse. Raises ConfigError for what is refused before, MachineError for what this
    machine lacks."""
    from sglang_hydra.planning.making.make import plan_composed

    invocation = read_invocation(words)
    read_words(invocation)
    if invocation.verb == "suggest":
        from sglang_hydra.cli.suggest import check_words

        check_words(invocation)
    is_only_shown = not invocation.has("output") and not invocation.has("in_place")
    if invocation.verb in _ANSWERED and is_only_shown and not any("://" in word for word in words):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            verb_of(invocation.verb)(invocation)
    if invocation.verb in _COMPOSED and not invocation.has("multirun"):
        first = invocation.requests[:1] if invocation.verb in ("export", "explain") else []
        requests = [item for item in invocation.requests if item not in first and not is_document(item.text)]
        composer = composer_of(invocation)
        made = plan_composed(composer, requests, composer.compose(requests), with_remedies=False)
        if invocation.verb == "bench":
            lacking = [item for item in made.errors if item.about == "no_model"]
            return lacking if lacking and not made.nodes.bench.url else _load_errors(made.nodes.plain)
        if invocation.verb == "export":
            from sglang_hydra.convert.export.registry import check_format, exported
            from sglang_hydra.planning.topology.plan import plan_topology

            format = check_format(next((item.text for item in first if "=" not in item.text), None))
            several = plan_topology(composer, requests, common=made) if has_several_servers(made.nodes) else None
            exported(format, several or made, ())
    elif invocation.has("multirun"):
        from sglang_hydra.measure.sweep.axes import combinations
        from sglang_hydra.measure.sweep.grid import read_grid

        grid = read_grid(composer_of(invocation), invocation.requests, measured=False)
        composed = composer_of(invocation).compose([*grid.common, *next(combinations(grid.axes), ())])
        return _load_errors(composed.nodes.plain) if invocation.verb == "bench" else ()
    return ()


def _load_errors(nodes: JsonObject) -> list[Finding]:
    from sglang_hydra.measure.bench.checks import problems

    return [item for item in problems(nodes["bench"]) if item.level == "error"]


def _refuse_misplaced(invocation: Invocation) -> None:
    """Raises ConfigError for the first flag that does not fit the verb or another flag."""
    verb = invocation.verb
    if invocation.once and (verb != "serve" or invocation.has("multirun")):
        typed_too = "-m for several" if invocation.has("multirun") else f"{verb} was typed"
        message = f"--run asks for one run of serve, and {typed_too}"
        raise ConfigError.of("CLI019", message, hint=f"{program()} serve ..., without --run")
    if invocation.hydra and verb != "serve":
        message = f"Hydra's own flags go with serve, and {verb} runs without Hydra's run folder"
        raise ConfigError.of("CLI019", message, hint=f"{program()} --cfg job ..., or plan --json")
    levels = [level for level in (invocation.value("fail_on") or "").split(",") if level]
    if wrong := next((level for level in levels if level not in FAIL_ON), None):
        fix = f"--fail-on={nearest(wrong, FAIL_ON) or ','.join(FAIL_ON)}"
        message = f"--fail-on={wrong}: an error always fails; you may add {' and '.join(FAIL_ON)}"
        typed = (f"--fail-on={invocation.value('fail_on')}",)
        raise ConfigError.of("CLI012", message, typed=typed, fix=fix)
    given = [flag for flag in FLAGS if invocation.has(flag.sets)]
    for flag in given:
        why = why_not(flag, verb, given)
        if why is not None and flag.elsewhere is not None:
            known = {"verb": verb, "why": why, "program": program()}
            told = verb if verb in flag.elsewhere else "hint"
            message, hint = (flag.elsewhere[part].format(**known) for part in ("message", told))
            raise ConfigError.of(flag.elsewhere["id"], message, hint=hint)


def _as_others_call_it(finding: Finding) -> Finding:
    """Returns the finding for an unknown SGLang option, with the option that other tools call so added as a fix."""
    if finding.about != "unknown_flag" or not finding.typed or any(one.kind == "fix" for one in finding.remedies):
        return finding
    flag, _, value = finding.typed[0].partition("=")
    meant = key_meant(flag.lstrip("-")) if counterpart(flag) is None else None
    if meant is None and (advice := ADVICE.get(flag.lstrip("-").replace("-", "_"))):
        return finding.said(Remedy.fixed("", advice) if advice.startswith("leave it out") else advice)
    if (
        meant is None
        or meant not in FIELDS
        or meant == flag.lstrip("-").replace("-", "_")
        or (value and not may_be(meant, value))
    ):
        return finding
    words = " ".join([FIELDS[meant].flag, *filter(None, (value,)), *finding.typed[1:]])
    return finding.said(Remedy.fixed(words))


def _flags_of(argv: Sequence[str]) -> Sequence[str]:
    """Returns the flags of a command that was pasted whole: what follows the program that starts SGLang."""
    program_typed = os.path.basename(argv[0]) if argv else ""
    if program_typed.startswith("python") and argv[1:3] == ["-m", "sglang.launch_server"]:
        return argv[3:]
    return argv[2:] if program_typed == "sglang" and argv[1:2] == ["serve"] else argv


def requests_from_argv(argv: Sequence[str], others: Sequence[Request] = ()) -> list[Request]:
    """Returns SGLang's own flags as overrides, each with its place. Raises ConfigError if SGLang's parser refuses them.

    The release is the one that a plan of ``others`` is for; no model is needed if those name one."""
    from sglang_hydra.arguments.parser import CONFIG
    from sglang_hydra.compose.grammar import unquoted
    from sglang_hydra.planning.engines.planned import release_meant
    from sglang_hydra.releases.provider import Provider

    named = {request.name: request for request in others}
    engine = {name: str(item.value or unquoted(item.text.partition("=")[2])) for name, item in named.items()}
    found = Provider(release_meant(engine.get("engine.version"), engine.get("engine.python"))).read(_flags_of(argv))
    has_model = bool(_NAME_A_MODEL.intersection(named))
    names_file = any(word.partition("=")[0] == CONFIG for word in argv)
    needless = has_model or names_file
    wrong = [item for item in found.findings if item.level == "error" and not (needless and item.about == "no_model")]
    if not wrong and names_file:
        message = f"{CONFIG} names a file that SGLang itself reads: its arguments are not known here"
        wrong = [Finding("error", "ARG010", message, hint=f"{program()} import FILE -o NAME.yaml, without {CONFIG}")]
    meant = [_as_others_call_it(item) for item in wrong]
    if any(remedy.words[:1] == (FIELDS["model_path"].flag,) for item in meant for remedy in item.remedies):
        meant = [item for item in meant if item.about != "no_model"]
    if meant:
        raise ConfigError(*meant)
    return [
        Request.typed(name, value, f"argument {found.places[name]} after --") for name, value in found.values.items()
    ]
