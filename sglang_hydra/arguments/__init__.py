"""Describes SGLang's arguments in every release: their names, how command lines are read and written, their meanings.

The fields of 0.5.2 (``fields``), the tables of all releases (``tables``) and the command line go here. The values that
a release gives to arguments do not: they are in ``sglang_hydra.releases``."""
