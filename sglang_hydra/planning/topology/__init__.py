"""Several servers on this machine that clients see as one: replicas, or prefill and decode servers, behind a router.

Read servers.py first. What goes here: which GPUs and ports each server gets, what their plans have to agree on, the
router's command. What does not: a single server's plan (``planning.making``), and starting everything
(``run.topology``).
"""
