"""The load: what is sent to a server, what is measured, and whether the measurement counts.

``settings`` -> ``prompts`` -> ``client`` -> ``measures`` -> ``validity``, put together for one point by ``point``.
"""
