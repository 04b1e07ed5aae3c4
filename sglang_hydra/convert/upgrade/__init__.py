"""Compares one configuration under two releases of SGLang: breaks, renames, moved values, and the new command.

What goes here: the steps between releases, and writing the new file. What does not: the table of releases
(``releases``), and reading foreign files (``convert.importing``). Read upgraded.py first, then steps.py."""
