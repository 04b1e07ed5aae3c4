"""Build the table over SGLang's releases from their wheels, importing nothing of them.

    python tools/read_releases.py                      # downloads what the registry has from 0.5.2 on, 370 MB
    python tools/read_releases.py WHEEL... --out table.json
    python tools/read_releases.py --wheels FOLDER      # keeps the wheels there, downloads what is missing

Arguments, flags that are only still accepted, environment variables, the server's pages, commands, requirements and
model classes (architectures.json, beside the table) of each release are read from its sources as syntax (Python's ast)
and from its METADATA. `sglang_hydra.arguments.tables` answers questions from both.

Exit code: 0 written, 2 a wheel or the registry could not be read; the old table is then left as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from releases.table import make_architectures, make_table, read_release, written
from releases.wheel import Wheel, WheelError

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "sglang_hydra" / "arguments" / "tables" / "table.json"
ARCHITECTURES = "architectures.json"
FIRST = "0.5.2"
_SECONDS = 600


def released(first: str) -> list[str]:
    """The releases on the registry from ``first`` on, oldest first. Raises WheelError where it cannot be asked."""
    answer = _pip("index", "versions", "sglang")
    match = re.search(r"^Available versions: (.+)$", answer, re.MULTILINE)
    if match is None:
        raise WheelError(f"pip index versions sglang answered: {answer.strip()[-300:]}")
    versions = sorted((version.strip() for version in match[1].split(",")), key=_key)
    return [version for version in versions if _key(version) >= _key(first)]


def download(versions: Sequence[str], folder: Path) -> list[Path]:
    """One wheel for each release, in ``folder``; what is there already is taken as it is."""
    found = []
    for version in versions:
        have = sorted(folder.glob(f"sglang-{version}-*.whl"))
        if not have:
            print(f"downloading sglang {version}", file=sys.stderr)
            # From 0.5.11 on there is one wheel for each Python; their sources are the same.
            _pip(
                "download",
                "--no-deps",
                "--only-binary=:all:",
                "--python-version",
                "3.12",
                "-d",
                str(folder),
                f"sglang=={version}",
            )
            have = sorted(folder.glob(f"sglang-{version}-*.whl"))
        if not have:
            raise WheelError(f"pip brought no wheel of sglang {version}")
        found.append(have[0])
    return found


def build(wheels: Sequence[Path]) -> tuple[str, str]:
    """The table of these wheels, and that of their model classes, as they are written."""
    releases = sorted((read_release(Wheel(path)) for path in wheels), key=lambda release: _key(release.version))
    rows = [f"{json.dumps(version)}: {json.dumps(row)}" for version, row in make_architectures(releases).items()]
    return written(make_table(releases)), "{\n" + ",\n".join(rows) + "\n}\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", nargs="*", type=Path, help="wheels to read instead of the registry's")
    parser.add_argument("--since", default=FIRST, metavar="VERSION", help=f"the first release of the table ({FIRST})")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="where wheels are kept; otherwise they are not")
    parser.add_argument("--out", type=Path, default=TABLE, help="where the table is written")
    options = parser.parse_args(argv)
    try:
        if options.wheel:
            content, classes = build(options.wheel)
        elif options.wheels:
            options.wheels.mkdir(parents=True, exist_ok=True)
            content, classes = build(download(released(options.since), options.wheels))
        else:
            with tempfile.TemporaryDirectory() as folder:
                content, classes = build(download(released(options.since), Path(folder)))
    except WheelError as error:
        print(f"read_releases: {error}", file=sys.stderr)
        return 2
    for path, text in ((options.out, content), (options.out.with_name(ARCHITECTURES), classes)):
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    print(f"{options.out}: {content.count(chr(10) + '{') or 1} releases, {len(content) // 1024} KiB")
    return 0


def _pip(*words: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WheelError(f"{' '.join(words[:2])}: {error}") from error
    if done.returncode:
        raise WheelError(f"pip {' '.join(words)} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def _key(version: str) -> tuple[tuple[int, ...], int, int]:
    from sglang_hydra.arguments.tables.order import release_key

    key = release_key(version)
    # What is no version is older than everything.
    return key or ((), 0, 0)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
