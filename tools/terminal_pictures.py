"""Makes the SVG pictures in README.md and docs/: what commands really print in colour, and the memory of one plan.

    python tools/terminal_pictures.py [--check]

Each command runs in a pseudo-terminal of 100 columns, offline. ``--check`` writes nothing and exits with 1 where a
picture is not what its command prints today.
"""

from __future__ import annotations

import fcntl
import io
import json
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
NAMES = ("memory", *PICTURES)
BAR = "gpu=h200 model=gpt_oss"
"""The plan whose memory is drawn."""
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


def memory_bar(words: str = BAR) -> str:
    """Draws the SVG of a plan's memory: a bar in GiB, its legend, the verdict and the capacity."""
    with tempfile.TemporaryDirectory() as folder:
        plan = json.loads(printed_by(["plan", *words.split(), "--json"], folder))
        screen = printed_by(["plan", *words.split()], folder).splitlines()
    fit = plan["fit"]
    parts = [
        ("weights", fit["weights"]["total_gib"], "#4c78a8"),
        ("KV cache", fit["kv_cache"]["size_gib"], "#54a24b"),
        ("graphs and activations", fit["cuda_graphs_gib"]["mid"] + fit["activations_gib"]["mid"], "#eeca3b"),
        ("left", fit["left_gib"], "#d8dee4"),
    ]
    other = fit["memory_gib"] - sum(gib for _, gib, _ in parts)
    parts.insert(2, ("context, tables, workspaces", other, "#b279a2"))
    (found,) = (line for line in screen if "Capacity" in line)
    capacity = " ".join(re.sub(r"\x1b\[[\d;]*m", "", found).split()).replace("Capacity", "Capacity:")
    title = f"{'Can be launched' if plan['launchable'] else 'Cannot be launched'}: sglang-hydra plan {words}"
    shapes, x, place = [], 20.0, 20
    for label, gib, colour in parts:
        width = 860 * gib / fit["memory_gib"]
        shapes.append(f'<rect x="{x:.1f}" y="52" width="{width:.1f}" height="44" fill="{colour}"/>')
        shapes.append(f'<rect x="{place}" y="112" width="12" height="12" fill="{colour}"/>')
        shapes.append(f'<text x="{place + 18}" y="123" font-size="14">{label} {gib:.1f}</text>')
        x, place = x + width, place + 66 + 7 * len(label)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 174" font-family="sans-serif" fill="#1f2328">\n'
        '<rect width="900" height="174" rx="8" fill="#ffffff" stroke="#d0d7de"/>\n'
        f'<text x="20" y="34" font-size="18" font-weight="bold">{title}</text>\n'
        + "\n".join(shapes)
        + f'\n<text x="20" y="154" font-size="16">{capacity}; {fit["memory_gib"]:.1f} GiB in all</text>'
        "\n</svg>\n"
    )


def made(name: str) -> str:
    """Returns the SVG of a name."""
    return memory_bar() if name == "memory" else picture(*PICTURES[name])


def main() -> int:
    stale = []
    for name in NAMES:
        file, svg = FOLDER / f"{name}.svg", made(name)
        if "--check" in sys.argv:
            stale += [name] if not file.is_file() or file.read_text(encoding="utf-8") != svg else []
        else:
            file.write_text(svg, encoding="utf-8")
            print(f"wrote {file.relative_to(ROOT)}")
    if stale:
        print(f"stale: {', '.join(stale)}; python tools/terminal_pictures.py makes them again")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
