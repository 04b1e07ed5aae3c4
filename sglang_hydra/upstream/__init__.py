"""SGLang's own argument code, run sealed: a release's wheel, no torch, no GPU, every question answered from facts.

What goes here: the wheels (which there are, fetching them, where they lie), the child process that runs one, and its
answers. What does not: how a plan is put to a release, and what is made of its values (``sglang_hydra.planning``).

records                  what is known of each release: its wheel, the libraries that it needs (releases.json)
wheels                   the cache of unpacked wheels: fetch, list, remove
process                  a child process that answers cases, ended with its parent
answers                  answers that were given before
environment              where an environment has a release and its libraries
reasons                  each change that a release made: its place, its conditions, quoted from the wheel
release                  the front door: the values of a release for cases
child                    what runs in the child process: the standard library and the wheels, nothing of this package
"""
