"""Reads a model's structure from its config.json: layers, tensors, storage formats.

What goes here: facts about model classes and formats, as data where possible. What does not: sizes on a GPU (``fit``).
Read decoder.py first, what a model is, then understanding.py, which fills it in.
"""
