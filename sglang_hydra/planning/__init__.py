"""Makes a finished plan from a composed configuration, and works on plans. Starts nothing.

Read fields.py first (the fields of a plan and their readers), then making/make.py, which makes one. The docstring of
each sub-package describes it."""
