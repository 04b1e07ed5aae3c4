"""A server as one Slurm job: its nodes and GPUs, one rank on each node, watched from the terminal that asked for it.

    settings ─► options ─► submit ─► the job: inside ─► srun ─► child_rank, one on each node
                              └─► follow: the queue, the log, the job's own record

What goes here: the requests to Slurm. What does not: the life of the server itself, which is the same as on one
machine (``run.launch.local``, run inside the job), and how ranks are spread (``planning.passing.nodes``).
"""
