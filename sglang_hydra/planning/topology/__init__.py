"""Several servers on this machine that clients see as one: replicas, or prefill and decode servers, behind a router.

What goes here: which GPUs and ports each server gets, what their plans have to agree on, the router's command, and
running all of it. What does not: a single server's plan (``app.make_plan``) and its process (``launch.local``).
"""
