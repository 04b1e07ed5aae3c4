"""Measures servers: the load of one point (``bench``), sweeps over many points (``sweep``), their reports (``report``).

What goes here: sending load, judging measurements, the folder of a sweep. What does not: starting a server (``run``)
and planning one (``planning``). Read bench/point.py first."""
