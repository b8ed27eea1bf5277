"""Write a checkpoint in a thread while training goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType


class BackgroundWriter:
    """Writes one checkpoint at a time. As a context manager it ends when its last one is written.

    ``on_written`` is called with the path of each written checkpoint, in the thread that uses the writer.
    """

    def __init__(self, on_written: Callable[[Path], None]) -> None:
        self._on_written = on_written
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint-writer")
        self._writing: Future[Path] | None = None

    def begin(self, write: Callable[[], Path]) -> None:
        """Begin to write; an earlier checkpoint is waited for. Raises its error."""
        self.wait()
        self._writing = self._pool.submit(write)

    def look(self) -> None:
        """Report a checkpoint that was written since. Raises its error."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Wait for the checkpoint that is being written. Raises its error."""
        writing, self._writing = self._writing, None
        if writing is not None:
            self._on_written(writing.result())

    def __enter__(self) -> BackgroundWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self._pool.shutdown()  # a checkpoint of an earlier epoch is good, whatever went wrong after it
