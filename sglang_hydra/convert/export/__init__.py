"""A plan as a script or manifest that runs it without this package.

What goes here: one file a format, each with an ``export(job)``, and what they share (words, images, the fabric). What
does not: starting anything, and what SGLang's command line says (``arguments.rendering``, ``planning.engines``).
"""
