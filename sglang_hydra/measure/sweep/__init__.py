"""Sweeps: many points planned before anything starts, each distinct server started once, nothing lost.

Planning: ``settings`` (the node) -> ``grid`` (what all points share, and what varies: ``axes``, ``search_space``) ->
``judging`` with ``where`` and ``values`` (what is left out) and ``loads`` (what no server can take) -> ``planning``
(merged, ordered) -> ``table`` (shown) and ``points`` (what the runner gets); ``who`` names whoever set a key.
``in_hydra`` is for Hydra's launchers and for other apps' multiruns.

Running: ``runner`` here, ``launching`` and ``launcher_round`` with a launcher's jobs; ``serving`` is one server with
its points (``work``). The folder is ``store``, ``records``, ``files`` and ``claims``; ``progress`` tells how it goes.

Searching: ``search`` along one key, by the ``strategies``; in all that varies, ``tpe`` (what draws), ``tuning`` (what
it is told), ``tuning_plan`` (its first proposals, shown) and ``tuning_run`` (it runs). What cannot be run or searched
is refused by ``settings_checks`` and ``tuning_checks``.
"""
