"""Knows SGLang's arguments in every release: which there are, how words are read and written, and what they mean.

What goes here: the fields of 0.5.2 (``fields``), the tables of all releases (``tables``), the command line.
What does not: the values that a release gives them (``sglang_hydra.releases``).
"""
