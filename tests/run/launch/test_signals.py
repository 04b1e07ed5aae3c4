"""A signal that ends a server is answered, wherever the process was when it came."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

from sglang_hydra.run.launch.signals import stopping_on_signals, wait_for_end

_LONG_S = 60


def test_a_signal_that_does_not_wake_the_wait_is_answered() -> None:
    """Another thread takes the signal: the system's wait goes on, as with a signal that comes just before it."""
    with subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({_LONG_S})"]) as process:

        def signal_beside() -> None:
            time.sleep(0.3)
            signal.pthread_kill(threading.get_ident(), signal.SIGHUP)

        begun = time.monotonic()
        with stopping_on_signals(process.terminate, loud=False) as received:
            threading.Thread(target=signal_beside).start()
            code = wait_for_end(process)
        assert (code, received) == (-signal.SIGTERM, [signal.SIGHUP])
        assert time.monotonic() - begun < _LONG_S / 2
