"""Sends a load to a server, measures it, and judges whether the measurement counts.

``settings`` -> ``prompts`` -> ``client`` -> ``measures`` -> ``validity``; ``point`` joins them for one point."""
