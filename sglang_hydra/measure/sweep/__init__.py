"""Sweeps: many points are planned before anything starts, and each distinct server is started once.

Planning: ``grid`` (what all points share and what varies, from ``axes``) -> ``judging`` (which points are refused,
with ``where``) -> ``planning`` (merges equal points, groups them by server) -> ``table`` (shows them) and ``points``
(what the runner gets). ``setters`` names who set a key. ``hydra_sweeps`` is for Hydra's launchers and for other apps'
multiruns.

Running: ``runner`` works in this process, ``launching`` with the jobs of a launcher; ``server_points`` and ``serving``
take the points of one server (``job``). ``store``, ``files`` and ``claims`` are the folder; ``progress``
shows how far it is.

Searching: ``search`` tries values along one key. ``runner`` refuses what cannot be run or searched.
"""
