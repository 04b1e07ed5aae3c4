"""Runs servers as processes on this machine: their start, life, output and end.

What goes here: launchers and the small programs that they run as children. What does not: the command line of a server
(``planning.engines``). ``guard.py`` and ``child_*.py`` are run by path, some by another interpreter, and import only
the standard library."""
