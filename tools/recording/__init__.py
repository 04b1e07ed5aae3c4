"""What `record_conformance.py` is made of: two sides that share no imports.

The parent side (`environment`, `cases`, `asked_with_torch`) runs in the maintainer's interpreter. The child side runs
in an environment that holds a released SGLang, and uses the standard library only: `child` with `tables`, `outcome`,
`released`, `world` and `inert` needs nothing but the package; `with_torch` needs all that the release requires.
"""
