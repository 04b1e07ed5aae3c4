"""Runs the command line: one file a verb, found by the verb's name. No other package imports this one.

What goes here: reading the words of a verb, calling what does the work, choosing the exit code. What does not: the work
itself, and how a result looks (``show``). Read main.py first, then plan.py, a typical verb.
"""
