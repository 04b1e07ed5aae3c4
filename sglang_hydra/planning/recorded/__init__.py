"""Reads files that hold a configuration: saved plans, locks, experiments.

Read saved.py first. Reading them back and comparing a lock with today go here. Files of other tools do not
(``sglang_hydra.convert``)."""
