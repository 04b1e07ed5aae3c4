"""Which release of SGLang the arguments and the rules of this package are those of."""

from __future__ import annotations

SPECIFIED_VERSION = "0.5.2"
