"""A limit on the bytes of messages that are in memory at once: a sender waits, in its stream, until there is space."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from transforms.errors import Busy


class ByteBudget:
    """``most_bytes`` for all messages together; any thread may use it."""

    def __init__(self, most_bytes: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_bytes, self._clock = most_bytes, clock
        self._used_bytes = 0
        self._freed = threading.Condition()

    @property
    def used_bytes(self) -> int:
        """The bytes in use."""
        return self._used_bytes

    @contextmanager
    def take(self, size_bytes: int, patience_secs: float) -> Iterator[None]:
        """Hold so many bytes. A message that is alone is always taken. Raises :class:`~transforms.errors.Busy` without space in time."""
        with self._freed:
            if not self._freed.wait_for(lambda: self._has_space(size_bytes), patience_secs):
                raise Busy("messages in memory must be below their limit", value=f"{self._used_bytes:,} bytes are in use",
                           allowed=f"{self._most_bytes:,} bytes", next_step="give the server more --message-mib, or use a smaller batch_rows")  # fmt: skip
            self._used_bytes += size_bytes
        try:
            yield
        finally:
            with self._freed:
                self._used_bytes -= size_bytes
                self._freed.notify_all()

    def _has_space(self, size_bytes: int) -> bool:
        return not self._used_bytes or self._used_bytes + size_bytes <= self._most_bytes
