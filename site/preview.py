"""Draws previews, the pictures of links to the site: a plan, the GPUs that serve a model, a model on a GPU."""

from __future__ import annotations

import re
import struct
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

SIZE = (1200, 630)
"""What social networks and chats show whole, in pixels."""
MARGIN, COLUMNS, GRID_TOP, GAP = 50, 7, 236, 8
TOKENS = Path(__file__).resolve().parents[1] / "sglang_hydra" / "measure" / "report" / "tokens.css"
COLOURS = {name: light or colour for name, light, colour in re.findall(
    r"--([\w-]+): (?:light-dark\((#\w{6}),|(#\w{6}))", TOKENS.read_text(encoding="utf-8"))}  # fmt: skip
"""Those of light pages, by their names; a cell of the matrix has that of its class."""
COLOURS["none"] = COLOURS["c0"]
INK, DIM, PAGE = COLOURS["ink"], COLOURS["dim"], COLOURS["card"]


_FEW = 12
"""Colours of a model's picture: text is smooth with these."""


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
    image = image.quantize(_FEW)
    _write(file, image, bytes(image.getpalette() or ())[: 3 * _FEW], 4)


def draw_pair(file: Path, cell: str, title: str, lines: Sequence[str], command: str) -> None:
    """Writes a PNG of a model on a GPU: the verdict, ``lines`` below, and the command. Its colour is that of its
    ``cell`` in the matrix, a class. There are thousands of them: four colours, drawn at half the size."""
    ink, dim, colour, page = range(4)
    image = Image.new("P", (SIZE[0] // 2, SIZE[1] // 2), page)
    pen = ImageDraw.Draw(image)
    pen.fontmode = "1"
    name, _, verdict = title.partition(": ")
    pen.rectangle((0, 0, image.width, 58), colour)
    pen.text((25, 15), name, ink, _fitting(pen, name, 26, 550))
    pen.text((25, 72), verdict, ink, _fitting(pen, verdict, 22, 550))
    for place, line in enumerate(lines):
        pen.text((25, 118 + 27 * place), line, ink, _fitting(pen, line, 17, 550))
    for place, line in enumerate(textwrap.wrap(command, 62, break_on_hyphens=False)[:4]):
        pen.text((25, 210 + 24 * place), line, dim, _font(15))
    palette = b"".join(bytes.fromhex(name[1:]) for name in (INK, DIM, COLOURS[cell], PAGE))
    _write(file, image.resize(SIZE, Image.Resampling.NEAREST), palette, 2)


def _write(file: Path, image: Image.Image, palette: bytes, bits: int) -> None:
    """Writes a PNG of an image with a palette, a tenth smaller than Pillow's."""
    rows, wide = image.tobytes("raw", f"P;{bits}"), -(-image.width * bits // 8)
    packer = zlib.compressobj(8, zlib.DEFLATED, zlib.MAX_WBITS, 9)
    lines = (b"\0" + rows[begin : begin + wide] for begin in range(0, len(rows), wide))
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", *image.size, bits, 3, 0, 0, 0),
        b"PLTE": palette,
        b"IDAT": packer.compress(b"".join(lines)) + packer.flush(),
        b"IEND": b"",
    }
    chunks = (struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
              for name, data in parts.items())  # fmt: skip
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


@lru_cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _fitting(
    pen: ImageDraw.ImageDraw, text: str, size: int, width: int = SIZE[0] - 2 * MARGIN
) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The largest font of at most ``size`` in which the text fits the width."""
    while size > 10 and pen.textlength(text, _font(size)) > width:
        size -= 2
    return _font(size)
