"""Writes docs/exports/, every export of one plan on one node and of one on two nodes, and the formats into the schema.

    python tools/export_pages.py [--check]

With ``--check`` nothing is written, and the exit code is 1 where a file is stale, missing or left over.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that a bare checkout will do

from sglang_hydra.compose.composer import Composer  # noqa: E402
from sglang_hydra.compose.overrides import Request  # noqa: E402
from sglang_hydra.convert.export.job import job_of  # noqa: E402
from sglang_hydra.convert.export.registry import FORMATS, render  # noqa: E402
from sglang_hydra.planning.making.make import make_plan  # noqa: E402
from tools.generated import write_or_check_files  # noqa: E402

FOLDER = ROOT / "docs" / "exports"
SCHEMA = ROOT / "sglang_hydra" / "schemas" / "export.schema.json"
PLANS = {
    "deepseek_v3-h200": ("gpu=h200", "model=deepseek_v3", "tp_size=8", "random_seed=42"),
    "deepseek_v3-h100-two-nodes": ("gpu=h100", "model=deepseek_v3", "tp_size=16", "nnodes=2", "random_seed=42"),
}
# Whatever SGLang is installed here: the page is about the release whose rules these are.
_RELEASE = Request("engine.version=0.5.2", "tools/export_pages.py")


def pages() -> Iterator[tuple[Path, str]]:
    """Each file with its content."""
    composer = Composer()
    for name, overrides in PLANS.items():
        requests = [Request(word, f"argument {number}") for number, word in enumerate(overrides, 2)]
        job = job_of(make_plan(composer, [*requests, _RELEASE], env={}), overrides)
        for format, each in FORMATS.items():
            yield FOLDER / name / each.file, render(format, job).text
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    schema["properties"]["format"]["enum"] = list(FORMATS)
    yield SCHEMA, json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    fresh = dict(pages())
    left_over = sorted({path for path in FOLDER.rglob("*") if path.is_file()} - set(fresh))
    return write_or_check_files(fresh, arguments, left_over)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
