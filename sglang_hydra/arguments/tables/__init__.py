"""What each release of SGLang has: arguments, old flags, environment variables, pages, commands, model classes.

What goes here: data read from the released wheels by tools/read_releases.py, and questions to it. What does not: what
a release makes of its arguments (``sglang_hydra.releases``).

order                    which of two releases is the later one
table                    every release as it was, and what each changed
values                   whether a value fits an argument, and how its flag says it
successors               what took the place of an argument that is gone
architectures            which model classes a release has
"""
