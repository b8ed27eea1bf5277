"""Copies the metric history of a run to other tools while it is trained, in a thread: a slow server delays no step."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from headrace.tracking.history_copies import HistoryCopies


class RunTracker:
    """Copies after each :meth:`look`, and when it is left; then :meth:`check` says whether all points are there."""

    def __init__(self, copies: HistoryCopies) -> None:
        self._copies = copies
        self._changed = threading.Condition()
        self._is_due = self._is_ending = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="history-copies")

    def look(self) -> None:
        """There may be a newer commit."""
        with self._changed:
            self._is_due = True
            self._changed.notify_all()

    def check(self) -> None:
        """Raise the error for which a copy lacks points; after the block."""
        if self._failure is not None:
            raise self._failure
        self._copies.check()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_due or self._is_ending)
                    ends, self._is_due = self._is_ending, False
                self._copies.copy()
                if ends:
                    return
        except BaseException as error:  # it is raised by check
            self._failure = error
        finally:
            self._copies.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Copy what is left, and wait for it."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        self._thread.join()
