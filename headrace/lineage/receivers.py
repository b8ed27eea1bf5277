"""Receivers of OpenLineage's events: an HTTP server such as Marquez or DataHub, or a file of JSON lines."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from warehouse.config import WarehouseConfig

#: Delivers one event; raises :class:`EventRefused`, or OSError where the receiver does not take it now.
Deliver = Callable[[str], None]

_PATH = "/api/v1/lineage"
_ANSWER_SECS = 5.0
_READ_BYTES = 500
#: Answers about one event; all others may be different later.
_REFUSALS = range(400, 500)
_LATER = frozenset({401, 403, 404, 407, 408, 425, 429})


class EventRefused(Exception):
    """The receiver does not accept an event, whenever it is sent."""


def receiver_of(config: WarehouseConfig) -> Deliver:
    """Delivers to the receiver of a warehouse."""
    if "://" in config.lineage:
        return HttpReceiver(lineage_url(config.lineage), config.lineage_token_file)
    return FileReceiver(config.lineage)


def lineage_url(text: str) -> str:
    """The URL that takes events, of that of a receiver."""
    return text.rstrip("/") + _PATH if urlsplit(text).path in ("", "/") else text


class HttpReceiver:
    """Sends each event by a POST of its JSON.

    Args:
        url: that takes events.
        token_file: has the token, which is read for each event, so it may be replaced; "" without one.
        answer_secs: how long an answer may take.
    """

    def __init__(self, url: str, token_file: str = "", *, answer_secs: float = _ANSWER_SECS) -> None:
        self._url, self._token_file, self._answer_secs = url, token_file, answer_secs

    def __call__(self, document: str) -> None:
        """Send an event. Raises :class:`EventRefused` and OSError."""
        headers = {"Content-Type": "application/json"}
        if self._token_file:
            headers["Authorization"] = f"Bearer {Path(self._token_file).read_text('utf-8').strip()}"
        request = urllib.request.Request(self._url, document.encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=self._answer_secs) as answer:
                answer.read(_READ_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in _REFUSALS and error.code not in _LATER:
                    raise EventRefused(f"{error}: {error.read(_READ_BYTES).decode('utf-8', 'replace')}") from None
                raise OSError(str(error)) from None


class FileReceiver:
    """Appends each event to a file as one line, in one write, so several processes may have one file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, document: str) -> None:
        """Append an event. Raises OSError."""
        line = document.encode() + b"\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if os.write(descriptor, line) != len(line):
                raise OSError(f"{self._path} took a part of a line")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
