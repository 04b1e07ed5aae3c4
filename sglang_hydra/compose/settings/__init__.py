"""The typed settings of our configuration nodes: a file for each large node, and nodes.py with all."""
