"""Measuring servers: the load of one point, sweeps of many points, reports of what they found."""
