"""Makes the pictures of a terminal in README.md and docs/: SVG of what the commands really print there, in colour.

    python tools/terminal_pictures.py [--check]

Each command runs in a pseudo-terminal of 100 columns, offline. ``--check`` writes nothing and exits with 1 where a
picture is not what its command prints today.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.readme_screens import PROGRAM, UNWANTED  # noqa: E402

FOLDER = ROOT / "docs" / "images"


class Picture(NamedTuple):
    """The command, how many of its lines are shown, and the machine that it is told it runs on, None for this one."""

    command: str
    lines: int
    machine: str | None = None


LAPTOP = "GpuProbe(), None"
H100S = (
    "GpuProbe('nvidia', 'cuda', ('NVIDIA H100 80GB HBM3',) * 8, 81559.0, 81559.0, (9, 0), 8, 8, False, None, True, "
    "True), '0.5.23'"
)
"""What a probe finds there, and the release of SGLang that is installed."""
PICTURES = {
    "plan": Picture("plan gpu=h200 model=gpt_oss", 26),
    "check": Picture("check gpu=h100 model=deepseek_v3 tp_size=8", 24),
    "first_laptop": Picture("", 10, LAPTOP),
    "first_h100": Picture("", 10, H100S),
}
"""By the name of the file."""
_ON_A_MACHINE = """
import sys
from sglang_hydra.cli.main import entry
from sglang_hydra.facts import probe
from sglang_hydra.facts.probe import GpuProbe
from sglang_hydra.planning.engines import planned
from sglang_hydra.planning.engines.base import Availability

found, release = {machine}
here, missing = Availability(release is not None, release, None), Availability(False, None, "not installed")
probe.probe_gpu = lambda *given, **named: found
type(planned.SGLANG).available = lambda self, python: here
type(planned.TRANSFORMERS).available = lambda self, python: missing
sys.argv[0] = "serve.py"
sys.exit(entry(sys.argv[1:]))
"""
WIDTH = 100
_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""rich names fonts of another host; a picture is to be whole by itself."""


def printed_by(words: list[str], folder: str, width: int = WIDTH, machine: str | None = None) -> str:
    """What a command of ours prints on a terminal, with its colours."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    env = {name: value for name, value in os.environ.items() if not name.startswith((*UNWANTED, "NO_COLOR"))}
    env |= {"HF_HUB_OFFLINE": "1", "SGLANG_HYDRA_OFFLINE": "1", "SGLANG_HYDRA_CACHE": f"{folder}/.cache"}
    env |= {"TERM": "xterm-256color", "COLUMNS": str(width)}
    env["PYTHONPATH"] = str(ROOT)
    program = [str(ROOT / "serve.py")] if machine is None else ["-c", _ON_A_MACHINE.format(machine=machine)]
    command = [sys.executable, *program, *words]
    with subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=there, stderr=there):
        os.close(there)
        parts = []
        while part := _read(here):
            parts.append(part)
    os.close(here)
    printed = b"".join(parts).decode().replace("\r\n", "\n").replace(sys.executable, "python")
    return printed.replace("python serve.py", PROGRAM)


def _read(end: int) -> bytes:
    try:
        return os.read(end, 65536)
    except OSError:  # the other end is closed
        return b""


def picture(command: str, lines: int, machine: str | None = None) -> str:
    """The SVG of a command and the first lines of what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        printed = printed_by(shlex.split(command), folder, machine=machine)
    shown = "\n".join([f"$ {PROGRAM} {command}".rstrip(), *printed.splitlines()[:lines]])
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(shown))
    return _FONTS.sub("", console.export_svg(title=PROGRAM, unique_id="picture")) + "\n"


def main() -> int:
    stale = []
    for name, shown in PICTURES.items():
        file, made = FOLDER / f"{name}.svg", picture(*shown)
        if "--check" in sys.argv:
            stale += [name] if not file.is_file() or file.read_text(encoding="utf-8") != made else []
        else:
            file.write_text(made, encoding="utf-8")
            print(f"wrote {file.relative_to(ROOT)}")
    if stale:
        print(f"stale: {', '.join(stale)}; python tools/terminal_pictures.py makes them again")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
