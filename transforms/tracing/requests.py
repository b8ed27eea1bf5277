"""Spans of requests between processes, of which one in :data:`ONE_OF` is kept.

Both ends of a connection number its requests alike. So both choose the same ones, and the end that answers knows the span of the end that asks, though
nothing is sent for it.
"""

from __future__ import annotations

import hashlib
import struct
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from transforms.tracing.spans import Place, Span, Tracer, current_tracer, span_around

#: A prime: steps repeat the same few requests, and each kind of them must come up.
ONE_OF = 251
_NUMBERS = struct.Struct("<QQ")
_OFF = nullcontext()


def is_kept(connection: int, number: int) -> bool:
    """Whether a request has spans. Pure."""
    return (connection + number) % ONE_OF == 0


def request_span(connection: int, number: int) -> str:
    """The span of the end that asks. Pure."""
    return hashlib.blake2b(_NUMBERS.pack(connection, number), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class AskedRequest:
    """A request that has spans, from when it is sent until :meth:`end`."""

    tracer: Tracer
    place: Place
    parent: str
    kind: str
    began_ns: int

    def end(self) -> None:
        """The answer is here."""
        attributes = {"kind": self.kind}
        self.tracer.record(Span(self.place, self.parent, "request", self.began_ns, self.tracer.now_ns(), attributes))


def asked_request(connection: int, number: int, kind: str) -> AskedRequest | None:
    """A request that is about to be sent, in the span of the thread; None for one without spans."""
    tracer = current_tracer()
    if tracer is None or not is_kept(connection, number):
        return None
    place = Place(tracer.own.trace, request_span(connection, number))
    return AskedRequest(tracer, place, span_around(tracer), kind, tracer.now_ns())


def answered_request(connection: int, number: int, kind: str) -> AbstractContextManager[None]:
    """The block that answers a request; nothing for one without spans.

    It is inside the span of the end that asks, if this process belongs to a trace; else inside that of the process.
    """
    tracer = current_tracer()
    if tracer is None or not is_kept(connection, number):
        return _OFF
    parent = request_span(connection, number) if tracer.has_parent else ""
    return tracer.begin("answer", {"kind": kind}, parent=parent)
