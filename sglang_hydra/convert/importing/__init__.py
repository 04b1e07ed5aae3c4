"""Reads foreign launch commands, and writes them as experiments of this package.

What goes here: finding the servers that a text starts (a command, a script, a manifest, a recipe, a log), the nearest
preset, the fewest overrides. What does not: SGLang's own flags (``arguments.reading``) and resolved values. Read
importer.py first, then sources.py."""
