"""``init DIR``: writes a new experiment repo."""

from __future__ import annotations

import json
import shlex
import shutil
from importlib.metadata import distribution
from pathlib import Path

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import typed_words
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import reason_of
from sglang_hydra.text.screen import text, write
from sglang_hydra.text.words import program

_TEMPLATE = Path(__file__).with_name("new_repo")
_COMMANDS = ("python app.py", "python app.py -m +sweep=tp_size")


def run(invocation: Invocation) -> int:
    """Writes the repo into a new or empty folder, and prints what to type there.

    Raises ConfigError (CLI040) without a folder, for one with files, and if it cannot be written."""
    words = typed_words(invocation)
    if len(words) != 1:
        named = next((word for word in words if "=" not in word), "my_experiments")
        raise _refused(f"init takes one folder, not {len(words)}", f"{program()} init {shlex.quote(named)}")
    folder = Path(words[0])
    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise _refused(f"{folder} holds files, and nothing was written", f"{program()} init NEW_FOLDER")
        shutil.copytree(_TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        (folder / "requirements.txt").write_text(_requirement() + "\n", encoding="utf-8")
    except OSError as failure:
        reason = reason_of(failure)
        raise _refused(f"{folder} cannot be written: {reason}", f"{program()} init NEW_FOLDER") from failure
    there = f"{folder} is an experiment repo; README.md there says what each file is."
    write([[text(line)] for line in (there, f"cd {shlex.quote(str(folder))}", *_COMMANDS)])
    return 0


def _requirement() -> str:
    """Returns the requirement for this package as installed here: its release, or the address or folder that pip
    installed it from (PEP 610)."""
    package = distribution("sglang-hydra")
    taken = json.loads(package.read_text("direct_url.json") or "{}")
    if not taken:
        return f"sglang-hydra=={package.version}"
    origin = taken.get("vcs_info")
    address = f"{origin['vcs']}+{taken['url']}@{origin['commit_id']}" if origin else taken["url"]
    return f"sglang-hydra @ {address}"


def _refused(message: str, hint: str) -> ConfigError:
    return ConfigError.of("CLI040", message, hint=hint)
