"""Reads a model's structure from its config.json: layers, tensors, storage formats.

Facts about model classes and formats go here, as data where possible; sizes on a GPU go to ``fit``. Read decoder.py
first (the structure of a model), then understanding.py, which fills it in."""
