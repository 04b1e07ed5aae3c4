"""Reading launch commands that others wrote, and writing them as an experiment of this package.

What goes here: finding the servers that a text starts (a command, a script, a manifest, a recipe, a log), the nearest
preset, the fewest overrides. What does not: SGLang's own flags (``arguments.reading``), what the releases have
(``releases``), what anything resolves to (``rules.resolution``).

sources                  what kind of text it is, and the servers in it
syntax, expansion        a shell script: its words, and the value of each
shell, script            the variables that it sets, and the servers that it starts
embedded_commands        Markdown, Dockerfiles
manifests, mappings      Kubernetes and Compose; srtctl recipes and SGLang's own --config
hardware                 which GPU a text names
reading, flags           words to arguments, also those of later releases; one release for all servers
reduction                the nearest preset, and whether it is the same server
experiment               the YAML and the command
proof                    the exported flags against those of the source, read by argparse
importer                 everything, for one source
native                   the servers of a file as documents, for the verbs that plan
report                   the screen and the record
"""
