"""Where a server runs: processes on this machine, their life and their output.

What goes here: launchers and the small programs that they run as children. What does not: what the command line
says (``planning.engines``). ``guard.py`` and ``child_*.py`` are run by path, some by another interpreter, and
import the standard library only.
"""
