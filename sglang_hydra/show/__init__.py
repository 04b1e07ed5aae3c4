"""Shows plans, values and findings as people read them. Decides nothing.

What goes here: one file a screen or record, made from a finished plan. What does not: computing what is shown.
Read plan.py first.
"""
