"""Answers for every SGLang release: its arguments, words and values. ``provider`` is the front door.

By our rules for 0.5.2; for the others by recorded answers, or by the release's own argument code, run sealed: its
wheel, no torch, no GPU, every question answered from facts.

provider                  one release: its fields, how it reads words, what it makes of an intent, its command line
resolving                 an answer as a Resolution, with what it changed; where there is none, the estimate
asking                    where an answer comes from: recorded, kept, the wheel, an installed copy, nowhere
case                      one server as a question to a release
reasons                   SGLang's words at the place of a change, and of an argument
records                   what is known of each release: its wheel, the libraries that it needs (releases.json)
recorded, answers         answers that ship with this package; answers that were given before
release, process          asks a release, or an environment's, for the values of cases; the child that answers
wheels, parts, fetching   the cache of unpacked wheels; fetching of them only what is read; when that is allowed
trusted                   releases that a user pins; wheels for a machine without network
adopting                  what is new in a pinned release: its table of arguments, read from its own wheel
refusals                  where a release refuses and what it asks first: recorded, or
reading_refusals          read from its wheel
child                     what runs in the child process: the standard library and the wheels, nothing of this package
"""
