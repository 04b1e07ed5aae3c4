"""Sweeps: many points planned before anything starts, each distinct server started once, nothing lost.

Planning: ``settings`` (the node) -> ``axes`` (what varies) -> ``judging`` with ``where`` and ``values`` (what is left
out) -> ``planning`` (merged, ordered) -> ``table`` (shown) and ``points`` (what the runner gets). ``in_hydra`` is for
Hydra's launchers and for other apps' multiruns. Running: ``runner``, ``serving``, ``store``, ``claims``.
"""
