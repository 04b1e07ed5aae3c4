"""From a composed configuration to a finished plan, and everything that reads only plans. Nothing is started here.

Read fields.py first, what a plan holds and who may read it, then making/make.py, where one comes from. Each
sub-package names its own.
"""
