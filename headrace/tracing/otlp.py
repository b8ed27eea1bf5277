"""Sends spans by OTLP over HTTP, as JSON: to a collector of OpenTelemetry, Jaeger, Tempo or others.

Tracing never delays or ends the work: spans wait in a queue of limited length, and those that a collector does not take are dropped and counted.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from transforms.errors import InputError
from transforms.tracing.spans import Span

_LOG = logging.getLogger(__name__)
_PATH = "/v1/traces"
_MOST_WAITING, _MOST_SENT = 10_000, 500
_SEND_SECS, _ANSWER_SECS, _END_SECS = 2.0, 5.0, 5.0
_INTERNAL, _ERROR = 1, 2
#: Sends bytes to the URL; raises OSError.
Post = Callable[[str, bytes], None]


def traces_url(text: str) -> str:
    """The URL to which spans are sent, of that of a collector. Raises :class:`InputError`."""
    found = urlsplit(text)
    if found.scheme not in ("http", "https") or not found.hostname:
        raise InputError("--otlp must be the URL of a collector", where="--otlp", value=text[:200], allowed="such as http://127.0.0.1:4318")  # fmt: skip
    return text if found.path.rstrip("/").endswith(_PATH) else text.rstrip("/") + _PATH


def traces_document(spans: Sequence[Span], resource: Mapping[str, str]) -> dict[str, object]:
    """The JSON of spans of one process; ``resource``: what the process is."""
    scope = {"scope": {"name": "headrace"}, "spans": [_span(one) for one in spans]}
    return {"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}]}


def _span(one: Span) -> dict[str, object]:
    return {
        "traceId": one.place.trace,
        "spanId": one.place.span,
        **({"parentSpanId": one.parent} if one.parent else {}),
        "name": one.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(one.began_ns),
        "endTimeUnixNano": str(one.ended_ns),
        "attributes": _attributes(one.attributes),
        **({"status": {"code": _ERROR, "message": one.error}} if one.error else {}),
    }


def _attributes(values: Mapping[str, str | int | float]) -> list[dict[str, object]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: str | float) -> dict[str, object]:
    if isinstance(value, str):
        return {"stringValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"doubleValue": value}


def post(url: str, content: bytes) -> None:
    """Send JSON. Raises OSError for an address that does not answer, or refuses it."""
    request = urllib.request.Request(url, content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_ANSWER_SECS) as answer:
        answer.read()


class SpanExporter:
    """Sends spans in a thread, from the first one until :meth:`close`: before it, a process may fork.

    Args:
        url: of :func:`traces_url`.
        resource: what the process is, read when spans are sent.
        send: see :data:`Post`.

    Attributes:
        dropped: spans that were not sent.
    """

    def __init__(self, url: str, resource: Callable[[], Mapping[str, str]], *, send: Post = post) -> None:
        self._url, self._resource, self._send_bytes = url, resource, send
        self._waiting: queue.Queue[Span] = queue.Queue(_MOST_WAITING)
        self._ends, self._starting = threading.Event(), threading.Lock()
        self.dropped = 0
        self._thread: threading.Thread | None = None

    def record(self, span: Span) -> None:
        """Send a span later; any thread may call it."""
        try:
            self._waiting.put_nowait(span)
        except queue.Full:
            self.dropped += 1
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Send what waits, within some seconds."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join(_END_SECS)

    def _run(self) -> None:
        while not self._ends.wait(_SEND_SECS):
            self._send_all()
        self._send_all()

    def _send_all(self) -> None:
        while spans := self._taken():
            try:
                self._send_bytes(self._url, json.dumps(traces_document(spans, self._resource())).encode())
            except OSError as error:  # urllib's errors, too
                self.dropped += len(spans)
                _LOG.warning("%d spans were dropped: %s: %s", len(spans), self._url, error)
                return

    def _taken(self) -> list[Span]:
        found: list[Span] = []
        while len(found) < _MOST_SENT:
            try:
                found.append(self._waiting.get_nowait())
            except queue.Empty:
                break
        return found
