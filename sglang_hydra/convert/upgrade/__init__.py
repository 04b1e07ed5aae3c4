"""Compares one configuration under two releases of SGLang: what breaks, is renamed or moves, and the new command.

What goes here: the steps from one release to another, and writing the new file. What does not: the table of releases
(``releases``), reading what others wrote (``convert.importing``). Read upgraded.py first, then steps.py.
"""
