"""Random reads of one object, each a request for a range of bytes.

``pyarrow.fs`` is not used: its reader of Google Cloud Storage also requests the whole object on opening, and some megabytes of
it arrive before the request is cancelled. Files of that size, as memo files often are, would be transferred twice.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

#: The least bytes of a request: footers and headers are read in small steps.
WINDOW_BYTES = 128 << 10

#: Called as ``fetch(start, end)``; returns exactly the bytes of the range ``[start, end)``.
Fetch = Callable[[int, int], bytes]
#: Called with ranges ``[start, end)``; returns the bytes of each, requested at the same time.
FetchMany = Callable[[Sequence[tuple[int, int]]], Sequence[bytes]]


class ObjectReader(io.RawIOBase):
    """An object of ``size_bytes`` as a seekable file that caches the last range. Not thread-safe."""

    def __init__(self, fetch: Fetch, size_bytes: int) -> None:
        super().__init__()
        self._fetch, self._size_bytes = fetch, size_bytes
        self._position = 0
        self._kept, self._kept_from = b"", 0
        self._ahead: dict[int, bytes] = {}

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Up to ``size`` bytes; all the rest for a negative size. Raises the errors of ``fetch``."""
        start = min(self._position, self._size_bytes)
        end = self._size_bytes if size is None or size < 0 else min(start + size, self._size_bytes)
        if start == end:
            return b""
        self._position = end
        for begin, held in self._ahead.items():
            if begin <= start and end <= begin + len(held):
                return held[start - begin : end - begin]
        if start < self._kept_from or end > self._kept_from + len(self._kept):
            first = min(start, max(0, self._size_bytes - WINDOW_BYTES))
            last = min(max(end, first + WINDOW_BYTES), self._size_bytes)
            self._kept, self._kept_from = self._fetch(first, last), first
        return self._kept[start - self._kept_from : end - self._kept_from]

    def hold(self, ranges: Iterable[tuple[int, int]], fetch_many: FetchMany) -> None:
        """Request ranges at the same time and keep their bytes, instead of those of an earlier call."""
        spans: list[tuple[int, int]] = []
        for start, end in sorted(ranges):
            if not 0 <= start < end <= self._size_bytes:
                continue
            if spans and start - spans[-1][1] <= WINDOW_BYTES:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((start, end))
        self._ahead = {}
        if spans:
            self._ahead = {span[0]: content for span, content in zip(spans, fetch_many(spans), strict=True)}


class ObjectFile(pa.PythonFile):  # type: ignore[misc]
    """An :class:`ObjectReader` for Arrow, which can request many ranges ahead of the reads.

    Arrow reads a Python file one range after the other: over a network each is a round trip.
    """

    _reader: ObjectReader
    _fetch_many: FetchMany

    @classmethod
    def over(cls, reader: ObjectReader, fetch_many: FetchMany) -> ObjectFile:
        """The file over ``reader``."""
        file = cls(reader, mode="r")  # Arrow's class takes its arguments before __init__ runs
        file._reader, file._fetch_many = reader, fetch_many
        return file

    def read_ahead(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Request these ranges at the same time; reads inside one of them need no further request."""
        self._reader.hold(ranges, self._fetch_many)
