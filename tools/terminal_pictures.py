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

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.readme_screens import PROGRAM, UNWANTED  # noqa: E402

FOLDER = ROOT / "docs" / "images"
PICTURES = {
    "plan": ("plan gpu=h200 model=gpt_oss", 26),
    "check": ("check gpu=h100 model=deepseek_v3 tp_size=8", 24),
}
"""By the name of the file: the command, and how many of its lines are shown."""
WIDTH = 100
_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""rich names fonts of another host; a picture is to be whole by itself."""


def printed_by(words: list[str], folder: str, width: int = WIDTH) -> str:
    """What a command of ours prints on a terminal, with its colours."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    env = {name: value for name, value in os.environ.items() if not name.startswith((*UNWANTED, "NO_COLOR"))}
    env |= {"HF_HUB_OFFLINE": "1", "SGLANG_HYDRA_OFFLINE": "1", "SGLANG_HYDRA_CACHE": f"{folder}/.cache"}
    env |= {"TERM": "xterm-256color", "COLUMNS": str(width)}
    command = [sys.executable, str(ROOT / "serve.py"), *words]
    with subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=there, stderr=there):
        os.close(there)
        parts = []
        while part := _read(here):
            parts.append(part)
    os.close(here)
    return b"".join(parts).decode().replace("\r\n", "\n").replace("python serve.py", PROGRAM)


def _read(end: int) -> bytes:
    try:
        return os.read(end, 65536)
    except OSError:  # the other end is closed
        return b""


def picture(command: str, lines: int) -> str:
    """The SVG of a command and the first lines of what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        printed = printed_by(shlex.split(command), folder)
    shown = "\n".join([f"$ {PROGRAM} {command}", *printed.splitlines()[:lines]])
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(shown))
    return _FONTS.sub("", console.export_svg(title=PROGRAM, unique_id="picture")) + "\n"


def main() -> int:
    stale = []
    for name, (command, lines) in PICTURES.items():
        file, made = FOLDER / f"{name}.svg", picture(command, lines)
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
