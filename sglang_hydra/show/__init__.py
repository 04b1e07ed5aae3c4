"""Shows plans, values and findings to people. Decides nothing.

One file for each screen or record, made from a finished plan, goes here. Computing the shown values does not. Read
plan.py first."""
