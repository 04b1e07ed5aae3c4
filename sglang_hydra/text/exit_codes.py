"""The exit codes of the program, each with what it means. It imports nothing: ``start`` reads it before all else."""

INVALID, MACHINE, SERVER_FAILED, UNKNOWN_FAILURE, STILL_LOADING, INTERRUPTED = 2, 3, 4, 5, 6, 130

FAIL_ON = ("warning", "unknown")
"""What ``--fail-on`` adds to errors: warnings, and a verdict that is not known."""

JUDGES = ("serve", "plan", "check", "export", "fit")
"""The verbs that end with INVALID where they show an error, SGLang's or ours; with ``--upstream-only`` only for
SGLang's, with ``--fail-on`` for more."""

COMPARES = ("diff", "plan -m", "fit -m", "recipes", "audit", "explain")
"""What shows several things or explains one: 0 once it is printed, whatever the verdicts are. ``diff --exit-code`` ends
with INVALID where the sides differ."""

MEANINGS = {
    0: "done",
    1: "a bug in this package",
    INVALID: "the configuration has an error, SGLang's or ours; nothing was started",
    MACHINE: "it is valid, but this machine cannot serve it: no such GPU, or no engine",
    SERVER_FAILED: "the server did not start, or died",
    UNKNOWN_FAILURE: "`diagnose`: the failure is of no known class, or the log is another engine's",
    STILL_LOADING: "`diagnose`: the server still starts, and nothing has failed",
    INTERRUPTED: "interrupted",
}
