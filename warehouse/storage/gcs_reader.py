"""Random reads of one object, each a request for a range of bytes.

``pyarrow.fs`` is not used: its reader also requests the whole object on opening, and some megabytes of it arrive before the
request is cancelled. Files of that size, as memo files often are, would be transferred twice.
"""

from __future__ import annotations

import io
from collections.abc import Callable

#: The least bytes of a request: footers and headers are read in small steps.
WINDOW_BYTES = 128 << 10

#: Called as ``fetch(start, end)``; returns exactly the bytes of the range ``[start, end)``.
Fetch = Callable[[int, int], bytes]


class ObjectReader(io.RawIOBase):
    """An object of ``size_bytes`` as a seekable file that caches the last range. Not thread-safe."""

    def __init__(self, fetch: Fetch, size_bytes: int) -> None:
        super().__init__()
        self._fetch, self._size_bytes = fetch, size_bytes
        self._position = 0
        self._kept, self._kept_from = b"", 0

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
        if start < self._kept_from or end > self._kept_from + len(self._kept):
            first = min(start, max(0, self._size_bytes - WINDOW_BYTES))
            last = min(max(end, first + WINDOW_BYTES), self._size_bytes)
            self._kept, self._kept_from = self._fetch(first, last), first
        self._position = end
        return self._kept[start - self._kept_from : end - self._kept_from]
