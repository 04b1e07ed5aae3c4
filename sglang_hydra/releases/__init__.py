"""What changed between the releases of SGLang: arguments, environment variables, pages, commands, needs.

What goes here: the table (``table.json``, read from the released wheels by tools/read_releases.py) and questions to it.
What does not: the rules of any release; those of 0.5.2 are in ``sglang_hydra.rules``, and what a later one resolves to
only its own code says (``sglang_hydra.planning.upstream``).

order                    which of two releases is the later one
table                    the table: every release as it was, and what each changed
defaults                 a default that a later release changed
successors               what took the place of an argument that is gone
translate, rendering     an intent for another release: the flags to type, and what of it is refused
extra                    arguments that only a later release has, typed by its table
"""
