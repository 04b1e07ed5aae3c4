"""Holds what every package uses: findings, errors, styled lines, YAML and JSON text, whole files, user settings.

Code here knows nothing of SGLang and imports no other package of ours. Read findings.py first: ``Finding`` is the one
record of a message."""
