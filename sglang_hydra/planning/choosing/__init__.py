"""Helps to choose a plan: each model on each GPU class, the performance of a plan, the layouts for a load.

Read catalog.py first, then suggest.py. Judging and ranking plans goes here. Making one does not (``making``), nor do
the numbers themselves (``sglang_hydra.fit``)."""
