"""Computes whether a server fits into its GPUs' memory, its use of the memory, and changes that would make it fit.

The memory model of SGLang's releases goes here, as pure functions of resolved arguments and facts.
Rendering, reading files other than a checkpoint's, and starting or importing an engine do not.

    roofline_of(values, gpu, model)             -> Roofline: the terms of the hardware's limit
    fit(values, gpu, model)                     -> Fit: parts per GPU, KV tokens, working fractions, the verdict
    remedies(server, gpu, found, verify)        -> the smallest changes with which it fits, each planned
    read_checkpoint(folder)                     -> CheckpointSize: the size of a checkpoint by its files
    logged_pool(values, gpu, model, ...)        -> KV tokens from a server's logged free memory

sizing, verdict, result, remedy           the memory of one GPU, its verdict, its record, its remedies
weights, checkpoint                       bytes on each GPU, as PyTorch allocates them; a checkpoint's files
kv, compressed                            the KV cache, linear attention, DeepSeek-V4's pools
overheads                                 the rest on the GPU; each release's pools
roofline, roofline_terms                  the hardware's limit: its formulas and their terms
forecast, forecast_terms                  the performance of a server, and its physical terms
host, colocate                            the memory of the node; a trainer on the same GPUs
forecast_server, forecast_own             a server's numbers for a forecast; a user's own measurements"""
