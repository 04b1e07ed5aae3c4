"""Reports the results of sweeps: read from their folders, compared, and shown in the terminal, as CSV and as one HTML
file."""
