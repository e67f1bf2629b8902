"""Serves the memory of a running PyTorch program over HTTP, for `ashlar view --attach`.

The paths and answers are those of the Go package view/live. PyTorch's own allocator is served as well as Ashlar's.
"""

from __future__ import annotations

import json
import pickle
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

PATH = "/debug/ashlar/"
NAME = "torch"  # of the only recording, which has all devices
_HOSTS = ("127.0.0.1", "localhost")


def serve(port: int = 0) -> str:
    """Serve the memory of this process on this machine, in a thread, until the process ends; return the address.

    Port 0 is any that is free. Call torch.cuda.memory._record_memory_history() before the first allocation, or the page
    shows the current state only. Every program on this machine can read the names of the functions in the stacks. A
    request stops the threads of the program that allocate for as long as torch.cuda.memory._snapshot() takes.
    """
    server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="ashlar live", daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


def _version(torch: Any) -> str:
    """A text that differs after an allocation or a free."""
    figures = []
    for device in range(torch.cuda.device_count()):
        stats = torch.cuda.memory_stats(device)
        figures += [stats.get(f"allocation.all.{key}", 0) for key in ("allocated", "freed")]
        figures.append(stats.get("reserved_bytes.all.current", 0))
    return " ".join(map(str, figures))


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of ashlar view."""

    def do_GET(self) -> None:
        import torch

        url = urlsplit(self.path)
        host = self.headers.get("Host", "").rpartition(":")[0]
        if host not in _HOSTS:  # a page of another site, by a name that leads to this machine
            self.send_error(403, "the host of the request is not this machine")
        elif url.path == PATH:
            text = json.dumps([{"name": NAME, "version": _version(torch)}])
            self._answer("application/json", text.encode())
        elif url.path == PATH + "snapshot":
            body = pickle.dumps(torch.cuda.memory._snapshot(), protocol=4)
            self._answer("application/octet-stream", body)
        else:
            self.send_error(404)

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """The program's output stays its own."""
