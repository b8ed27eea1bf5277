"""The part of a cloud's metadata server that tells of preemption."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.processes import PATIENCE_SECS


class MetadataServer(ThreadingHTTPServer):
    """A metadata server: it answers FALSE until :meth:`preempt`, and waits for a change when asked to."""

    daemon_threads = True

    def __init__(self, port: int = 0, flavor: str = "Google") -> None:
        server = self
        self.asked: list[str] = []
        self.preempted = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                assert self.headers["Metadata-Flavor"] == "Google"
                if "wait_for_change=true&timeout_sec=60&last_etag=v%2F1" in self.path:
                    server.preempted.wait(PATIENCE_SECS)
                content = b"TRUE" if server.preempted.is_set() else b"FALSE"
                self.send_response(200)
                self.send_header("Metadata-Flavor", flavor)
                self.send_header("ETag", "v/1")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args: object) -> None:
                return

        super().__init__(("127.0.0.1", port), Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        self.shutdown()
        self.server_close()
