"""Sweeps: many points planned before anything starts, each distinct server started once, nothing lost.

Planning: ``settings`` (the node) -> ``axes`` (what varies) -> ``judging`` with ``where`` and ``values`` (what is left
out) and ``loads`` (what no server can take) -> ``planning`` (merged, ordered) -> ``table`` (shown) and ``points`` (what
the runner gets); ``who`` names whoever set a key. ``in_hydra`` is for Hydra's launchers and for other apps' multiruns.
Running: ``runner``, ``serving``, ``store``, ``claims``. Searching: ``search`` along one key; ``tpe`` (what draws),
``tuning`` (what it is told) and ``tuning_run`` in all that varies.
"""
