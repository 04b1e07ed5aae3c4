"""SGLang's own word on a plan: its argument code, asked in a child process.

What goes here: asking (``ask``), and holding the answer against the plan (``verdict``). What does not: anything that
SGLang decides: its own code knows that, and ``sglang_hydra.upstream`` runs it.

    check --against installed          the SGLang of engine.python, or of this environment
    check --against VENV               that of another environment, or of an interpreter
    check --against 0.5.23             the wheel of that release, with no environment at all
"""
