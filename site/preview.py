"""Draws previews, the pictures of links to the site: a plan, and the GPUs that serve a model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

SIZE = (1200, 630)
"""What social networks and chats show whole, in pixels."""
MARGIN, COLUMNS, GRID_TOP, GAP = 50, 7, 236, 8
INK, DIM, PAGE = "#1b1d22", "#565b66", "#ffffff"
COLOURS = dict(
    re.findall(
        r"^\.(c\d+|none) \{ background: (#\w{6}); \}",
        (Path(__file__).parent / "src" / "style.css").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
)
"""Those of the matrix, by the class of a cell."""


def draw_plan(file: Path, verdict: str, tiles: Sequence[Mapping[str, str]], command: str) -> None:
    """Writes a PNG of a plan: its key figures have a ``label``, a ``value`` and a ``note``."""
    image = Image.new("RGB", SIZE, PAGE)
    pen = ImageDraw.Draw(image)
    question = "Will this model run on these GPUs, and with which command?"
    pen.text((MARGIN, 44), question, DIM, _fitting(pen, question, 40))
    pen.text((MARGIN, 118), verdict, INK, _fitting(pen, verdict, 60))
    for place, tile in enumerate(tiles[:4]):
        x, y = MARGIN + place % 2 * 560, 230 + place // 2 * 150
        pen.rounded_rectangle((x, y, x + 540, y + 136), 12, COLOURS["none"])
        pen.text((x + 20, y + 12), tile["label"], DIM, _font(26))
        pen.text((x + 20, y + 48), tile["value"], INK, _font(46))
        pen.text((x + 20, y + 100), tile["note"], DIM, _font(22))
    pen.text((MARGIN, 560), command, INK, _fitting(pen, command, 30))
    image.quantize(64).save(file, optimize=True)


def draw_model(file: Path, model: str, load: str, sentence: str, cells: Sequence[Mapping[str, Any]]) -> None:
    """Writes a PNG with a cell for each GPU class: its ``gpu``, ``text`` and ``class``, as in the matrix; below, the
    plan with the fewest GPUs."""
    image = Image.new("RGB", SIZE, PAGE)
    pen = ImageDraw.Draw(image)
    pen.text((MARGIN, 34), f"The fewest GPUs that hold {load}", DIM, _font(32))
    pen.text((MARGIN, 78), model, INK, _fitting(pen, model, 66))
    pen.text((MARGIN, 170), sentence, DIM, _fitting(pen, sentence, 32))
    rows = -(-len(cells) // COLUMNS)
    width = (SIZE[0] - 2 * MARGIN + GAP) // COLUMNS
    height = (SIZE[1] - GRID_TOP - 92) // rows
    for place, cell in enumerate(cells):
        x, y = MARGIN + place % COLUMNS * width, GRID_TOP + place // COLUMNS * height
        pen.rounded_rectangle((x, y, x + width - GAP, y + height - GAP), 8, COLOURS[cell["class"]])
        pen.text((x + 10, y + 6), cell["gpu"], INK, _font(20))
        pen.text((x + width - GAP - 12, y + height - GAP - 6), cell["text"], INK, _font(36), anchor="rb")
    found = min((cell for cell in cells if cell["best"]), key=lambda cell: int(cell["best"]["gpus"]), default=None)
    if found:
        room, command = f"{found['gpu']}: {found['best']['room']}", f"sglang-hydra plan {found['typed']}"
        pen.text((MARGIN, SIZE[1] - 84), room, DIM, _fitting(pen, room, 26))
        pen.text((MARGIN, SIZE[1] - 48), command, INK, _fitting(pen, command, 26))
    image.quantize(64).save(file, optimize=True)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _fitting(pen: ImageDraw.ImageDraw, text: str, size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The largest font of at most ``size`` in which the text fits the width."""
    while size > 16 and pen.textlength(text, _font(size)) > SIZE[0] - 2 * MARGIN:
        size -= 2
    return _font(size)
