"""Judges every launch command in checkouts of public recipes.

    python tools/audit_upstream.py DIR...     # a line for each defect, or --json: file, line, release, finding, hint

Only what SGLang's own parser refuses counts: it does not depend on a GPU that the file does not name. A command is read
by the release that its file names, else by the newest one that takes it. Nothing of a checkout is run.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sglang_hydra.compose.composer import Composer  # noqa: E402
from sglang_hydra.compose.overrides import Request  # noqa: E402
from sglang_hydra.convert.importing.launches import has_launch_command  # noqa: E402
from sglang_hydra.convert.importing.native import native_reader  # noqa: E402
from sglang_hydra.convert.review.places import placed  # noqa: E402
from sglang_hydra.planning.plan import Plan  # noqa: E402
from sglang_hydra.show.verdicts import Checked, verdicts_on  # noqa: E402
from sglang_hydra.text.errors import ConfigError  # noqa: E402
from sglang_hydra.text.findings import Finding  # noqa: E402

SUFFIXES = (".md", ".mdx", ".sh", ".yaml", ".yml", ".slurm", ".sbatch")
LONGEST = 1 << 20
GPU = Request("gpu=h200", "the audit")


def files_in(folder: Path) -> Iterator[Path]:
    """Yields the files that contain a launch command, in order."""
    for file in sorted(folder.rglob("*")):
        named = file.suffix in SUFFIXES or file.name.startswith("Dockerfile")
        if not named or file.is_symlink() or not file.is_file() or file.stat().st_size > LONGEST:
            continue
        if has_launch_command(file.read_text(encoding="utf-8", errors="replace")):
            yield file


def verdicts_of(composer: Composer, file: Path) -> list[tuple[str, Checked]]:
    """The verdict on each server of a file; none for a file that starts none."""
    requests = [Request(str(file), str(file)), GPU]
    try:
        return verdicts_on(composer, requests, others=native_reader(composer, requests[1:], elsewhere=True))
    except ConfigError:
        return []


def refusals(verdict: Checked) -> list[Finding]:
    """What SGLang's parser refuses, whatever the machine."""
    return [item for item in verdict.findings if item.level == "error" and item.stage == "argparse"]


def rows_of(composer: Composer, folder: Path) -> Iterator[dict[str, Any]]:
    """One row for each server of a folder: its file, the release, and what is refused of it, with lines."""
    for file in files_in(folder):
        verdicts = [item for item in verdicts_of(composer, file) if isinstance(item[1].made, Plan)]
        for (_, verdict), places in zip(verdicts, placed(verdicts), strict=True):
            lines = {finding: place.line for finding, place in places if place is not None}
            defects = [
                {"line": lines.get(item), "id": item.id, "message": item.message, "hint": item.hint}
                for item in refusals(verdict)
            ]
            release = verdict.made.engine.version if verdict.made else None
            yield {"file": str(file.relative_to(folder)), "release": release, "defects": defects}


def main(words: Sequence[str]) -> int:
    composer = Composer()
    folders = [Path(word) for word in words if not word.startswith("-")]
    for folder in folders:
        counts: Counter[str] = Counter()
        for row in rows_of(composer, folder):
            counts["servers"] += 1
            counts["refused"] += bool(row["defects"])
            if "--json" in words:
                print(json.dumps({"source": folder.name, **row}), flush=True)
                continue
            for defect in row["defects"]:
                said = f"{defect['id']} {defect['message']}; {defect['hint'] or ''}"
                print(f"{folder.name}/{row['file']}:{defect['line']}  SGLang {row['release']}  {said}", flush=True)
        print(f"{folder.name}: {counts['servers']} servers, {counts['refused']} refused", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
