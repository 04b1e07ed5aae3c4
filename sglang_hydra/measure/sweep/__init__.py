"""Runs sweeps: plans all points before anything starts, and starts each distinct server once.

Planning: ``grid`` (common and varying parts, from ``axes``) -> ``judging`` (refused points, with ``where``) ->
``planning`` (merges equal points, groups them by server) -> ``table`` (shows them) and ``points`` (input of the
runner). ``setters`` names who set a key. ``hydra_sweeps`` serves Hydra's launchers and other apps' multiruns.

Running: ``runner`` works in this process, ``launching`` with a launcher's jobs; ``server_points`` and ``serving``
measure the points of one server (``job``). ``store``, ``files`` and ``claims`` are the folder; ``progress`` shows the
state.

Searching: ``search`` tries values along one key. ``runner`` refuses sweeps that cannot run or be searched."""
