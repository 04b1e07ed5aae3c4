"""The exit codes of the program with their meanings. It imports nothing, because ``start`` reads it first."""

INVALID, MACHINE, SERVER_FAILED, UNKNOWN_FAILURE, STILL_LOADING, INTERRUPTED = 2, 3, 4, 5, 6, 130

FAIL_ON = ("warning", "unknown")
"""The values of ``--fail-on``: fail also on warnings, or on an unknown verdict."""

JUDGES = ("serve", "plan", "check", "export", "fit")
"""The verbs that end with INVALID after an error, SGLang's or ours. ``--upstream-only`` counts only SGLang's errors;
``--fail-on`` adds more."""

COMPARES = ("diff", "plan -m", "fit -m", "recipes", "audit", "explain")
"""The commands that list several plans or explain one: they end with 0 once printed, whatever the verdicts are. ``diff
--exit-code`` ends with INVALID where the sides differ."""

MEANINGS = {
    0: "done",
    1: "a bug in this package",
    INVALID: "the configuration has an error, SGLang's or ours; nothing was started",
    MACHINE: "it is valid, but this machine cannot serve it: no such GPU, or no engine",
    SERVER_FAILED: "the server did not start, or died",
    UNKNOWN_FAILURE: "`diagnose`: no class of failures fits, or the log is another engine's",
    STILL_LOADING: "`diagnose`: the server still starts, and nothing has failed",
    INTERRUPTED: "interrupted",
}
