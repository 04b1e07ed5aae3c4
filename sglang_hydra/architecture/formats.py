"""How many bytes a matrix takes in each storage format (SGLang 0.5.2, layers/quantization/*)."""

from __future__ import annotations

from typing import NamedTuple

WHOLE_ROW = -1


class Stored(NamedTuple):
    """A format: ``bits`` for each weight and what goes with it.

    ``group`` weights along a row share a scale of ``scale_bytes`` (WHOLE_ROW: one scale a row, 0: none that counts),
    and so do ``scale_rows`` rows; ``zero_bits`` is the zero point of a group in each row. ``scale_copies``: how often
    the scales are held. ``pad``: experts are stored with their width and the hidden size rounded up to these multiples.
    """

    name: str
    bits: float
    group: int = 0
    scale_bytes: float = 0.0
    scale_rows: int = 1
    zero_bits: float = 0.0
    scale_copies: int = 1
    pad: tuple[int, int] = (1, 1)

    def weights(self, rows: int, columns: int) -> float:
        """Returns the bytes of the weights of a matrix with ``rows`` outputs and ``columns`` inputs."""
        return rows * columns * self.bits / 8

    def scales(self, rows: int, columns: int) -> float:
        """Returns the bytes of the scales and zero points that go with them: tensors of their own."""
        if not self.group:
            return 0.0
        groups = 1 if self.group == WHOLE_ROW else -(-columns // self.group)
        scales = -(-rows // self.scale_rows) * groups * self.scale_bytes * self.scale_copies
        return scales + rows * groups * self.zero_bits / 8

    def tensors(self, rows: int, columns: int) -> tuple[float, float]:
        """Returns the bytes of the weights, and of what goes with them."""
        return self.weights(rows, columns), self.scales(rows, columns)

    def size(self, rows: int, columns: int) -> float:
        """Returns the bytes of both."""
        return sum(self.tensors(rows, columns))


def plain(element_bytes: int) -> Stored:
    """Stores ``element_bytes`` for each weight: not quantized."""
    return Stored({2: "16 bit", 4: "float32"}.get(element_bytes, f"{8 * element_bytes} bit"), 8.0 * element_bytes)


def blocks(name: str, rows: int, columns: int) -> Stored:
    """Stores 8 bits a weight and a float32 scale for each block (fp8.py, blockwise_int8.py: weight_scale_inv)."""
    return Stored(name, 8, group=columns, scale_bytes=4, scale_rows=rows)


def channels(name: str) -> Stored:
    """Stores 8 bits a weight and a float32 scale for each output (w8a8_int8.py, w8a8_fp8.py, fp8.py when it quantizes
    itself)."""
    return Stored(name, 8, group=WHOLE_ROW, scale_bytes=4)


def grouped(name: str, bits: float, group: int, zero_bits: float = 0.0) -> Stored:
    """Stores packed integers with a 16 bit scale for each group (awq.py, gptq.py, moe_wna16.py)."""
    return Stored(name, bits, group=group, scale_bytes=2, zero_bits=zero_bits)


FP8_TENSOR = Stored("fp8", 8)
"""One scale a matrix: it does not count."""
NVFP4_LINEAR = Stored("nvfp4", 4, group=16, scale_bytes=1, scale_copies=2)
"""modelopt_quant.py keeps the scales as loaded and interleaved beside them."""
NVFP4_EXPERTS = Stored("nvfp4", 4, group=16, scale_bytes=1)
"""modelopt_quant.py drops the loaded scales of experts after interleaving them; from 0.5.14 on those of linear layers
too (alias_or_bind_derived_param)."""
MXFP8 = Stored("mxfp8", 8, group=32, scale_bytes=1)
"""8 bits with an 8 bit exponent for 32 weights."""
NF4 = Stored("nf4", 4, group=64, scale_bytes=4)
"""bitsandbytes without double quantization."""


def mxfp4(pad: tuple[int, int] = (1, 1)) -> Stored:
    """Stores 4 bits a weight with an 8 bit exponent for 32 weights (mxfp4.py), padded as the GPU's kernel needs it."""
    return Stored("mxfp4", 4, group=32, scale_bytes=1, pad=pad)
