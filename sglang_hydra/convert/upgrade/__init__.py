"""From one release of SGLang to another: what breaks, what is renamed, what moves, and the new command.

What goes here: holding one configuration against two releases of the table. What does not: the table and its
questions (``releases``), reading what others wrote (``convert.importing``).

releases                 which releases are meant, and what changed between them beside the arguments
inputs                   what was given: overrides, a recipe, a plan, an experiment, a launch command
steps                    the arguments and variables, one by one
upgraded                 everything for one server: the plan for the new release, and the resolved values that move
content                  the new file
screen                   for people and for programs
"""
