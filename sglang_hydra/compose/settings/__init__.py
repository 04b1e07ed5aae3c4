"""The settings of our own configuration nodes, one typed node a file."""
