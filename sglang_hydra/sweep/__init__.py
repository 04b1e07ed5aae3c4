"""Sweeps: many points planned before anything starts, each distinct server started once, nothing lost.

``settings`` (the node) -> ``axes`` and ``grammar`` (what is varied) -> ``where`` (what is left out) -> ``planning``
(judged, merged, ordered) -> ``points`` (what the runner gets) -> ``table`` (what is shown).
"""
