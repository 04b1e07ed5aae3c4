"""What a plan knows of the world: the GPUs of a node and the model, each fact with where it comes from.

What goes here: reading facts, from presets, files, this machine or the hub. What does not: what follows from them,
which is for rules, checks and the fit. What cannot be known stays unknown; nothing is guessed.

gpu, model, config_view                   the facts as rules read them
declared, presets, drafts, defaults       from presets and composed nodes
gguf, weights                             from a model's own files
probe                                     the door to this machine and to the hub; behind it ``nvidia``,
                                          ``accelerators``, ``search``, ``tools``, ``visible`` and ``hub``
hardware, recognise, resolvers, once      ``gpu=auto``: which preset this machine is, asked once
installed                                 what an interpreter's environment has
"""
