"""Writes a plan as a script or manifest that runs without this package.

What goes here: one file per format, each with an ``export(job)``, and their shared parts (words, images, the fabric).
What does not: starting anything, and SGLang's command line (``arguments.rendering``, ``planning.engines``)."""
