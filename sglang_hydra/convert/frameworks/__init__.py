"""Frameworks that start SGLang themselves: what each calls its arguments, which node has them, what it sets itself.

What goes here: facts about frameworks as data (each with its source), and the one reader and the one
writer that go by them. What does not: what a framework makes of its whole tree when it runs (``convert.verl``), and
anything that imports a framework.

adapters                 the table, the servers of a tree, the node for a plan
"""
