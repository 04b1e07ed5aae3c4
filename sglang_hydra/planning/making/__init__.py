"""How a plan is made: words are composed, a target is found, its release resolves, the fit sizes, remedies are tried.

Read make.py first, then composed.py, which is the story. What goes here: what every plan needs. What does not:
comparing plans (``comparing``), choosing between them (``choosing``), reading one back (``recorded``).
"""
