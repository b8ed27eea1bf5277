"""The read-only part of Azure's Blob API over bytes in memory: what obstore asks for was compared with Azurite's answers.

No package that pip installs has a server of this API; Azurite is one of npm.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

ACCOUNT = "headracetests"
_DATE = "Sun, 01 Mar 2026 00:00:00 GMT"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    blobs: Mapping[str, bytes]

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        account, container, *names = unquote(parts.path).lstrip("/").split("/", 2)
        if not self.headers.get("Authorization", "").startswith(f"SharedKey {ACCOUNT}:") or account != ACCOUNT:
            return self._send(403, b"<Error><Code>AuthenticationFailed</Code></Error>")
        if container != "logs":
            return self._send(404, b"<Error><Code>ContainerNotFound</Code></Error>")
        if asked.get("comp") == "list":
            return self._send(200, self._listing(asked.get("prefix", "")))
        content = self.blobs.get(names[0] if names else "")
        if content is None:
            return self._send(404, b"<Error><Code>BlobNotFound</Code></Error>")
        wanted = self.headers.get("x-ms-range", self.headers.get("Range", ""))
        if not wanted:
            return self._send(200, content)
        first, last = (int(one) for one in wanted.removeprefix("bytes=").split("-"))
        last = min(last, len(content) - 1)
        self._send(206, content[first : last + 1], ("Content-Range", f"bytes {first}-{last}/{len(content)}"))

    do_HEAD = do_GET

    def _listing(self, prefix: str) -> bytes:
        blobs = "".join(
            f"<Blob><Name>{escape(name)}</Name><Properties><Last-Modified>{_DATE}</Last-Modified><Etag>0x1</Etag>"
            f"<Content-Length>{len(content)}</Content-Length><Content-Type>a/b</Content-Type></Properties></Blob>"
            for name, content in sorted(self.blobs.items()) if name.startswith(prefix)
        )  # fmt: skip
        return f'<?xml version="1.0"?><EnumerationResults><Blobs>{blobs}</Blobs><NextMarker/></EnumerationResults>'.encode()

    def _send(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("Content-Length", str(len(body))), ("Last-Modified", _DATE), ("ETag", '"0x1"'), ("x-ms-blob-type", "BlockBlob"), *headers):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def serving(blobs: Mapping[str, bytes]) -> Iterator[dict[str, str]]:
    """Serve the container ``logs``; the variables of the environment that reach it."""
    handler = type("Handler", (_Handler,), {"blobs": blobs})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": base64.b64encode(b"not a secret").decode(),
            "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{server.server_port}/{ACCOUNT}",
            "AZURE_STORAGE_ALLOW_HTTP": "true",
        }
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
