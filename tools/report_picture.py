"""Makes docs/images/report.png, the README's picture of a report, from a sweep that really ran here.

    python tools/report_picture.py [SWEEP_FOLDER]

Without a folder it runs model=tiny on the embedded engine first (some minutes). Needs Debian's package chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "report.png"
SWEEP = ["model=tiny", "bench.concurrency=1,2,4", "bench.output_len=8,16", "bench.num_prompts=8", "bench.repeats=3"]
WIDTH, HEIGHT = 1100, 1340


def main() -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome") or sys.exit("chromium is not installed")
    with tempfile.TemporaryDirectory() as scratch:
        serve = [sys.executable, str(ROOT / "serve.py")]
        if len(sys.argv) > 1:
            folder = Path(sys.argv[1]).resolve()
        else:
            # Without a folder among its words, so that the picture shows what a reader types.
            subprocess.run([*serve, "bench", "-m", *SWEEP], cwd=scratch, check=True)
            (folder,) = (Path(scratch) / "multirun").iterdir()
        subprocess.run([*serve, "report", str(folder)], cwd=scratch, check=True)
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        quiet = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={scratch}/profile",
        ]
        light = ["--blink-settings=preferredColorScheme=1", f"--window-size={WIDTH},{HEIGHT}"]
        page = (folder / "report.html").resolve().as_uri()
        subprocess.run([browser, *quiet, *light, f"--screenshot={PICTURE}", page], check=True, capture_output=True)
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
