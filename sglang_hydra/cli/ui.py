"""``ui``: serves the site to this machine only and opens it. Planning happens in the browser."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import webbrowser
from collections.abc import Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from sglang_hydra.cli.answers import OWN_FOLDER, filled
from sglang_hydra.cli.file_argument import files_of, no_such_file
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.locations import SUFFIXES, file_of
from sglang_hydra.text.screen import text, write
from sglang_hydra.text.words import install_command

DISTRIBUTION = "sglang_hydra_ui"
"""The package of the extra ``ui``, which contains the site and no code."""
OWN_FILES = "own.json"
"""The site's file of presets and experiments: empty when built, the user's own here."""
_MOST_BYTES = 8 << 20


def run(invocation: Invocation) -> int:
    """Runs ``ui [FILE.yaml] [OVERRIDES] [--config-dir FOLDER]``: opens the plan, and serves until interrupted."""
    composer_of(invocation)  # refuses a folder that is not there
    typed = [request.text for request in files_of(invocation)]
    own = own_files(invocation.config_dirs, typed)
    words = [_on_page(request.text) if request.text in typed else request.text for request in invocation.requests]
    with PageServer(site_folder(), own) as server:
        address = server.address(filled({}, words))
        write([[text(f"The planner is at {address}")], [text("Only this machine reaches it. Ctrl-C ends it.", "dim")]])
        webbrowser.open(address)
        server.serve_forever()
    return 0


def site_folder() -> Path:
    """Returns the built site of the extra ``ui`` or of this checkout. Raises ConfigError without one."""
    spec = importlib.util.find_spec(DISTRIBUTION)
    installed = map(Path, (spec.submodule_search_locations or ()) if spec else ())
    built = Path(__file__).resolve().parents[2] / "build" / "site"
    for folder in (*installed, built):
        if (folder / "plan.html").is_file():
            return folder
    hint = f"make site, in a checkout; {install_command('ui')}, when its wheel is published"
    raise ConfigError.of("CLI037", "the site is not installed here", hint=hint)


def own_files(folders: Sequence[str], typed: Sequence[str] = ()) -> dict[str, str]:
    """Returns the text of the user's files by their path on the page: the presets in the folders of ``--config-dir``,
    of which the first wins, and the typed files. Raises ConfigError for a missing file, and for more than 8 MiB in
    all."""
    files: dict[str, Path] = {}
    for folder in map(Path, folders):
        for file in sorted(folder.rglob("*")):
            name = file.relative_to(folder).as_posix()
            if file.suffix in SUFFIXES and file.is_file() and not name.startswith("."):
                files.setdefault(f"{OWN_FOLDER}/{name}", file)
    for word in typed:
        if not os.path.isfile(file_of(word)):
            raise ConfigError(no_such_file(word))
        files[file_of(_on_page(word))] = Path(file_of(word))
    if sum(file.stat().st_size for file in files.values()) > _MOST_BYTES:
        message = f"{' '.join([*folders, *typed])}: more than {_MOST_BYTES >> 20} MiB of YAML and JSON"
        raise ConfigError.of("CLI037", message, hint="--config-dir FOLDER, a folder of presets alone")
    return {name: file.read_text(encoding="utf-8", errors="replace") for name, file in files.items()}


def _on_page(word: str) -> str:
    """Returns the path of a typed file on the page: as typed if it is in the working directory, else its name only."""
    path = Path(word)
    return path.name if path.is_absolute() or ".." in path.parts else path.as_posix()


class PageServer(ThreadingHTTPServer):
    """Serves a folder on a free port of 127.0.0.1, below a path that cannot be guessed: presets may be private."""

    daemon_threads = True

    def __init__(self, folder: Path, own: dict[str, str]) -> None:
        self.folder, self.own = folder, json.dumps(own).encode()
        self.token = secrets.token_urlsafe(16)
        super().__init__(("127.0.0.1", 0), _Handler)

    def address(self, form: dict[str, str]) -> str:
        """Returns the address of a form's plan."""
        page = f"plan.html#{urlencode({'p': json.dumps(form)})}" if form else "index.html"
        return f"http://127.0.0.1:{self.server_port}/{self.token}/{page}"


class _Handler(SimpleHTTPRequestHandler):
    """Answers GET and HEAD below the server's path, for its own host name only, so no other site can read it."""

    server: PageServer
    extensions_map = {
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def __init__(self, request: Any, client: Any, server: PageServer) -> None:
        super().__init__(request, client, server, directory=str(server.folder))

    def send_head(self) -> Any:
        prefix = f"/{self.server.token}/"
        if self.headers.get("Host") != f"127.0.0.1:{self.server.server_port}" or not self.path.startswith(prefix):
            self.send_error(404)
            return None
        self.path = self.path[len(prefix) - 1 :]
        if self.path.partition("?")[0] == f"/{OWN_FILES}":
            from io import BytesIO

            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(self.server.own)))
            self.end_headers()
            return BytesIO(self.server.own)
        return super().send_head()

    def list_directory(self, path: object) -> None:
        self.send_error(404)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header(
            "Content-Security-Policy",
            "frame-ancestors 'none'; form-action 'none'; connect-src 'self' https://huggingface.co",
        )
        super().end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Logs nothing."""
