"""Files with a host's parts of the batches of natural epochs: read where there are any, else written as the parts are trained.

A file has the parts from the first batch of an epoch to its last, so an attempt goes on from any batch of a file that is there. A file that is being
written stays open between attempts: they follow each other, or begin again from an earlier batch, whose part is the same. Parts follow from the
number of hosts: each number has files of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainer.errors import DamagedBatches
from trainer.job.host.shared_batches import SharedBatches
from trainer.run.batch_files.batch_file import BatchFile
from trainer.run.batch_files.stretch import Stretch, Stretches
from trainer.run.batch_files.stretch_files import Recording, StretchFiles
from trainer.run.reading.batches import Batch
from trainer.run.reading.stream import FragmentRef
from transforms.errors import StorageError
from warehouse.solution.solution import ReadSolution


@dataclass(slots=True)
class _Written:
    """A file that is being written, and the number of the part that it needs next."""

    recording: Recording
    next: int = 0


class EpochFiles:
    """The files of a host's epochs, of one read solution and one number of hosts; :meth:`close` removes those that are not whole."""

    def __init__(self, files: StretchFiles, stretches: Stretches, solution: ReadSolution) -> None:
        self._files, self._stretches = files, stretches
        self._written: dict[str, _Written] = {}
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
        return EpochFile(self._files, stretch, content.places, first, self._written)

    def close(self) -> None:
        """No attempt follows: remove files that are not whole, and wait for those that are made durable."""
        for one in self._written.values():
            one.recording.discard()
        self._written.clear()
        self._files.close()


class EpochFile:
    """A host's parts of the batches of one epoch.

    Attributes:
        places: of each fragment of the epoch, a place in the stream.
    """

    def __init__(
        self,
        files: StretchFiles,
        stretch: Stretch,
        places: dict[str, int],
        first: int,
        written: dict[str, _Written],
    ) -> None:
        self._files, self._stretch, self.places = files, stretch, places
        self._written, self._number = written, first
        found = files.open(stretch)
        self._found: Iterator[Batch] | None = None if found is None else self._read(found, first)

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
        """Write the next part, unless it was read or is written already."""
        number, self._number = self._number, self._number + 1
        if number == 0 and self._stretch.digest not in self._written:
            self._written[self._stretch.digest] = _Written(self._files.record(self._stretch))
        written = self._written.get(self._stretch.digest)
        if written is not None and written.next == number:
            written.recording.add(part)
            written.next += 1

    def finish(self) -> None:
        """All parts of the epoch are trained; a file that has all of them is published."""
        if (written := self._written.pop(self._stretch.digest, None)) is not None:
            if written.next == self._number:
                written.recording.finish()
            written.recording.discard()

    def close(self) -> None:
        """The attempt is over."""
        if self._found is not None:
            self._found.close()  # type: ignore[attr-defined]
