"""Draws the preview of a model: which GPUs serve it, as a picture for those who link to its pages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

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


def draw(file: Path, model: str, load: str, sentence: str, cells: Sequence[Mapping[str, str]]) -> None:
    """Writes a PNG with a cell for each GPU class: its ``gpu``, ``text`` and ``class``, as in the matrix."""
    image = Image.new("RGB", SIZE, PAGE)
    pen = ImageDraw.Draw(image)
    pen.text((MARGIN, 34), f"The fewest GPUs that hold {load}", DIM, _font(32))
    pen.text((MARGIN, 78), model, INK, _fitting(pen, model, 66))
    pen.text((MARGIN, 170), sentence, DIM, _fitting(pen, sentence, 32))
    rows = -(-len(cells) // COLUMNS)
    width = (SIZE[0] - 2 * MARGIN + GAP) // COLUMNS
    height = (SIZE[1] - GRID_TOP - 58) // rows
    for place, cell in enumerate(cells):
        x, y = MARGIN + place % COLUMNS * width, GRID_TOP + place // COLUMNS * height
        pen.rounded_rectangle((x, y, x + width - GAP, y + height - GAP), 8, COLOURS[cell["class"]])
        pen.text((x + 10, y + 6), cell["gpu"], INK, _font(20))
        pen.text((x + width - GAP - 12, y + height - GAP - 6), cell["text"], INK, _font(36), anchor="rb")
    pen.text((MARGIN, SIZE[1] - 50), "sglang-hydra: plan SGLang servers in the browser", DIM, _font(26))
    image.quantize(64).save(file, optimize=True)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _fitting(pen: ImageDraw.ImageDraw, text: str, size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The largest font of at most ``size`` in which the text fits the width."""
    while size > 16 and pen.textlength(text, _font(size)) > SIZE[0] - 2 * MARGIN:
        size -= 2
    return _font(size)
