"""Starts and stops several servers and their router as one."""
