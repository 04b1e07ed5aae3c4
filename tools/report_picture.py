"""Makes docs/images/report.png, the README's picture of a report, from a sweep that really ran here.

    python tools/report_picture.py [SWEEP_FOLDER]

Without a folder it measures the simulated server of the tests first (some minutes): it speaks SGLang's HTTP, and time
is the only thing that it computes. Needs Debian's package chromium.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.measure.sweep.place import make_fake_python  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "report.png"
SIMULATED = {"decode_ms": 20, "batch_us": 150, "prefill_us": 120, "obeys": True}
SWEEP = [
    *("model=tiny", "gpu=cpu", "engine=sglang", "engine.python=simulated_server/venv/bin/python"),
    *("attention_backend=torch_native", "grammar_backend=none"),
    *("tp_size=1,2,4", "max_running_requests=32,16,8", "sweep.zip=[[tp_size,max_running_requests]]"),
    *("bench.concurrency=1,2,4,8,16,32", "bench.input_len=256", "bench.output_len=16", "bench.client=builtin"),
    *("bench.repeats=3", "bench.min_duration=2", "bench.slo.ttft_ms=200", "bench.slo.itl_ms=20"),
]
WIDTH, HEIGHT = 1280, 690


def main() -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome") or sys.exit("chromium is not installed")
    with tempfile.TemporaryDirectory() as scratch:
        serve = [sys.executable, str(ROOT / "serve.py")]
        if len(sys.argv) > 1:
            folder = Path(sys.argv[1]).resolve()
        else:
            make_fake_python(Path(scratch) / "simulated_server")
            environment = {**os.environ, "FAKE_SGLANG": json.dumps(SIMULATED), "HF_HUB_OFFLINE": "1"}
            # Without a folder among its words, so that the picture shows what a reader types.
            subprocess.run([*serve, "bench", "-m", *SWEEP], cwd=scratch, env=environment, check=True)
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
