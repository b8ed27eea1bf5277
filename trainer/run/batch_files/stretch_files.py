"""The batches of a stretch: from a file if there is one, else made from the fragments, and written beside.

A file is a copy: where one is damaged or cannot be written, training goes on from fragments with the same batches, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from types import TracebackType

from trainer.errors import DamagedBatches
from trainer.run.batch_files.batch_file import BatchFile, BatchFileWriter
from trainer.run.batch_files.stretch import Stretch
from trainer.run.reading.batches import Batch
from transforms.errors import HeadraceError, StorageError
from warehouse.files.batch_files.folder import BatchFolder

#: Makes the batches of a stretch from its fragments.
Assemble = Callable[[], Iterator[Batch]]


@dataclass(frozen=True, slots=True)
class BatchFileCounts:
    """What a process has done with files of batches.

    Attributes:
        read: the stretches that were read from files, also from one that turned out to be damaged.
        written: the files that were written.
        written_bytes: their bytes.
    """

    read: int = 0
    written: int = 0
    written_bytes: int = 0


class StretchFiles:
    """The files of stretches. Use it in a ``with`` statement: its end waits for files that are made durable.

    Args:
        tell: is given a line for each file that could not be read or written.
    """

    def __init__(self, folder: BatchFolder, tell: Callable[[str], None]) -> None:
        self._folder, self._tell = folder, tell
        self._publishing: dict[str, tuple[Future[None], BatchFileWriter]] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="batch-files")
        self._named: set[str] = set()
        self._writes = folder.most_bytes > 0
        self.counts = BatchFileCounts()

    def __enter__(self) -> StretchFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wait for files that are made durable; no further one is published."""
        for digest in list(self._publishing):
            self._settle(digest)
        self._pool.shutdown()

    def has(self, stretch: Stretch) -> bool:
        """Whether there is a file of a stretch, or one is being made durable."""
        path = self._folder.path(stretch.origin.table, stretch.digest)
        return stretch.digest in self._publishing or path.exists()

    def name(self, stretch: Stretch) -> str:
        """The digest of a stretch whose batches this process has read from a file or written into one; else empty."""
        return stretch.digest if stretch.digest in self._named else ""

    def batches(self, stretch: Stretch, assemble: Assemble, again: Assemble) -> Iterator[Batch]:
        """The batches of a stretch, in order, the same ones wherever they come from.

        Args:
            assemble: makes them from fragments, if there is no file.
            again: makes all of them where a file turns out to be damaged after some of them were read.
        """
        found = self.open(stretch)
        if found is None:
            yield from self._recorded(stretch, assemble())
            return
        done = 0
        try:
            for batch in self.read(found, stretch):
                yield batch
                done += 1
        except DamagedBatches as error:
            self.drop(stretch, error)
        else:
            return
        yield from islice(again(), done, None)

    def open(self, stretch: Stretch) -> BatchFile | None:
        """The file of a stretch; None if there is none that can be read."""
        self._settle(stretch.digest)
        try:
            path = self._folder.find(stretch.origin.table, stretch.digest)
            return None if path is None else BatchFile(path, stretch.digest)
        except DamagedBatches as error:
            self.drop(stretch, error)
        except StorageError as error:
            self._tell(
                f"a file of batches could not be read, and fragments are read in its place: {_in_one_line(error)}"
            )
        return None

    def read(self, file: BatchFile, stretch: Stretch, first: int = 0) -> Iterator[Batch]:
        """The batches of an open file from number ``first`` on. Raises :class:`DamagedBatches`."""
        self.counts = replace(self.counts, read=self.counts.read + 1)
        self._named.add(stretch.digest)
        with file:
            yield from file.batches(stretch.layout, first)

    def drop(self, stretch: Stretch, error: DamagedBatches) -> None:
        """Remove the damaged file of a stretch."""
        self._named.discard(stretch.digest)
        self._tell(f"a damaged file of batches is removed, and fragments are read in its place: {_in_one_line(error)}")
        try:
            self._folder.remove(self._folder.path(stretch.origin.table, stretch.digest))
        except StorageError as refused:
            self._tell(f"a damaged file of batches could not be removed: {_in_one_line(refused)}")

    def record(self, stretch: Stretch) -> Recording:
        """Begin to write the batches of a stretch."""
        return Recording(self, stretch, self._begin(stretch))

    def _recorded(self, stretch: Stretch, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The batches, which are written as they pass."""
        recording = self.record(stretch)
        try:
            for batch in batches:
                recording.add(batch)
                yield batch
            recording.finish()
        finally:
            recording.discard()

    def _begin(self, stretch: Stretch) -> BatchFileWriter | None:
        """A file for a stretch; None if none is written."""
        if not self._writes:
            return None
        try:
            file = self._folder.begin(stretch.origin.table, stretch.digest)
            return BatchFileWriter(file, stretch.origin, stretch.digest, stretch.layout)
        except StorageError as error:
            self.stop_writing(error)
            return None

    def publish(self, stretch: Stretch, writer: BatchFileWriter) -> None:
        """Make a file durable, in another thread."""
        self._publishing[stretch.digest] = self._pool.submit(writer.publish), writer
        self._named.add(stretch.digest)

    def discard(self, writer: BatchFileWriter) -> None:
        """Remove what was written of a file."""
        try:
            writer.discard()
        except StorageError as error:
            self._tell(f"an unfinished file of batches is left to headrace gc: {_in_one_line(error)}")

    def stop_writing(self, error: StorageError) -> None:
        """Write no further file: what one had no space for, others have none for either."""
        if self._writes:
            self._tell(f"no more batches are written into files: {_in_one_line(error)}")
        self._writes = False

    def _settle(self, digest: str) -> None:
        """Wait until a file of this process is durable."""
        if (publishing := self._publishing.pop(digest, None)) is None:
            return
        published, writer = publishing
        try:
            published.result()
        except StorageError as error:
            self._named.discard(digest)
            self.stop_writing(error)
        else:
            before = self.counts
            size = before.written_bytes + writer.size_bytes
            self.counts = replace(before, written=before.written + 1, written_bytes=size)


class Recording:
    """A file of a stretch while its batches pass; it is visible only if all have passed, and nothing is left of it else."""

    def __init__(self, files: StretchFiles, stretch: Stretch, writer: BatchFileWriter | None) -> None:
        self._files, self._stretch, self._writer = files, stretch, writer

    def add(self, batch: Batch) -> None:
        """Write the next batch; after one that could not be written no further one is."""
        try:
            if self._writer is not None:
                self._writer.add(batch)
        except StorageError as error:
            self.discard()
            self._files.stop_writing(error)

    def finish(self) -> None:
        """All batches have passed."""
        if self._writer is not None:
            self._files.publish(self._stretch, self._writer)
        self._writer = None

    def discard(self) -> None:
        """The stretch has ended early; after :meth:`finish` nothing is discarded."""
        if self._writer is not None:
            self._files.discard(self._writer)
        self._writer = None


def _in_one_line(error: HeadraceError) -> str:
    return f"{error.what}, got {error.value} ({error.where})"
