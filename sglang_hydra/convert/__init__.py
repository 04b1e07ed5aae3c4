"""Converts plans to and from other forms: exports, imports, upgrades, reviews of changes, frameworks.

What goes here: one sub-package per form. What does not: making plans (``planning``) and starting servers (``run``).
Each sub-package says which file to read first."""
