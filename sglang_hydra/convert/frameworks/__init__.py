"""Describes frameworks that start SGLang themselves: their names for arguments, their config nodes, their own settings.

What goes here: facts about frameworks as data (each with its source), and the writer that uses them. What does not: the
reader of their trees (``convert.importing``), how a framework processes its whole tree at run time (``convert.verl``),
and anything that imports a framework."""
