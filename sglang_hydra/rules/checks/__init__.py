"""Refuses and warns: rules that never write, one file for each concern, named like the arguments they check.

``launchable`` lists the checks that only this package makes; ``sglang_hydra.rules.order`` has SGLang's own in order."""
