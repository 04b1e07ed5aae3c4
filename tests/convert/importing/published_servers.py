"""The servers of tests/data/published_servers.yaml and of the catalog's recipes, with the flags that they give.

The flags are extracted without a line of the importer: a recipe's keys are merged here, a script is run by bash with a
python3 that prints its words, a container's words are put together by hand.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from sglang_hydra.arguments.tables.table import Release, nearest_known, release
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.recipes import recipes
from sglang_hydra.planning.choosing.catalog import models

_FILE = Path(__file__).parents[2] / "data" / "published_servers.yaml"
_LAUNCH = "sglang.launch_server"
_OTHER_FLAGS = {"fp4_gemm_runner_backend": "--fp4-gemm-backend"}
"""Arguments whose flag has another name (0.5.9 server_args.py)."""


class Published(NamedTuple):
    """A source, the variables that its caller gives, and the flags of each of its servers; all of its servers where the
    caller decides every condition."""

    name: str
    text: str
    env: Mapping[str, str]
    flags: list[list[str]]
    is_decided: bool = False
    suffix: str = "yaml"


def published(folder: Path) -> Iterator[Published]:
    """All sources; ``folder`` is a place for the python3 that prints its words."""
    for row in yaml.safe_load(_FILE.read_text(encoding="utf-8")):
        env = row.get("env", {})
        if "text" in row:
            for given in row.get("envs", [env]):
                flags = run_by_bash(row["text"], given, folder)
                yield Published(row["source"], row["text"], given, flags, "envs" in row, "sh")
        elif "kind" in row["recipe"]:
            text = yaml.safe_dump(row["recipe"])
            found = _of_containers(row["recipe"], env)  # the nodes of one server have the same words
            yield Published(row["source"], text, env, [list(words) for words in dict.fromkeys(map(tuple, found))])
        else:
            flags = [_words(values) for values in _each_once(_of_recipe(row["recipe"]))]
            yield Published(row["source"], yaml.safe_dump(row["recipe"]), env, flags)
    paths = {preset.name: preset.path for preset in models(Composer())}
    for name, recipe in sorted(recipes().items()):
        if not recipe.left_open:
            words = _words({"model_path": paths[recipe.model], **recipe.args})
            yield Published(name, shlex.join(["python3", "-m", _LAUNCH, *words]), {}, [words], suffix="sh")


def _of_recipe(recipe: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    base = recipe.get("base", recipe)
    variants = [base]
    for key, change in recipe.items():
        if key.startswith("override_"):
            variants.append(_merged(base, change, None))
        elif key.startswith("zip_override_"):
            longest = max(len(item) for item in re.findall(r"\[[^\]]*\]", json.dumps(change)) or ["[]"])
            lists = [len(json.loads(item)) for item in re.findall(r"\[[^\]]*\]", json.dumps(change))]
            variants += [_merged(base, change, at) for at in range(max(lists))] if longest else []
    for variant in variants:
        for role in ("prefill", "decode", "aggregated"):
            values = variant["backend"]["sglang_config"].get(role)
            if values is not None:
                yield {"model-path": variant["model"]["path"], **values, "role-of-test": role}


def _merged(base: Any, change: Any, at: int | None) -> Any:
    made = deepcopy(base)
    for key, value in change.items():
        if isinstance(value, dict):
            made[key] = _merged(made.get(key, {}), value, at)
        elif value is None:
            made.pop(key, None)
        else:
            made[key] = value[at] if isinstance(value, list) and at is not None else value
    return made


def _each_once(found: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    for values in found:
        if values not in seen:
            seen.append(values)
    return [{key: value for key, value in values.items() if key != "role-of-test"} for values in seen]


def _words(values: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for key, value in values.items():
        flag = _OTHER_FLAGS.get(key, "--" + key.replace("_", "-"))
        if value is True:
            words.append(flag)
        elif isinstance(value, list):
            words += [flag, *map(str, value)]
        elif value is not None and value is not False:
            words += [flag, json.dumps(value) if isinstance(value, dict) else str(value)]
    return words


def _of_containers(document: Any, env: Mapping[str, str]) -> Iterator[list[str]]:
    if isinstance(document, dict) and _LAUNCH in str([document.get("command"), document.get("args")]):
        words = [*document["command"], *document.get("args", ())]
        words = shlex.split(words[-1]) if words[1] in ("-c", "-lc") else words
        words = [re.sub(r"\$[({]?(\w+)[)}]?", lambda found: env.get(found[1], found[0]), word) for word in words]
        yield words[words.index(_LAUNCH) + 1 :]
    for value in document.values() if isinstance(document, dict) else document if isinstance(document, list) else ():
        yield from _of_containers(value, env)


def run_by_bash(text: str, env: Mapping[str, str], folder: Path) -> list[list[str]]:
    """What python3 was given when bash ran a script; its output goes into a file, whatever the script redirects."""
    out = folder / "words.jsonl"
    program = folder / "python3"
    # At once: a script may start several at a time.
    program.write_text('#!/bin/bash\nprintf "%s\\n" "$@" "" > "$WORDS.$$"\ncat "$WORDS.$$" >> "$WORDS"\n')
    program.chmod(0o755)
    (folder / "sglang").write_text('#!/bin/bash\nshift\nexec python3 -m sglang.launch_server "$@"\n')
    (folder / "sglang").chmod(0o755)
    out.write_text("")
    given = {**env, "PATH": f"{folder}:{os.environ['PATH']}", "WORDS": str(out), "RESULT_DIR": str(folder)}
    subprocess.run(["bash", "-c", f"{text}\nwait"], env=given, cwd=folder, check=True, timeout=250)
    found = [block.split("\n") for block in out.read_text().strip("\n").split("\n\n")]
    return [words[words.index(_LAUNCH) + 1 :] for words in found if _LAUNCH in words]


def meant(words: list[str], version: str | None) -> dict[str, str]:
    """What words say, by the names of a release: each argument with its words, in one spelling."""
    at = release(nearest_known(version or "0.5.2") or "0.5.2")
    found: dict[str, str] = {}
    flag, values = "", list[str]()
    for word in [*words, "--"]:
        if not word.startswith("--"):
            values.append(word)
            continue
        if flag:
            name, fixed = _named(flag, at)
            found[name] = fixed if fixed is not None else " ".join(map(_plain, values))
        flag, equals, value = word.partition("=")
        values = [value] if equals else []
    return found


def _named(flag: str, at: Release) -> tuple[str, str | None]:
    flags = {name: argument.flags for name, argument in at.arguments.items()}
    exact = [name for name, known in flags.items() if flag in known]
    if exact:
        return exact[0], None
    old = at.old_flags.get(flag)
    if old is not None and old.field:
        is_alias = old.action == "DeprecatedAliasStoreAction"
        return old.field, None if is_alias else "" if old.value is True else str(old.value)
    begins = {name for name, known in flags.items() for other in known if other.startswith(flag)}
    return (begins.pop(), None) if len(begins) == 1 else (flag, None)


def _plain(word: str) -> str:
    if word[:1] in "{[":
        return json.dumps(json.loads(word), sort_keys=True)
    try:
        return repr(float(word))
    except ValueError:
        return word
