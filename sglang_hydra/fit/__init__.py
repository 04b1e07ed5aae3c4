"""Computes whether a server fits into its GPUs' memory, where the memory goes, and what would make it fit.

What goes here: the memory model of SGLang's releases, as pure functions of resolved arguments and of facts.
What does not: rendering, reading files other than a checkpoint's, anything that starts or imports an engine.

    roofline_of(values, gpu, model)             -> Roofline: the terms of the hardware's limit
    fit(values, gpu, model)                     -> Fit: parts per GPU, KV tokens, the fractions that work, the verdict
    remedies(values, gpu, found, verify)        -> the smallest changes with which it fits, each planned
    read_checkpoint(folder)                     -> CheckpointSize: what the files say of their size
    logged_pool(values, gpu, model, ...)        -> KV tokens from a server's logged free memory

sizing, verdict, result, remedy           the memory of one GPU, what it means, its record, what would help
weights, checkpoint                       bytes on each GPU, as PyTorch has them; error bars; a checkpoint's files
kv, compressed                            the KV cache, linear attention, DeepSeek-V4's pools
overheads                                 the rest on the GPU; each release's pools
roofline, roofline_terms                  the hardware's limit: its formulas, and what they are made of
forecast, forecast_terms                  what a server delivers, and its physical terms
host, colocate                            the memory of the node; a trainer on the same GPUs
forecast_server, forecast_own             a server as a forecast knows it; a user's own measurements
"""
