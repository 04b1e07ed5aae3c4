"""Runs a server as one Slurm job: its nodes and GPUs, one rank per node, watched from the terminal that started it.

    settings ─► options ─► submit ─► the job: inside ─► srun ─► child_rank, one on each node
                              └─► follow: the queue, the log, the job's own record

What goes here: the requests to Slurm. What does not: the life of the server itself, which is the same as on one machine
(``run.launch.local``, run inside the job), and the distribution of ranks (``planning.passing.nodes``)."""
