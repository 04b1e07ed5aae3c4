"""Runs the command line: one file per verb, named after it. No other package imports this one.

Here: reading the words of a verb, calling the code that does the work, choosing the exit code. Not here: the work
itself, and how a result looks (``show``). Read main.py first, then plan.py, a typical verb."""
