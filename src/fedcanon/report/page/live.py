"""Serves a page that follows a run, for browsers on this machine."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedcanon.errors import FedcanonError
from fedcanon.files import explained
from fedcanon.report.page.html import Sites, content, page
from fedcanon.report.page.reading import read_run
from fedcanon.runs.folder import RunFolder

HOST = "127.0.0.1"
NAMES = {HOST, "localhost"}
"""Host names that a request may have; with others, a foreign website could read the run."""
PATIENCE = 2.0
"""An open page asks for news at least once in so many seconds."""

ReadSites = Callable[[Path], Sites | None]
"""Reads what is known of the clients of a deployment from the folder of its run."""


@contextmanager
def serving(path: str | Path, port: int = 0, sites: ReadSites | None = None) -> Iterator[str]:
    """Serve a page about a run, and give its address; only this machine can see it.

    At the end it waits until a page that is open has seen the last state of the run.

    Args:
        path: The folder of the run, which need not exist yet.
        port: Where to serve; 0 takes a free port.
        sites: Reads what a page about a deployment shows of its clients.

    Raises:
        FedcanonError: The port cannot be used.
    """
    with explained(f"cannot serve a page on port {port}"):
        server = _Server(Path(path), port, sites)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{HOST}:{server.server_port}"
        if time.monotonic() - server.asked < PATIENCE:
            time.sleep(PATIENCE)
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    """A server for one run; each request has a thread of its own."""

    daemon_threads = True

    def __init__(self, path: Path, port: int, sites: ReadSites | None = None) -> None:
        self.sites = sites
        self.path, self.page, self.asked = path, page(None).encode(), float("-inf")
        super().__init__((HOST, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing into the terminal of a run: a browser that goes away is no error."""

    def news(self) -> bytes:
        """What the page shows of the run, as JSON, or why it cannot be shown."""
        self.asked = time.monotonic()
        try:
            sites = None if self.sites is None else self.sites(self.path)
            found = content([read_run(RunFolder(self.path))], sites)
        except FedcanonError as error:
            gone = f"there is no run in {self.path}."
            found = {"problem": str(error) if self.path.is_dir() else gone}
        except Exception as error:  # without an answer the page would say that the command ended
            found = {"problem": f"this run cannot be shown ({type(error).__name__}: {error})."}
        return json.dumps(found).encode()


class _Handler(BaseHTTPRequestHandler):
    """Answers two addresses: the page, and its numbers."""

    server: _Server
    timeout = 10.0

    def do_GET(self) -> None:
        name = self.headers.get("Host", "").partition(":")[0]
        if name not in NAMES:
            self.send_error(HTTPStatus.FORBIDDEN)
        elif self.path == "/":
            self._send(self.server.page, "text/html; charset=utf-8")
        elif self.path == "/data.json":
            self._send(self.server.news(), "application/json")
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not printed into the terminal of a run."""
