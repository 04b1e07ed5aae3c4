"""The command line: one file a verb, found by the verb's name. No other package imports this one."""
