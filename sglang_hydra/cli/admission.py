"""``admission``: a ValidatingAdmissionWebhook that judges objects as ``check`` judges their manifests."""

from __future__ import annotations

import os
import ssl
import sys
import tempfile

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.compose.overrides import Request
from sglang_hydra.convert.admission.reviews import Judge
from sglang_hydra.convert.admission.server import Webhook
from sglang_hydra.text import user_settings as settings
from sglang_hydra.text.errors import ConfigError, MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import text, write
from sglang_hydra.text.words import program, short

_FLAGS = {"--port": "8443", "--host": "0.0.0.0", "--cert": "", "--key": ""}
"""The flags of this verb with their defaults."""


def run(invocation: Invocation) -> int:
    """Serves until interrupted. Raises ConfigError (CLI039) for a wrong port or word, MachineError for an unreadable
    certificate or a port in use."""
    given, overrides = _given(invocation)
    port = _port(given["--port"])
    if not (given["--cert"] and given["--key"]):
        hint = f"{program()} admission --cert tls.crt --key tls.key; docs/admission.md makes both"
        raise ConfigError.of("CLI039", "a webhook needs a certificate and its key", hint=hint)
    cert, key = os.path.abspath(given["--cert"]), os.path.abspath(given["--key"])
    settings.begin({**invocation.allowed, "fetch": ["false"]})
    composer = composer_of(invocation)
    composer.only_judges = True
    judge = Judge(composer, overrides)
    try:
        server = Webhook(given["--host"], port, cert, key, judge, _said)
    except (OSError, ssl.SSLError) as failure:
        message = f"the webhook cannot listen on port {port} with {short(cert)}: {failure.strerror or failure}"
        raise MachineError.of("CLI039", message, hint="--port N; --cert FILE --key FILE, in PEM") from None
    with tempfile.TemporaryDirectory(prefix="sglang-hydra-") as empty, server:
        os.chdir(empty)  # a path that a manifest names leads to nothing
        write([[text(f"Listening on port {server.server_address[1]}. Ctrl-C ends it.")]])
        sys.stdout.flush()
        server.judge_forever()
    return 0


def _given(invocation: Invocation) -> tuple[dict[str, str], list[Request]]:
    """Returns the flags of this verb, and the overrides. Raises ConfigError for any other word."""
    given, overrides, words = dict(_FLAGS), [], list(invocation.requests)
    bare = [word.text for word in words if f"--{word.text.partition('=')[0]}" in given]
    if bare:
        raise ConfigError(*map(_without_dashes, bare))
    while words:
        word = words.pop(0)
        flag, has_value, value = word.text.partition("=")
        if flag in given and (has_value or words):
            given[flag] = value if has_value else words.pop(0).text
        elif word.key is not None or ("=" in word.text and not word.text.startswith("-")):
            overrides.append(word)
        else:
            message = f"admission judges what a cluster sends, and takes no {short(word.text)}"
            hint = f"{program()} admission --port 8443 --cert tls.crt --key tls.key gpu=h100"
            raise ConfigError.of("CLI039", message, hint=hint)
    return given, overrides


def _without_dashes(word: str) -> Finding:
    name, _, value = word.partition("=")
    return Finding("error", "CLI039", f"{name} is a flag of admission", typed=(word,), fix=f"--{name} {value}")


def _said(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _port(stated: str) -> int:
    if stated.isascii() and stated.isdigit() and int(stated) < 65536:
        return int(stated)
    message = f"--port {short(stated)} is no port: 0 to 65535, and 0 takes any"
    raise ConfigError.of("CLI039", message, hint="--port 8443")
