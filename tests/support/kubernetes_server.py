"""A small API server of Kubernetes with objects in memory, behind TLS and a bearer token: it reads, lists and merges."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.certificates import Certificates, make_certificates
from tests.support.kubernetes_schemas import check_object
from trainer.wire.flight.addresses import Address

TOKEN = "token-of-the-service-account"


def completed(status: str = "True") -> dict[str, Any]:
    """The status of a JobSet that has completed, or has not."""
    condition = {"type": "Completed", "status": status, "reason": "AllJobsCompleted", "message": "jobset completed",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
    return {"conditions": [condition]}


@dataclass(frozen=True)
class Request:
    """A request that was answered."""

    method: str
    path: str
    content_type: str
    body: Any


@dataclass
class KubernetesServer:
    """A server.

    Attributes:
        address: where it answers.
        folder: the files of a service account, as a pod has them.
        objects: by path.
        requests: in order.
        fail_with: a status that all requests get; 0: none.
    """

    address: Address
    folder: Path
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    fail_with: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, path: str, document: Mapping[str, Any]) -> None:
        with self.lock:
            self.objects[path] = json.loads(json.dumps(document))

    def spec(self, path: str) -> dict[str, Any]:
        with self.lock:
            return dict(self.objects[path]["spec"])

    def patches(self) -> list[Request]:
        with self.lock:
            return [one for one in self.requests if one.method == "PATCH"]

    def answer(self, method: str, target: str, content_type: str, body: Any) -> tuple[int, Any]:
        with self.lock:
            self.requests.append(Request(method, unquote(target), content_type, body))
            if self.fail_with:
                return self.fail_with, {"kind": "Status", "message": "refused by the test", "code": self.fail_with}
            parts = urlsplit(target)
            if method == "GET" and parts.query:
                return 200, {"kind": "List", "items": self._matching(parts.path, parse_qs(parts.query))}
            path, is_scale = parts.path.removesuffix("/scale"), parts.path.endswith("/scale")
            found = self.objects.get(path)
            if found is None or (is_scale and found["kind"] != "StatefulSet"):
                return 404, {"kind": "Status", "message": f"{parts.path} not found", "code": 404}
            if method == "PATCH":
                if content_type != "application/merge-patch+json":
                    return 415, {"kind": "Status", "message": "unknown patch"}
                if is_scale and set(body) | set(body["spec"]) != {"spec", "replicas"}:
                    return 422, {"kind": "Status", "message": "a scale has a number of pods, and no more"}
                found = _merged(found, body)
                check_object(found)
                self.objects[path] = found
            return 200, _scale(found) if is_scale else found

    def _matching(self, folder: str, query: Mapping[str, list[str]]) -> list[Any]:
        (selector,) = query["labelSelector"]
        name, _, value = selector.partition("=")
        return [one for path, one in sorted(self.objects.items())
                if path.startswith(f"{folder}/") and one["metadata"].get("labels", {}).get(name) == value]  # fmt: skip


def _scale(found: Mapping[str, Any]) -> dict[str, Any]:
    """The subresource of an object with its number of pods."""
    metadata = {"name": found["metadata"]["name"], "namespace": found["metadata"]["namespace"]}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": found["spec"]["replicas"]}}  # fmt: skip


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _merged(found.get(key), value)
    return found


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(None)

    def do_PATCH(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: Any) -> None:
        state: KubernetesServer = self.server.state  # type: ignore[attr-defined]
        expected = f"Bearer {(state.folder / 'token').read_text().strip()}"
        if self.headers.get("Authorization") != expected:
            status, document = 401, {"kind": "Status", "message": "Unauthorized"}
        else:
            status, document = state.answer(self.command, self.path, self.headers.get("Content-Type", ""), body)
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def kubernetes_server(folder: Path) -> Iterator[KubernetesServer]:
    """A server, with the files of its service account in ``folder``."""
    certificates = make_service_account(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.state = state = KubernetesServer(Address("127.0.0.1", server.server_address[1]), folder)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


def make_service_account(folder: Path) -> Certificates:
    """Write a token, and the authority of the certificates of a server on this machine."""
    found = make_certificates(folder)
    found.authority.rename(folder / "ca.crt")
    (folder / "token").write_text(f"{TOKEN}\n")
    return replace(found, authority=folder / "ca.crt")
