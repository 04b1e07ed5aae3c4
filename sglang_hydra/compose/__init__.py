"""Composes overrides, presets and files into one configuration, with the origin of each value. Resolves nothing.

What goes here: reading overrides and config files, the typed nodes (``settings``), Hydra's private API
(``hydra_internals``). What does not: the meaning of SGLang's arguments (``arguments``). Read composer.py first."""
