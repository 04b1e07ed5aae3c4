"""Reads launch commands that others wrote, and writes them as an experiment of this package.

What goes here: finding the servers that a text starts (a command, a script, a manifest, a recipe, a log), the nearest
preset, the fewest overrides. What does not: SGLang's own flags (``arguments.reading``) and what anything resolves to.
Read importer.py first, then sources.py.
"""
