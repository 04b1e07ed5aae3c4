"""Compares two tables of values: two plans, a plan and a running server, a plan and its record.

Read difference.py first. Differences and their reasons go here; showing them does not (``sglang_hydra.show``)."""
