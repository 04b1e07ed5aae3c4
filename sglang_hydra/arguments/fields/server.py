"""The HTTP server: where it listens and what happens before it is ready."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class


@argument_class
class Server:
    """The HTTP server: where it listens and what happens before it is ready."""

    host: str = arg("127.0.0.1", "Address to listen on; 0.0.0.0 to be reached from other machines.")
    port: int = arg(30000, "TCP port to listen on; a second server on one machine needs another.")
    skip_server_warmup: bool = arg(
        False, "Report ready without sending a first request through the model; that request then waits for it."
    )
    warmups: str | None = arg(
        None,
        "Names of warm-up functions to run before the server is ready, separated by commas.",
        none="no further warm-up",
    )
    watchdog_timeout: float = arg(
        300,
        "Kill the server when one forward pass takes longer, so that it does not hang; raise it for slow first passes.",
        unit="seconds",
    )
