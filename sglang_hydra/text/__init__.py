"""Holds what every package uses: findings, errors, styled lines, YAML and JSON text, whole files.

What goes here: code that knows nothing of SGLang and imports no other package of ours. Read findings.py first, the one
record of a message.
"""
