"""What `record_conformance.py` is made of: two sides that share no imports.

The parent side (`environment`, `cases`) runs in the maintainer's interpreter. The child side (`child`, `tables`, and
`sglang_hydra/authority/inside`) runs in an environment that holds the released SGLang and nothing else, so it uses the
standard library only.
"""
