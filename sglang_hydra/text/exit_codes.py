"""The exit codes of the program, each with what it means. It imports nothing: ``start`` reads it before all else."""

INVALID, MACHINE, SERVER_FAILED, UNKNOWN_FAILURE, INTERRUPTED = 2, 3, 4, 5, 130

MEANINGS = {
    0: "done",
    1: "a bug in this package",
    INVALID: "the configuration is invalid; nothing was started",
    MACHINE: "it is valid, but this machine cannot serve it: no such GPU, or no engine",
    SERVER_FAILED: "the server did not start, or died",
    UNKNOWN_FAILURE: "`diagnose`: the failure is of no known class",
    INTERRUPTED: "interrupted",
}
