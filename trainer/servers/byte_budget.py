"""A limit on the bytes of messages that are in memory at once: a sender waits, in its stream, until there is space."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from transforms.errors import Busy


class ByteBudget:
    """``most_bytes`` for all messages together; any thread may use it."""

    def __init__(self, most_bytes: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_bytes, self._clock = most_bytes, clock
        self._used_bytes = self._waiting = 0
        self._lock = threading.Lock()
        self._freed = threading.Condition(self._lock)

    @property
    def used_bytes(self) -> int:
        """The bytes in use."""
        return self._used_bytes

    def take(self, size_bytes: int, patience_secs: float) -> AbstractContextManager[None]:
        """Hold so many bytes in a block. A message that is alone is always taken. It raises :class:`~transforms.errors.Busy` without space in time."""
        return _Taken(self, size_bytes, patience_secs)

    def hold(self, size_bytes: int, patience_secs: float) -> None:
        """Hold so many bytes until they are given to :meth:`free`. Raises as :meth:`take`."""
        with self._lock:
            if self._used_bytes and self._used_bytes + size_bytes > self._most_bytes:
                self._wait_for_space(size_bytes, patience_secs)
            self._used_bytes += size_bytes

    def _wait_for_space(self, size_bytes: int, patience_secs: float) -> None:
        self._waiting += 1
        try:
            has_space = self._freed.wait_for(lambda: self._has_space(size_bytes), patience_secs)
        finally:
            self._waiting -= 1
        if not has_space:
            raise Busy("messages in memory must be below their limit", value=f"{self._used_bytes:,} bytes are in use",
                       allowed=f"{self._most_bytes:,} bytes", next_step="give the server more --message-mib, or use a smaller batch_rows")  # fmt: skip

    def free(self, size_bytes: int) -> None:
        """Hold so many bytes no longer."""
        with self._lock:
            self._used_bytes -= size_bytes
            if self._waiting:
                self._freed.notify_all()

    def _has_space(self, size_bytes: int) -> bool:
        return not self._used_bytes or self._used_bytes + size_bytes <= self._most_bytes


class _Taken:
    """Bytes that are held in a block. A generator would take as long as a short message."""

    def __init__(self, budget: ByteBudget, size_bytes: int, patience_secs: float) -> None:
        self._budget, self._size_bytes, self._patience_secs = budget, size_bytes, patience_secs

    def __enter__(self) -> None:
        self._budget.hold(self._size_bytes, self._patience_secs)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._budget.free(self._size_bytes)
