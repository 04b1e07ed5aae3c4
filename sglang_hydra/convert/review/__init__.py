"""Implements ``check`` for a change: compares launch files with the base revision, and describes it as a comment.

What goes here: comparing and describing two states of a repo. What does not: judging one file (``check``) and comparing
two plans (``diff``)."""
