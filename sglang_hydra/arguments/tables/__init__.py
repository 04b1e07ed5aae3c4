"""Describes each release of SGLang: arguments, old flags, environment variables, pages, commands, model classes.

Data that tools/read_releases.py reads from the released wheels, and queries on it, go here. The values that a release
resolves do not: they are in ``sglang_hydra.releases``.

order                    compares two releases
table                    every release with its changes, and the model classes of each
successors               the replacements of removed arguments"""
