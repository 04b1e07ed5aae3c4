"""From a composed configuration to a finished plan, and everything that reads only plans. Nothing is started here.

Read plan.py first, what all of it is about, then making/make.py, where one comes from. Each sub-room names its own.
"""
