"""``check`` for a change: what it does to launch files, against the revision that it is based on, as a comment.

What belongs here is how two states of a repo are compared and described. Judging one file is ``check``'s,
comparing two plans ``diff``'s.
"""
