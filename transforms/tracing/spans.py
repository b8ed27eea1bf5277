"""Spans, and the tracer that records those of this process. Without a tracer a span is nothing.

A span inside the block of another one, in the same thread, is its child; others are children of the process's own span.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from types import TracebackType

from transforms.errors import InputError

_TRACE_BYTES, _SPAN_BYTES = 16, 8
_PARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """A span as its children name it.

    Attributes:
        trace: 32 hexadecimal digits; equal for all spans of a trace.
        span: 16 hexadecimal digits.
    """

    trace: str
    span: str

    @classmethod
    def parse(cls, text: str) -> Place:
        """The place in a W3C ``traceparent``. Raises :class:`InputError`."""
        found = _PARENT.match(text)
        if found is None:
            raise InputError("a trace's parent must be a W3C traceparent", where="$TRACEPARENT", value=text[:100],
                             allowed="00-<32 hexadecimal digits>-<16 hexadecimal digits>-01")  # fmt: skip
        return cls(found[1], found[2])

    def __str__(self) -> str:
        return f"00-{self.trace}-{self.span}-01"


@dataclass(frozen=True, slots=True)
class Span:
    """What a process has done.

    Attributes:
        place: of the span.
        parent: the span around it; "" for the first of a trace.
        name: what was done, such as "lease".
        began_ns, ended_ns: epoch nanoseconds.
        attributes: what it was done with.
        error: the kind of the exception that ended it; "" without one.
    """

    place: Place
    parent: str
    name: str
    began_ns: int
    ended_ns: int
    attributes: Mapping[str, str | int | float] = field(default_factory=dict)
    error: str = ""


class Tracer:
    """Records the spans of a process.

    Args:
        record: is called with each span that has ended, in its thread.
        within: the span that the process belongs to; None: it begins a trace.
        clock_ns: epoch nanoseconds.
        draw: a random text of twice so many hexadecimal digits.
    """

    def __init__(
        self,
        record: Callable[[Span], None],
        *,
        within: Place | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
        draw: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self._record, self._clock_ns, self._draw = record, clock_ns, draw
        self._within = within
        self._own = Place(draw(_TRACE_BYTES) if within is None else within.trace, draw(_SPAN_BYTES))
        self._began_ns = clock_ns()

    @property
    def own(self) -> Place:
        """The process's own span, which is recorded by :meth:`end`."""
        return self._own

    @property
    def has_parent(self) -> bool:
        """Whether the process belongs to a trace that began elsewhere."""
        return self._within is not None

    def begin(self, name: str, attributes: Mapping[str, str | int | float], *, parent: str = "") -> _Open:
        """A span, which ends with its block; ``parent``: the span around it, if that is in another process."""
        return _Open(self, name, attributes, parent)

    def end(self, name: str, attributes: Mapping[str, str | int | float]) -> None:
        """Record the process's own span."""
        parent = "" if self._within is None else self._within.span
        self._record(Span(self._own, parent, name, self._began_ns, self._clock_ns(), attributes))

    def now_ns(self) -> int:
        """The moment, by the tracer's clock."""
        return self._clock_ns()

    def child_place(self) -> Place:
        """A new span's place."""
        return Place(self._own.trace, self._draw(_SPAN_BYTES))

    def record(self, span: Span) -> None:
        """Record a span that has ended."""
        self._record(span)


class _Open:
    """A span that has begun."""

    __slots__ = ("_attributes", "_began_ns", "_name", "_parent", "_place", "_token", "_tracer")

    def __init__(self, tracer: Tracer, name: str, attributes: Mapping[str, str | int | float], parent: str) -> None:
        self._tracer, self._name, self._attributes, self._parent = tracer, name, attributes, parent
        self._place = tracer.child_place()

    def __enter__(self) -> None:
        self._parent = self._parent or span_around(self._tracer)
        self._token: Token[Place | None] = _CURRENT.set(self._place)
        self._began_ns = self._tracer.now_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended_ns = self._tracer.now_ns()
        _CURRENT.reset(self._token)
        failed = "" if kind is None else kind.__name__
        self._tracer.record(Span(self._place, self._parent, self._name, self._began_ns, ended_ns, self._attributes, failed))  # fmt: skip


_CURRENT: ContextVar[Place | None] = ContextVar("span", default=None)
_OFF = nullcontext()
_tracer: Tracer | None = None


def use_tracer(tracer: Tracer | None) -> None:
    """Record the spans of this process by a tracer from now on; None: no more."""
    global _tracer  # a process has one trace, as it has one log
    _tracer = tracer


def current_tracer() -> Tracer | None:
    """What records the spans of this process; None: nothing does."""
    return _tracer


def span_around(tracer: Tracer) -> str:
    """The span that this thread is in, else the process's own."""
    return (_CURRENT.get() or tracer.own).span


def span(name: str, **attributes: str | int | float) -> AbstractContextManager[None]:
    """A block that is a span of this process; without a tracer it is nothing."""
    return _OFF if _tracer is None else _tracer.begin(name, attributes)
