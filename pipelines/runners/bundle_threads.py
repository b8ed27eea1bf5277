"""Steps that process several elements of a bundle at once.

The elements are few and large, and kernels release the GIL. Threads within one step replace the workers of Beam's
in-process runner, which communicate through servers.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue


class BundleThreads(beam.DoFn):
    """A step that calls :meth:`work` for each element on one of ``threads`` threads, and :meth:`emit` on the runner's.

    With one thread, elements are processed as they arrive. Otherwise the outputs of a bundle follow at its end, in the
    order of its elements, in the global window. An exception of ``work`` fails the bundle and cancels its waiting elements.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._pending: list[Future[Any]] = []

    def work(self, element: Any) -> Any:
        """Process an element on any thread, without counters or shared state."""
        raise AssertionError("a step must implement work")

    def emit(self, result: Any) -> Iterable[Any]:
        """Outputs and counters for what ``work`` returned."""
        raise AssertionError("a step must implement emit")

    def start_bundle(self) -> None:
        """Start the threads."""
        self._pending = []
        self._pool = ThreadPoolExecutor(self._threads) if self._threads > 1 else None

    def process(self, element: Any) -> Iterable[Any]:
        """Process an element, at once or on a thread."""
        if self._pool is None:
            return self.emit(self.work(element))
        self._pending.append(self._pool.submit(self.work, element))
        return ()

    def finish_bundle(self) -> Iterable[Any]:
        """The outputs of the threads."""
        if self._pool is None:
            return
        try:
            for future in self._pending:
                for output in self.emit(future.result()):
                    yield WindowedValue(output, GlobalWindow().max_timestamp(), [GlobalWindow()])
        finally:
            # After an error or a signal, waiting elements are not started.
            self._pool.shutdown(cancel_futures=True)
            self._pending, self._pool = [], None
