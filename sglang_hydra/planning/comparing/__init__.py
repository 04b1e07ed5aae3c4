"""Two tables of values compared: two plans, a plan and a running server, a plan and its record.

Read difference.py first. What goes here: what differs, and why. What does not: showing it (``sglang_hydra.show``).
"""
