"""The batches of epochs, one epoch after the other: from files where there are any, else from fragments that a thread reads ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from types import TracebackType

from trainer.model.inputs import InputLayout
from trainer.run.batch_files.stretch import Stretches
from trainer.run.batch_files.stretch_files import Assemble, StretchFiles
from trainer.run.reading.batches import Batch, make_batches
from trainer.run.reading.columns import DecodedFragment
from trainer.run.reading.stream import FragmentRef

Refs = Sequence[FragmentRef]
#: Reads fragments in order, a few of them ahead; closing it ends the thread.
OpenStream = Callable[[Refs], Iterator[DecodedFragment]]
#: Leaves the events that an epoch trains.
Select = Callable[[Iterator[DecodedFragment]], Iterable[DecodedFragment]]


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Files of batches, and the stretches of a run that they are of."""

    files: StretchFiles
    stretches: Stretches

    def batches(self, refs: Refs, assemble: Assemble, again: Assemble) -> Iterator[Batch]:
        """The batches of all labelled events of some fragments: see :meth:`StretchFiles.batches`."""
        return self.files.batches(self.stretches.of(refs), assemble, again)

    def name(self, refs: Refs) -> str:
        """The digest of their batches where they were read from a file or written into one; else empty."""
        return self.files.name(self.stretches.of(refs))


class EpochBatches:
    """The batches of some epochs, which are asked for in order. Use it in a ``with`` statement.

    A stream of fragments goes on over epochs, so that the next one is read ahead; it ends before an epoch whose batches are in a file, or
    will be once an earlier one of these epochs has passed.

    Args:
        epochs: the fragments of each epoch.
        files: None: batches are made from fragments.
    """

    def __init__(
        self,
        epochs: Sequence[Refs],
        open_stream: OpenStream,
        layout: InputLayout,
        batch_rows: int,
        files: RunFiles | None,
    ) -> None:
        self._epochs, self._open_stream, self._files = epochs, open_stream, files
        self._layout, self._batch_rows = layout, batch_rows
        self._stream: Iterator[DecodedFragment] = iter(())
        self._next = self._stop = 0

    def __enter__(self) -> EpochBatches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def of(self, epoch: int, select: Select, *, is_whole: bool) -> Iterator[Batch]:
        """The batches of an epoch, by its number among these.

        Args:
            select: leaves the events to train.
            is_whole: whether these are all labelled events of its fragments; others have no file.
        """
        refs = self._epochs[epoch]

        def assemble() -> Iterator[Batch]:
            return self._cut(select(self._decoded(epoch)))

        def again() -> Iterator[Batch]:
            with closing(self._open_stream(refs)) as stream:  # type: ignore[type-var]
                yield from self._cut(stream)

        if self._files is None or not is_whole or not refs:
            return assemble()
        return self._files.batches(refs, assemble, again)

    def _cut(self, decoded: Iterable[DecodedFragment]) -> Iterator[Batch]:
        return make_batches(decoded, self._layout, batch_rows=self._batch_rows)

    def _decoded(self, epoch: int) -> Iterator[DecodedFragment]:
        """The fragments of an epoch, from the open stream if it is there."""
        if epoch != self._next or epoch >= self._stop:
            self._close()
            self._next, self._stop = epoch, self._stop_after(epoch)
            self._stream = self._open_stream([ref for refs in self._epochs[epoch : self._stop] for ref in refs])
        self._next += 1
        return islice(self._stream, len(self._epochs[epoch]))

    def _stop_after(self, epoch: int) -> int:
        """The first epoch after this one whose batches are not made from fragments."""
        if self._files is None:
            return len(self._epochs)
        files, seen = self._files, set[str]()
        for stop in range(epoch, len(self._epochs)):
            stretch = files.stretches.of(self._epochs[stop])
            if stretch.digest in seen or (stop > epoch and files.files.has(stretch)):
                return stop
            seen.add(stretch.digest)
        return len(self._epochs)

    def _close(self) -> None:
        if hasattr(self._stream, "close"):
            self._stream.close()
        self._stream, self._next, self._stop = iter(()), 0, 0
