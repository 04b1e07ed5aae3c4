"""What runs in the child process, under ``python -I -S``: a release's argument code, its world answered from facts.

Nothing here imports the rest of this package, and nothing but the standard library until the release itself. JSON
lines in and out; ``main`` describes them. Stand-ins are no sandbox; ``sandbox`` is.

questions                refusing what nothing answers, by name
inert                    names and modules that can be mentioned and answer nothing
packages                 which packages are real, inert or absent, and their versions
machine                  the accelerator: torch, the vendors' tools, the operating system
files                    the files that the release can see, and those of the models
libraries                transformers without torch, and small libraries that answer
source                   what a release's source says about a line, by ast
reading                  values for an explanation: operands in a frame, masked and cut
why                      each change of a value, with its place and conditions, where the case asks for it
sealed                   the files of unpacked wheels, each compared with its hash, and byte code made of them
sandbox                  what the system keeps this process from
case                     one command line in, the resolved values out
main                     the loop
"""
