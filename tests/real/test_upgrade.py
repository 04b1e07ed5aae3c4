"""upgrade: the real 0.5.23 reads the new command of published configurations, flag by flag."""

from __future__ import annotations

import json
import subprocess

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.recipes import recipes
from sglang_hydra.convert.upgrade.inputs import subjects_of
from sglang_hydra.convert.upgrade.upgraded import upgraded

READ = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
for line in sys.stdin:
    try:
        known, rest = parser.parse_known_args(json.loads(line))
        print("ANSWER", json.dumps(rest), flush=True)
    except SystemExit:
        print("ANSWER", json.dumps(["refused"]), flush=True)
"""


def test_0_5_23_reads_the_new_command_of_every_recipe(sglang_0_5_23_python: str) -> None:
    composer = Composer()
    commands = {}
    for id in recipes():
        (subject,) = subjects_of([Request(f"recipe={id}", "argument 1")], None, None, composer)
        made = upgraded(composer, subject, "0.5.23")
        commands[id] = list(made.plan.command)[3:]
    commands["a flag that is gone"] = ["--model-path", "a/b", "--torchao-config", "int4wo-128"]
    commands["a choice that is none"] = ["--model-path", "a/b", "--attention-backend", "none_such"]
    done = subprocess.run(
        [sglang_0_5_23_python, "-c", READ],
        input="".join(json.dumps(words) + "\n" for words in commands.values()),
        capture_output=True,
        encoding="utf-8",
        timeout=400,
        check=False,
    )
    said = [json.loads(line.partition(" ")[2]) for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    assert len(said) == len(commands), done.stderr[-2000:]
    refused = {id: rest for id, rest in zip(commands, said, strict=True) if rest}
    assert set(refused) == {"a flag that is gone", "a choice that is none"}, refused
    print(f"{len(recipes())} recipes: SGLang 0.5.23 reads every new command")
