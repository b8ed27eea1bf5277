"""Files with a host's parts of the batches of natural epochs: read where there are any, else written as the parts are trained.

A file has the parts from the first batch of an epoch to its last, so an attempt goes on from any batch of a file that is there, and writes one
only from the first batch on. Parts follow from the number of hosts: each number has files of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainer.errors import DamagedBatches
from trainer.job.host.shared_batches import SharedBatches
from trainer.run.batch_files.batch_file import BatchFile
from trainer.run.batch_files.stretch import Stretch, Stretches
from trainer.run.batch_files.stretch_files import Recording, StretchFiles
from trainer.run.reading.batches import Batch
from trainer.run.reading.stream import FragmentRef
from transforms.errors import StorageError
from warehouse.solution.solution import ReadSolution


class EpochFiles:
    """The files of a host's epochs, of one read solution and one number of hosts."""

    def __init__(self, files: StretchFiles, stretches: Stretches, solution: ReadSolution) -> None:
        self._files, self._stretches = files, stretches
        self._refs = {
            ref.key: ref
            for part in solution.partitions
            for ref in (FragmentRef(part.key, number, one) for number, one in enumerate(part.fragments))
        }

    def of(self, shared: SharedBatches, first: int) -> EpochFile | None:
        """The file of an epoch whose next batch is number ``first``; None for an epoch without events."""
        content = shared.content()
        if content is None:
            return None
        stretch = self._stretches.of([self._refs[key] for key in content.places], content.cut)
        return EpochFile(self._files, stretch, content.places, first)


class EpochFile:
    """A host's parts of the batches of one epoch.

    Attributes:
        places: of each fragment of the epoch, a place in the stream.
    """

    def __init__(self, files: StretchFiles, stretch: Stretch, places: dict[str, int], first: int) -> None:
        self._files, self._stretch, self.places = files, stretch, places
        found = files.open(stretch)
        self._found: Iterator[Batch] | None = None if found is None else self._read(found, first)
        self._writes = found is None and first == 0
        self._recording: Recording | None = None

    @property
    def is_there(self) -> bool:
        """Whether the parts are read from a file."""
        return self._found is not None

    @property
    def name(self) -> str:
        """The digest of the file that is read or was written; empty without one."""
        return self._files.name(self._stretch)

    def _read(self, file: BatchFile, first: int) -> Iterator[Batch]:
        try:
            yield from self._files.read(file, self._stretch, first)
        except DamagedBatches as error:
            self._files.drop(self._stretch, error)
            raise StorageError("a file of batches must stay as it was written", where=error.where, value=error.value,
                               next_step="the next attempt reads fragments") from error  # fmt: skip

    def take(self) -> Batch:
        """The next part, of a file that :attr:`is_there`. Raises :class:`StorageError` for a damaged one, which is removed."""
        assert self._found is not None
        found = next(self._found, None)
        if found is None:
            raise StorageError("a file of batches must have all of an epoch", where=self._stretch.digest)
        return found

    def add(self, part: Batch) -> None:
        """Write the next part, unless it was read."""
        if self._writes:
            if self._recording is None:
                self._recording = self._files.record(self._stretch)
            self._recording.add(part)

    def finish(self) -> None:
        """All parts of the epoch are trained."""
        if self._recording is not None:
            self._recording.finish()

    def close(self) -> None:
        """The attempt is over; a file that is not finished is removed."""
        if self._recording is not None:
            self._recording.discard()
        if self._found is not None:
            self._found.close()  # type: ignore[attr-defined]
