"""What each verb does with a plan: show it, judge it, explain it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from sglang_hydra.app import make_plan
from sglang_hydra.compose import Composer
from sglang_hydra.config import PRIMARY_NAME
from sglang_hydra.errors import ConfigError
from sglang_hydra.explain import plan_screen
from sglang_hydra.findings import Finding
from sglang_hydra.screen import write
from sglang_hydra.topology.settings import has_several_servers
from sglang_hydra.words import nearest, program, short

if TYPE_CHECKING:
    from sglang_hydra.cli import Invocation


def composer_of(invocation: Invocation) -> Composer:
    return Composer(invocation.config_dirs, invocation.config_name or PRIMARY_NAME)


def plan(invocation: Invocation) -> int:
    """Shows the plan, or with ``-m`` the verdict on each. 2 when SGLang would refuse one."""
    if invocation.multirun:
        return _each(invocation)
    if invocation.against is not None:
        from sglang_hydra.authority import action

        return action.plan(invocation)
    composer = composer_of(invocation)
    made = make_plan(composer, invocation.requests)
    if has_several_servers(made.nodes):
        from sglang_hydra.topology import actions as topologies

        return topologies.show(composer, invocation, made)
    if invocation.json:
        print_json(made.to_json())
    else:
        write(plan_screen(made))
    return 0 if made.ok else 2


def serve(invocation: Invocation) -> int:
    """Plans, shows the plan, and starts a server unless something is wrong."""
    from sglang_hydra.launch.serve import serve_plan

    return serve_plan(composer_of(invocation), invocation)


def check(invocation: Invocation) -> int:
    """Judges each thing named: overrides together, files and folders one by one, with ``-m`` every combination of
    values. 2 if any is not ok."""
    if invocation.format is not None or invocation.base is not None:
        from sglang_hydra.review import action

        return action.check(invocation)
    if invocation.multirun:
        return _each(invocation)
    if invocation.against is not None:
        from sglang_hydra.authority import action as authority

        return authority.check(invocation)
    from sglang_hydra.verdicts import verdict_lines, verdict_record, verdicts_on

    verdicts = verdicts_on(composer_of(invocation), invocation.requests)
    good = all(verdict.launchable if invocation.strict else verdict.ok for _, verdict in verdicts)
    if invocation.json:
        results = [verdict_record(*item) for item in verdicts]
        print_json({"schema": "sglang_hydra.check/1", "ok": good, "results": results})
    else:
        write(line for item in verdicts for line in verdict_lines(*item))
    return 0 if good else 2


def explain(invocation: Invocation) -> int:
    """How one value came about, or a rule's page."""
    from sglang_hydra import explaining

    return explaining.explain(invocation)


def diff(invocation: Invocation) -> int:
    """Two plans, value by value."""
    from sglang_hydra import diffing

    return diffing.diff(invocation)


def upgrade(invocation: Invocation) -> int:
    """The same server on another release."""
    from sglang_hydra.upgrade import action

    return action.run(invocation)


def fit(invocation: Invocation) -> int:
    """The memory of a plan, or of several."""
    from sglang_hydra import catalog_actions

    return catalog_actions.fit(invocation)


def export(invocation: Invocation) -> int:
    """The plan as a script or manifest."""
    from sglang_hydra.launch.export.action import export_plan

    return export_plan(composer_of(invocation), invocation)


def import_(invocation: Invocation) -> int:
    """What others wrote to launch a server, as an experiment."""
    from sglang_hydra.importing.action import run

    return run(invocation)


def bench(invocation: Invocation) -> int:
    """A sweep: planned, shown, run."""
    from sglang_hydra.sweep import verbs

    return verbs.bench(invocation)


def resume(invocation: Invocation) -> int:
    """What is open of a sweep."""
    from sglang_hydra.sweep import resuming

    return resuming.resume(invocation)


def _each(invocation: Invocation) -> int:
    """The verdict on every point of a sweep."""
    from sglang_hydra.sweep import verbs

    return verbs.judge_all(invocation)


def recipes(invocation: Invocation) -> int:
    """The published configurations."""
    from sglang_hydra import catalog_actions

    return catalog_actions.recipes(invocation)


def report(invocation: Invocation) -> int:
    """What sweeps have found."""
    from sglang_hydra.report import action

    return action.report(invocation)


def completion(invocation: Invocation) -> int:
    """The completion script for a shell."""
    from sglang_hydra.completion import SCRIPTS, script

    shells = [request.text for request in invocation.requests]
    if len(shells) != 1 or shells[0] not in SCRIPTS:
        known = ", ".join(SCRIPTS)
        hint = f'eval "$({program()} completion bash)" in ~/.bashrc'
        raise ConfigError(Finding("error", "CLI025", f"completion takes a shell: {known}", hint=hint))
    print(script(shells[0]), end="")
    return 0


def audit(invocation: Invocation) -> int:
    """The whole catalog."""
    from sglang_hydra import catalog_actions

    return catalog_actions.audit(invocation)


def doctor(invocation: Invocation) -> int:
    """This machine."""
    from sglang_hydra import catalog_actions

    return catalog_actions.doctor(invocation)


def status(invocation: Invocation) -> int:
    """The detached servers, or a sweep."""
    import os

    words = _words(invocation)
    if len(words) == 1 and (os.path.isdir(words[0]) or os.sep in words[0]):
        from sglang_hydra.sweep import resuming

        return resuming.status(words[0], as_json=invocation.json)
    from sglang_hydra.launch import control

    return control.status(words, as_json=invocation.json)


def stop(invocation: Invocation) -> int:
    """Ends detached servers."""
    from sglang_hydra.launch import control

    return control.stop(_words(invocation), as_json=invocation.json)


def logs(invocation: Invocation) -> int:
    """What a detached server wrote."""
    from sglang_hydra.launch import control

    return control.logs(_words(invocation), follow=invocation.follow)


_OPTIONS = {
    "status": ("--json",),
    "stop": ("--json",),
    "logs": ("-f", "--follow"),
    "diagnose": ("--json", "--config-dir", "--config-name"),
}
"""What the verbs know that take names or files."""


def _words(invocation: Invocation) -> list[str]:
    """The names that were typed. Raises ConfigError for an option that the verb does not have."""
    verb, options = invocation.verb, _OPTIONS[invocation.verb]
    words = [request.text for request in invocation.requests]
    for word in words:
        if word.startswith("-") and word != "-":
            near = nearest(word.partition("=")[0], options)
            hint = f"{program()} {verb} {near}" if near else f"{program()} {verb} --help"
            message = f"{verb} has no option {short(word)}; it has {', '.join(options)}"
            raise ConfigError(Finding("error", "CLI026", message, hint=hint))
    return words


def diagnose(invocation: Invocation) -> int:
    """Why servers failed, by their logs. 5 where one is of no known class."""
    from sglang_hydra.diagnose.action import run

    _words(invocation)
    return run(invocation)


def show_help(invocation: Invocation) -> int:
    """The one screen, that of the verb that was typed, or with a word every argument that has it in its name or its
    help."""
    from sglang_hydra.help import found_by, of_verb, overview

    words = [request.text for request in invocation.requests]
    composer = composer_of(invocation)
    if invocation.named and all("=" in word for word in words):
        write(of_verb(invocation.verb))
    else:
        write(found_by(words, composer) if words else overview(composer))
    return 0


def print_json(record: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(record, indent=2, ensure_ascii=True, allow_nan=False) + "\n")
    sys.stdout.flush()  # a reader that has gone (head) is noticed here and not while the interpreter shuts down
