"""The settings of our own configuration nodes, typed: a file for each large node, and nodes.py, which has them all."""
