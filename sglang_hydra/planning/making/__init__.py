"""Makes a plan: composes words, finds a target, resolves by its release, sizes the fit, tries remedies.

Read make.py first, then composed.py, which has all steps in order. Steps that every plan needs go here. Comparing plans
(``comparing``), choosing between them (``choosing``) and reading one back (``recorded``) do not."""
