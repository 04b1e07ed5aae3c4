"""The config groups, as ``pkg://sglang_hydra.conf`` in the ``hydra.searchpath`` of any Hydra app.

Hydra imports a package that it searches; the schema, which is no file, becomes known with it.
"""

from __future__ import annotations

from sglang_hydra.compose.schema import register

register()
