"""The servers that can run a plan: one file an engine, found by its ENGINE.

What goes here: what a server needs on its command line, in its environment and from the machine. What does not:
starting and watching processes (``sglang_hydra.run.launch``), and what the arguments mean (``sglang_hydra.rules``).
"""
