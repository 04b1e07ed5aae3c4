"""Touches machines: starts and watches servers (``launch``, ``topology``), examines machines (``doctor``), explains
failed servers (``diagnose``).

What goes here: processes, ports, logs, Slurm. What does not: what a server is to run (``planning``). Read
launch/serve.py first."""
