"""Plans, values and findings as people read them. It renders and decides nothing."""
