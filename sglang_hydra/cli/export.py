"""The verb ``export``: plans, refuses what cannot be launched, writes the file."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from sglang_hydra.cli.corrected import corrected_lines
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.output_files import print_content
from sglang_hydra.cli.shared import code_of, composer_of, config_flags
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.nodes import has_several_servers
from sglang_hydra.convert.export.job import Artifact, Job
from sglang_hydra.convert.export.registry import FORMATS, check_format, exported
from sglang_hydra.facts.tiny import make_if_tiny
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.passing.passed import flags_of_nodes, keyword_arguments
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.topology.plan import plan_topology
from sglang_hydra.planning.topology.servers import Topology
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.show.plan import summary
from sglang_hydra.show.topology import summary as summary_of_all
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import reason_of
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import plain
from sglang_hydra.text.screen import text, write
from sglang_hydra.text.whole_file import write_whole
from sglang_hydra.text.words import program


def run(invocation: Invocation) -> int:
    """Runs ``export FORMAT OVERRIDES [-o FILE] [--json]``. Returns 2, and writes nothing, for a plan that cannot be
    launched."""
    composer = composer_of(invocation)
    words = [request.text for request in invocation.requests]
    if " ".join(words[:2]) == "docker compose":
        raise ConfigError.of("EXP012", "the format is called compose", typed=("docker",), fix="")
    if second := next((word for word in words[1:2] if word in FORMATS), None):
        raise ConfigError.of(
            "EXP012", f"export writes one format, and {second} is a second", hint=f"{program()} export {second} ..."
        )
    format = check_format(words[0] if words and "=" not in words[0] else None)
    plan = _plan_for_sglang(composer, invocation.requests[1:])
    made = _all_servers(composer, invocation, plan)
    # launch.force=true or --upstream-only leaves only the errors of SGLang itself.
    forced = bool(plan.nodes.launch.force) or invocation.has("upstream_only")
    refused = [item for item in made.findings if item.level == "error" and not (forced and item.ours)]
    if refused and invocation.has("json"):
        raise ConfigError(*refused)
    if refused:
        corrected = corrected_lines(invocation, plan.findings, composer) if made is plan else []
        verdict = summary(made) if isinstance(made, Plan) else summary_of_all(made)
        write([*finding_lines(refused, plan), [], verdict, *corrected], sys.stderr)
        return 2
    jobs, artifact = exported(format, made, _remade_from(invocation))
    make_if_tiny(plan.values["model_path"])  # the artifact runs without this package, which makes it
    id = made.server_id if isinstance(made, Plan) else made.topology_id
    _write(invocation, artifact, record(format, id, jobs, artifact))
    _say(invocation, made.findings, artifact, plan)
    return code_of(invocation, made, [item for item in made.findings if item.level != "error"])  # those were forced


def _all_servers(composer: Composer, invocation: Invocation, plan: Plan) -> Plan | Topology:
    if not has_several_servers(plan.nodes):
        return plan
    requests = invocation.requests[1:]
    chosen = requests if plan.nodes.engine.name == "auto" else _with_sglang(composer, requests)
    return plan_topology(composer, chosen, common=plan)


def _say(invocation: Invocation, findings: Sequence[Finding], artifact: Artifact, plan: Plan) -> None:
    """Writes the plan's warnings and the artifact's findings to standard error."""
    if not invocation.has("json"):
        warned = [finding for finding in findings if finding.level == "warning"]
        write(finding_lines([*warned, *artifact.findings], plan), sys.stderr)


def _plan_for_sglang(composer: Composer, requests: Sequence[Request]) -> Plan:
    """Returns a plan for SGLang, even if ``engine=auto`` finds only the embedded engine here."""
    plan = make_plan(composer, requests)
    if plan.engine.name == "sglang":
        return plan
    if plan.nodes.engine.name != "auto":
        message = f"engine={plan.engine.name}: exports start SGLang"
        raise ConfigError.of("EXP018", message, "engine", hint="engine=sglang")
    return make_plan(composer, _with_sglang(composer, requests))


def _with_sglang(composer: Composer, requests: Sequence[Request]) -> list[Request]:
    return composer.with_choice(requests, "engine", "sglang", "exports start SGLang")


def _remade_from(invocation: Invocation) -> list[str]:
    """Returns the words that make the same artifact, with the file itself in place of its content."""
    words = [invocation.file] if invocation.file is not None else []
    words += [request.text for request in invocation.requests[1:] if request.layer == "cli"]
    return [*words, *config_flags(invocation)]


def record(format: str, id: str, jobs: Sequence[Job], artifact: Artifact) -> str:
    """Returns the record for ``--json``: the artifact, and the arguments of each node or server."""
    first = jobs[0]
    content = {
        "schema": "sglang_hydra.export/1",
        "format": format,
        "server_id": id,
        "image": first.image.image if first.image else None,
        "argv": [words for job in jobs for words in flags_of_nodes(job.plan)],
        "engine_kwargs": [plain(each) for job in jobs for each in keyword_arguments(job.plan)],
        "environment": first.environment(),
        "secrets": list(first.secret_names),
        "text": artifact.text,
        "findings": [finding.to_json() for finding in artifact.findings],
    }
    return json.dumps(content, indent=2) + "\n"


def _write(invocation: Invocation, artifact: Artifact, record: str) -> None:
    content = record if invocation.has("json") else artifact.text
    output = invocation.value("output")
    if output is None:
        print_content(content)
        return
    path = Path(output)
    try:
        # Writes through a link, to the file it names.
        runs = artifact.executable and not invocation.has("json")
        write_whole(path.resolve(), content, mode=0o777 if runs else 0o666)
    except (OSError, ValueError) as failure:
        hint = "-o FILE in a folder that is there"
        raise ConfigError.of("EXP017", f"{path} cannot be written: {reason_of(failure)}", hint=hint) from failure
    write([[text(f"Written to {path}")]])
