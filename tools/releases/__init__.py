"""What `read_releases.py` is made of: reading released wheels of SGLang as text and syntax, importing nothing of them.

`wheel` opens one, `values` says what an expression in its modules stands for, `arguments`, `surroundings` and `needs`
collect the facts of one release, `table` writes down how each release differs from the one before.
"""
