"""Plans to choose from: what each model does on each GPU class, what a plan delivers, which layouts hold a load.

Read catalog.py first, then suggest.py. What goes here: judging and ranking of plans. What does not: making one
(``making``), and the numbers themselves (``sglang_hydra.fit``).
"""
