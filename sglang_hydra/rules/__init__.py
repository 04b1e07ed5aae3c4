"""Resolves arguments like SGLang 0.5.2, and refuses what it refuses.

Rules, one file for each concern, change arguments; ``checks`` refuse and warn; ``order`` lists both in SGLang's own
order and ``resolution`` runs them. A rule or a check is a pure function of arguments and facts: it logs nothing, reads
no environment and touches no machine."""
