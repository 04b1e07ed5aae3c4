"""What a plan passes on: SGLang's flags and variables, each node's launch, the network, Slurm's options.

Read passed.py first. What goes here: the plan in the words of what starts it. What does not: starting it
(``sglang_hydra.run``), and whole artifacts (``sglang_hydra.convert.export``).
"""
