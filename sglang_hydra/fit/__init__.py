"""Does a server fit into its GPUs' memory, what is it spent on, and what would make it fit.

What goes here: the memory model of SGLang 0.5.2, as pure functions of resolved arguments, GPU facts and model facts.
What does not: rendering, reading files other than a checkpoint's, anything that starts or imports an engine.

    roofline_of(values, gpu, model)             -> Roofline: the terms of the hardware's limit
    fit(values, gpu, model)                     -> Fit: parts per GPU, KV tokens, the fractions that work, the verdict
    remedies(values, gpu, found, verify)        -> the smallest changes with which it fits, each planned
    read_checkpoint(folder)                     -> CheckpointSize: what the files say of their size
    logged_pool(values, gpu, model, ...)        -> KV tokens from a server's logged free memory

known, reading(_experts, _states, _extras), architectures, decoder   config.json -> Decoder: layers and sizes
quantization, scheme, formats, skips      config.json and arguments -> the format of each matrix
ranks, tensors, vision, weights           Decoder -> bytes on each GPU, allocator: what PyTorch makes of them
kv, overheads, draft                      the KV cache and everything else on the GPU
understanding, weighing, sizing, verdict  all of it together; result: the record of it
remedy, published                         what would make it fit; checkpoints of the same weights in other formats
roofline, roofline_terms                  the hardware's limit: its formulas, and what they are made of
checkpoint                                sizes from a checkpoint's own files
"""
