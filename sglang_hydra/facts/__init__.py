"""Finds the facts of a plan: the GPUs of a node and the model, each with its source.

What goes here: reading facts, from presets, files, this machine or the hub. What does not: what follows from them,
which is for rules, checks and the fit. What cannot be known stays unknown; nothing is guessed.

gpu, model, config_view                   the facts as rules read them
declared, defaults                        from presets and composed nodes
stated_config, gguf, weights, tiny        from a model's files; those of ``model=tiny``
probe, hub, host                          the door to this machine and to the hub; the hub, the processor
nvml, accelerators                        the accelerators of this machine, how they are searched, the vendors' tools
visible_gpus, recognise, resolvers        which GPUs CUDA shows, which preset they are, ``${probe:...}`` in files
machine_cache, trust                      asked once for several plans; which programs planning may start
installed, environments                   what an interpreter's environment has
"""
