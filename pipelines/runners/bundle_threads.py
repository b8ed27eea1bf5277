"""Steps that work on several elements of a bundle at once.

Our elements are few and large, and kernels release the GIL. Threads within one step therefore do on one machine what
Beam's in-process runner does with several workers, without starting servers for them to talk through.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue


class BundleThreads(beam.DoFn):
    """A step that calls :meth:`work` for each element on one of ``threads`` threads, and :meth:`emit` on the runner's own.

    With one thread elements are worked on as they come. Otherwise the outputs of a bundle follow at its end, in the order
    of its elements, in the global window; what ``work`` raises fails the bundle, and what has not begun then never begins.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._pending: list[Future[Any]] = []

    def work(self, element: Any) -> Any:
        """What is to be done, on any thread: no counters, no shared state."""
        raise AssertionError("a step says what its work is")

    def emit(self, result: Any) -> Iterable[Any]:
        """Outputs and counters for what ``work`` returned."""
        raise AssertionError("a step says what its outputs are")

    def start_bundle(self) -> None:
        """Start the threads."""
        self._pending = []
        self._pool = ThreadPoolExecutor(self._threads) if self._threads > 1 else None

    def process(self, element: Any) -> Iterable[Any]:
        """One element, at once or on a thread."""
        if self._pool is None:
            return self.emit(self.work(element))
        self._pending.append(self._pool.submit(self.work, element))
        return ()

    def finish_bundle(self) -> Iterable[Any]:
        """The outputs of elements that threads worked on."""
        if self._pool is None:
            return
        try:
            for future in self._pending:
                for output in self.emit(future.result()):
                    yield WindowedValue(output, GlobalWindow().max_timestamp(), [GlobalWindow()])
        finally:
            # After an error, or when this process is told to stop, what has not begun never begins.
            self._pool.shutdown(cancel_futures=True)
            self._pending, self._pool = [], None
