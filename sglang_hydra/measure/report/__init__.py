"""Reports the results of sweeps: reads and compares their folders, for the terminal, CSV and one HTML file."""
