"""Passes a plan on: SGLang's flags and variables, each node's launch, the network, Slurm's options.

Read passed.py first. Expressing a plan for its launcher goes here. Starting it (``sglang_hydra.run``) and whole
artifacts (``sglang_hydra.convert.export``) do not."""
