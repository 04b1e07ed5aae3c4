"""The verb ``import FILE|-|"command" [overrides]``: reads a launch, reduces it, writes YAML."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.output_files import paths_of, print_content, refuse_existing, write_new
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.compose.overrides import Request
from sglang_hydra.convert.importing.importer import import_source
from sglang_hydra.convert.importing.native import typed_beside
from sglang_hydra.convert.importing.report import record, shown_findings, summary, yaml_of
from sglang_hydra.convert.importing.sources import LOOKED_FOR, Source, read_source
from sglang_hydra.convert.importing.vllm import from_vllm
from sglang_hydra.planning.recorded.input_files import is_experiment
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.locations import SUFFIXES
from sglang_hydra.text.screen import Line, print_json, text, write
from sglang_hydra.text.words import program, shell_word, short


def run(invocation: Invocation) -> int:
    """Prints the experiment, or writes it with ``-o``. Returns 2 if a part of the source could not be taken over."""
    variables = invocation.variables
    source, rest = _source(invocation)
    source = replace(source, variables=variables)
    if source.name and is_experiment(Path(source.name), source.text):
        message = f"{short(source.name)} is an experiment of this package, which every command takes as it is"
        words = [shell_word(item.text) for item in invocation.requests]
        raise ConfigError.of("IMP001", message, hint=f"{program()} plan {' '.join(words)}")
    composer = composer_of(invocation)
    theirs = None if "sglang" in source.text else from_vllm(source.text)
    source = replace(source, text=theirs[0]) if theirs else source
    servers = import_source(source, typed_beside(rest, source.text, composer), composer)
    if theirs:
        servers = [replace(one, kind="vllm", findings=(*one.findings, *theirs[1])) for one in servers]
    file = invocation.value("output")
    output = None if file is None else Path(file)
    paths = paths_of(output, [server.name for server in servers])
    refuse_existing(paths, "IMP015")
    for path, server in zip(paths, servers, strict=False):
        write_new(path, yaml_of(server), "IMP015")
    if invocation.has("json"):
        print_json(record(source.name or "typed", servers))
    else:
        if output is None:
            print_content("---\n".join(yaml_of(server) for server in servers))
        findings = shown_findings(servers)
        lines: list[Line] = finding_lines(findings)
        lines += [summary(server) for server in servers]
        lines += [[text(f"Written to {path}; {_next(path)}")] for path in paths]
        write(lines, sys.stderr if output is None else sys.stdout)
    return 0 if all(server.taken_over for server in servers) else 2


def _next(path: Path) -> str:
    if path.suffix not in SUFFIXES:
        return f"as {path.stem}.yaml it can be planned and served"
    word = shlex.quote(str(path))
    return f"{program()} plan {word} shows the plan, {program()} {word} serves it"


def _source(invocation: Invocation) -> tuple[Source, list[Request]]:
    """Returns the source and the overrides after it. The words after a bare -- are a command."""
    if invocation.argv is not None:
        line = " ".join(word if word in ("|", "&&", ";") else shlex.quote(word) for word in invocation.argv)
        return Source("", line, typed=True), list(invocation.requests)
    if not invocation.requests:
        hint = f"{program()} import serve.sh; import -; import 'python -m sglang.launch_server --model-path ...'"
        raise ConfigError.of("IMP001", f"import what? Looked for {LOOKED_FOR}", hint=hint)
    first, *rest = invocation.requests
    return read_source(first.text), rest
