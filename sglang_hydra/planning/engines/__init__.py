"""Describes the servers that can run a plan: one file for each engine, found by its ENGINE.

A server's needs go here: its command line, environment and machine. Starting and watching processes does not
(``sglang_hydra.run.launch``), nor does the meaning of arguments (``sglang_hydra.rules``)."""
