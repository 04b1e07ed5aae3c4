"""Describes frameworks that start SGLang themselves: their names for arguments, their config nodes, their own settings.

What goes here: facts about frameworks as data (each with its source), and the one reader and the one writer that use
them. What does not: how a framework processes its whole tree at run time (``convert.verl``), and anything that imports
a framework.

adapters                 the table, the servers of a tree, the node for a plan"""
