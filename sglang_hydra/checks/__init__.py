"""The refusals: rules that never write, one file a concern, named like the fields they look at.

What writes belongs in ``sglang_hydra.rules``, whose ORDER says where each check of SGLang's stands. ``launchable``
lists the checks that are ours alone.
"""

from __future__ import annotations

# First: ``rules`` imports the modules of this package for its ORDER, and each of them something of ``rules``.
import sglang_hydra.rules  # noqa: F401
