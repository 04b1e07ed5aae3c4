"""Runs a release's argument code in a child process, under ``python -I -S``, its world answered from facts.

Nothing here imports the rest of this package, and nothing but the standard library until the release itself. JSON
lines in and out; ``main`` describes them. Stand-ins are no sandbox; ``sandbox`` is. Read main.py first, then case.py
and questions.py, which refuses what nothing answers."""
