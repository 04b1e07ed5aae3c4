"""Files that hold a configuration: plans that were saved, locks, experiments.

Read saved.py first. What goes here: reading them back and holding a lock against today. What does not: files of other
tools (``sglang_hydra.convert``).
"""
