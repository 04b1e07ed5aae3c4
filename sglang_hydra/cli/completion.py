"""Completes words in bash and zsh: verbs, flags, groups and their options, arguments and nodes with their values.

Uses an index in the package and the names of YAML files on the search path. It runs at every press of the tab key, so
it imports only little of the standard library.

    eval "$(sglang-hydra completion bash)"        # in ~/.bashrc; zsh in ~/.zshrc"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

TYPE_CHECKING = False
"""As in ``typing``, which would take too long to import at every press of the tab key."""

if TYPE_CHECKING:
    from sglang_hydra.cli.invocation import Invocation

HERE = Path(__file__).parent
INDEX = HERE / "completion_index.json"
RELEASES = HERE / "completion_releases.json"
_TAKE_FILES = ("serve", "plan", "check", "explain", "diff", "upgrade", "fit", "export", "import", "bench", "doctor")

SHELLS = ("bash", "zsh")


def script(shell: str) -> str:
    """Returns the script for a shell of ``SHELLS``: completion.bash or completion.zsh, with the path of this file."""
    text = (HERE / f"completion.{shell}").read_text(encoding="utf-8")
    return text.replace("@PYTHON@", sys.executable).replace("@FILE@", str(Path(__file__).resolve()))


def candidates(line: str) -> list[str]:
    """Returns the sorted whole words that the last word of a command line could become."""
    words = line.split(" ")
    current, before = words[-1], [word for word in words[1:-1] if word]
    index = json.loads(INDEX.read_text(encoding="utf-8"))
    if before and before[0].endswith("serve.py"):
        before = before[1:]
    version = next((word[15:] for word in reversed(before) if word.startswith("engine.version=")), None)
    _take_release(index["keys"], version)
    return sorted({word for word in _possible(current, before, index) if word.startswith(current) and word != current})


def _possible(current: str, before: Sequence[str], index: dict[str, dict[str, list[str]]]) -> Iterator[str]:
    key, has_value, value = current.partition("=")
    if has_value:
        # In a list for a sweep, only the last value is completed.
        listed, comma, _ = value.rpartition(",")
        for option in _values(key.lstrip("+"), before, index):
            yield f"{key}={listed}{comma}{option}"
        return
    if current.startswith("-"):
        yield from index["flags"]
        return
    verb = next((word for word in before if "=" not in word and not word.startswith("-")), None)
    if verb is None:
        yield from index["verbs"]
    yield from index["words"].get(verb or "", ())
    if verb is None or verb in _TAKE_FILES:
        yield from _yaml_files(current)
    if verb in ("report", "resume", "status"):
        yield from _folders("multirun")
    plus = "+" if current.startswith("+") else ""
    for group in _groups(before, index):
        yield f"{plus}{group}="
    deep = current.lstrip("+")
    for name in index["keys"]:
        if "." not in name or deep.startswith(name.partition(".")[0] + "."):
            yield f"{plus}{name}="
    for node in index["nodes"]:
        yield f"{plus}{node}."


def _take_release(keys: dict[str, list[str]], version: str | None) -> None:
    """Changes ``keys`` from the arguments of 0.5.2 to those of another release, the newest if None: the releases file
    has the changes of each release, oldest first."""
    releases = json.loads(RELEASES.read_text(encoding="utf-8"))
    version = version or next(reversed(releases))
    for name, changes in releases.items() if version in releases else ():
        keys.update(changes["keys"])
        for gone in changes["gone"]:
            keys.pop(gone, None)
        if name == version:
            return


def _values(key: str, before: Sequence[str], index: dict[str, dict[str, list[str]]]) -> Iterator[str]:
    yield from index["keys"].get(key, ())
    if key in _groups(before, index):
        yield from index["options"].get(key, ())
        for folder in _search_path(before):
            yield from (file.stem for file in (folder / key).glob("*.yaml"))


def _groups(before: Sequence[str], index: dict[str, dict[str, list[str]]]) -> Iterator[str]:
    yield from index["options"]
    for folder in _search_path(before):
        if folder.is_dir():
            yield from (child.name for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))


def _search_path(before: Sequence[str]) -> Iterator[Path]:
    """Yields the folders of presets: those on the command line, then ours."""
    for position, word in enumerate(before):
        flag, has_value, value = word.partition("=")
        if flag in ("--config-dir", "-cd"):
            yield Path(value if has_value else next(iter(before[position + 1 :]), "")).expanduser()
    packaged = HERE.parent / "conf"
    yield packaged if packaged.is_dir() else HERE.parents[1] / "conf"


def _yaml_files(current: str) -> Iterator[str]:
    folder = os.path.dirname(current)
    if os.path.isdir(folder or "."):
        for name in os.listdir(folder or "."):
            if name.endswith((".yaml", ".yml")) and not name.startswith("."):
                yield os.path.join(folder, name)


def _folders(parent: str) -> Iterator[str]:
    if os.path.isdir(parent):
        for entry in os.scandir(parent):
            if entry.is_dir():
                yield f"{parent}/{entry.name}"


def main() -> None:
    """Prints one candidate per line: ``python completion.py SHELL LINE``."""
    for word in candidates(sys.argv[2]):
        print(word)


def run(invocation: Invocation) -> int:
    from sglang_hydra.text.errors import ConfigError
    from sglang_hydra.text.words import program

    shells = [request.text for request in invocation.requests]
    if len(shells) != 1 or shells[0] not in SHELLS:
        known = ", ".join(SHELLS)
        hint = f'eval "$({program()} completion bash)" in ~/.bashrc'
        raise ConfigError.of("CLI025", f"completion takes a shell: {known}", hint=hint)
    print(script(shells[0]), end="")
    return 0


if __name__ == "__main__":
    main()
