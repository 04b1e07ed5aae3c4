"""Plans several servers on this machine that clients see as one: replicas, or prefill and decode, behind a router.

Read servers.py first. The GPUs and ports of each server, the agreement of their plans and the router's command go here.
A single server's plan (``planning.making``) and starting everything (``run.topology``) do not."""
