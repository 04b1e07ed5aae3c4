"""Explains why a server failed, from its exit code and its log. Accepts the log of any server.

``diagnosis.diagnose(lines, exit_code)`` returns a ``Diagnosis``. ``classes/`` declares the failures, one entry for each
class; ``reader`` reads a log of any size once, ``verdict`` chooses the deciding line, and ``remedy`` plans changes.
Nothing here starts, stops or contacts a server."""
