"""Refusals and warnings: rules that never write, one file a concern, named like the arguments they look at.

``launchable`` lists the checks that are ours alone; ``sglang_hydra.rules.order`` has SGLang's own in their places.
"""
