"""The page in a real browser: Chromium draws it at two widths, light and dark, and has nothing to complain of.

Needs Debian's package chromium.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.cli.main import entry
from tests.measure.report.folders import grid, write_sweep

pytestmark = pytest.mark.long

# Looks into the page from around it, once it is laid out.
HARNESS = """<!doctype html><iframe id="page" src="report.html" style="border:0;width:%dpx;height:3000px"></iframe>
<pre id="seen"></pre><script>
addEventListener("load", () => {
  const page = document.getElementById("page").contentDocument;
  const size = (mark) => { const box = mark.getBoundingClientRect(); return Math.min(box.width, box.height); };
  const seen = (wanted) => [...page.querySelectorAll(wanted)].filter((item) => item.checkVisibility());
  const style = getComputedStyle(page.body);
  document.getElementById("seen").textContent = JSON.stringify({
    wide: page.documentElement.scrollWidth,
    charts: seen("svg:not(.key)").map((svg) => svg.getBoundingClientRect().width),
    marks: seen("svg:not(.key) path, rect").map(size),
    letters: seen("svg text").map((text) => text.getBoundingClientRect().height),
    front: seen("polyline.front").length,
    page: style.backgroundColor,
    ink: style.color,
  });
});
</script>"""


def browse(folder: Path, width: int, *flags: str) -> tuple[dict[str, Any], str]:
    """What the harness saw, and what the browser logged."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert chromium, "the browser is missing: apt-get install chromium"
    harness = folder / f"harness-{width}.html"
    harness.write_text(HARNESS % width)
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    logging = ["--enable-logging=stderr", "--log-level=0", "--allow-file-access-from-files"]
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [chromium, *quiet, *logging, profile, *flags, f"--window-size={width + 40},3100"]
    ended = subprocess.run(
        [*command, "--virtual-time-budget=5000", "--dump-dom", harness.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = re.search(r'<pre id="seen">(.*?)</pre>', ended.stdout, re.DOTALL)
    assert found, ended.stderr[-2000:]
    return json.loads(html.unescape(found[1])), ended.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sweep = write_sweep(tmp_path_factory.mktemp("browser") / "sweep", grid(repeats=3))
    assert entry(["report", str(sweep)]) == 0
    return sweep


@pytest.mark.parametrize("width", [1280, 400])
def test_the_charts_are_drawn_and_can_be_read(folder: Path, width: int) -> None:
    seen, log = browse(folder, width)
    assert "CONSOLE" not in log
    assert seen["wide"] <= width, "the page does not scroll sideways"
    assert len(seen["charts"]) == 2 * 3
    assert min(seen["charts"]) > 250
    assert seen["front"] >= 1
    assert len(seen["marks"]) >= 18
    assert min(seen["marks"]) > 4
    assert min(seen["letters"]) > 9


def test_it_follows_the_dark_preference(folder: Path) -> None:
    light, _ = browse(folder, 400, "--blink-settings=preferredColorScheme=1")
    dark, log = browse(folder, 400, "--blink-settings=preferredColorScheme=0")

    def brightness(colour: str) -> int:
        return sum(int(part) for part in re.findall(r"\d+", colour)[:3])

    assert "CONSOLE" not in log
    assert brightness(light["page"]) > 600 > 200 > brightness(light["ink"])
    assert brightness(dark["page"]) < 200 < 600 < brightness(dark["ink"])
