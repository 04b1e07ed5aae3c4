"""Plans to and from other forms: exports, imports, upgrades, reviews of changes, verl."""
