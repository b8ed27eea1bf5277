"""A small client of the Kubernetes API: reads and patches objects by HTTPS, as a pod with a service account."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from trainer.errors import ClusterError
from trainer.wire.flight.addresses import Address
from transforms.errors import InputError

#: Longer answers are refused, and longer texts of errors cut.
_MOST_BYTES = 16 << 20
_MOST_TEXT = 300
_MERGE_PATCH = "application/merge-patch+json"


class KubernetesApi:
    """The API server of a cluster. A connection serves one request, by no proxy, and no redirection is followed.

    Args:
        address: of the server.
        read_token: the token of the service account now; the cluster replaces it while a pod runs.
        trust: the certificates by which the server is verified.
        timeout_secs: of a request.
    """

    def __init__(
        self, address: Address, *, read_token: Callable[[], str], trust: ssl.SSLContext, timeout_secs: float = 10.0
    ) -> None:
        self._address, self._read_token, self._trust, self._timeout_secs = address, read_token, trust, timeout_secs

    @classmethod
    def of_service_account(cls, address: Address, folder: Path, *, timeout_secs: float = 10.0) -> KubernetesApi:
        """The API for a service account, whose ``token`` and ``ca.crt`` a pod has in ``folder``. Raises :class:`InputError`."""
        token, authority = folder / "token", folder / "ca.crt"
        try:
            trust = ssl.create_default_context(cafile=str(authority))
            token.read_bytes()
        except (OSError, ssl.SSLError) as error:
            raise InputError("a pod must have the files of its service account", where=str(folder), value=str(error),
                             allowed="token and ca.crt", next_step="see automountServiceAccountToken of the pod") from None  # fmt: skip
        return cls(address, read_token=lambda: token.read_text("ascii").strip(), trust=trust, timeout_secs=timeout_secs)

    def get(self, path: str) -> Mapping[str, Any] | None:
        """The object or list at a path; None if there is none. Raises :class:`ClusterError`."""
        status, content = self._request("GET", path)
        if status == 404:
            return None
        found = _document(content)
        if status != 200 or not isinstance(found, Mapping):
            raise self._refused("GET", path, status, found)
        return found

    def patch(self, path: str, document: Mapping[str, Any]) -> None:
        """Merge a document into the object at a path. Raises :class:`ClusterError`."""
        status, content = self._request("PATCH", path, json.dumps(document, separators=(",", ":")).encode())
        if status != 200:
            raise self._refused("PATCH", path, status, _document(content))

    def _request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = HTTPSConnection(
            self._address.host, self._address.port, timeout=self._timeout_secs, context=self._trust
        )
        try:
            headers = {"Authorization": f"Bearer {self._read_token()}", "Accept": "application/json"}
            if body is not None:
                headers["Content-Type"] = _MERGE_PATCH
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read(_MOST_BYTES + 1)
        except (OSError, HTTPException, ValueError) as error:
            raise ClusterError("the API of the cluster did not answer", where=f"{method} {self._address}{path}",
                               value=f"{type(error).__name__}: {error}"[:_MOST_TEXT]) from None  # fmt: skip
        finally:
            connection.close()
        if len(content) > _MOST_BYTES:
            raise ClusterError("an answer of the cluster's API must be short", where=f"{method} {path}",
                               allowed=f"at most {_MOST_BYTES:,} bytes")  # fmt: skip
        return response.status, content

    def _refused(self, method: str, path: str, status: int, found: object) -> ClusterError:
        message = found.get("message") if isinstance(found, Mapping) else None
        text = message if isinstance(message, str) else "no message"
        return ClusterError("the API of the cluster must allow a request", where=f"{method} {path}",
                            value=f"{status}: {text}"[:_MOST_TEXT],
                            next_step="kubectl auth can-i tells what the service account may do")  # fmt: skip


def member_of(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object in a document of the API; empty if it has none."""
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}


def _document(content: bytes) -> object:
    """The JSON document of an answer; None for other bytes."""
    try:
        found: object = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found
