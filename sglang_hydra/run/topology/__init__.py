"""Several servers and their router started and stopped as one."""
