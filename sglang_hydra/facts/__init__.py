"""Finds the facts of a plan: the GPUs of a node and the model, each with its source.

Reading facts goes here: from presets, files, this machine or the hub. Consequences of facts do not: they go to rules,
checks and the fit. Unknown facts stay unknown; nothing is guessed.

gpu, model, config_view                   the facts as rules read them
declared, defaults                        facts from presets and composed nodes
stated_config, gguf, weights, tiny        facts from a model's files; the checkpoint of ``model=tiny``
probe, hub, host                          the entry to machine and hub; the hub; processor and memory
nvml, accelerators                        the accelerators of this machine, by the vendors' tools
visible_gpus, recognise, resolvers        the GPUs that CUDA shows, their preset, ``${probe:...}`` in files
machine_cache, trust                      answers shared by several plans; the programs that planning may start
installed, environments                   the packages in an interpreter's environment"""
