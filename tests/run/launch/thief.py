"""A stranger on a port: answers every GET as it was told to, and says when it listens.

python thief.py PORT STATUS [INFO.json] [reuse] [host=ADDRESS]
"""

from __future__ import annotations

import http.server
import socket
import sys


def main(port: str, status: str, *words: str) -> None:
    info = next((word for word in words if word.endswith(".json")), None)
    host = next((word.partition("=")[2] for word in words if word.startswith("host=")), "127.0.0.1")

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = b"{}"
            if info is not None and "server_info" in self.path:
                with open(info, "rb") as file:
                    content = file.read()
            self.send_response(int(status))
            if status.startswith("3"):
                self.send_header("Location", "http://127.0.0.1:1/health")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            return

    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def server_bind(self) -> None:
            if "reuse" in words:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            super().server_bind()

    server = Server((host, int(port)), Page)
    print("listening", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
