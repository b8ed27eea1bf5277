"""Which partitions make up which epoch, and where in the data a checkpoint stands. Pure.

A run trains *segments* in order. The first segment is what the run started with; each later one is what was appended
to the table since. Within a segment all passes run before the next segment begins, so data that arrives later never
changes the order of what was already trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainer.document_field import DocumentField

Segments = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Epoch:
    """Partitions trained between two checkpoints. ``number`` counts from 0 over the run, ``pass_number`` over passes."""

    number: int
    pass_number: int
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DataPosition:
    """Where a checkpoint stands: ``epochs_done`` epochs of the plan, over data whose content has this digest."""

    epochs_done: int
    data_digest: str

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :meth:`read`."""
        return {"epochs_done": self.epochs_done, "data_digest": self.data_digest}

    @classmethod
    def read(cls, field: DocumentField) -> DataPosition:
        """The position at ``field``."""
        return cls(field.at("epochs_done").count(), field.at("data_digest").text())


def plan_epochs(segments: Sequence[Sequence[str]], *, partitions_per_epoch: int, passes: int) -> tuple[Epoch, ...]:
    """All epochs of a run, in order: each segment ``passes`` times, in groups; the last group of a pass may be short."""
    epochs: list[Epoch] = []
    for segment in segments:
        for pass_number in range(passes):
            for start in range(0, len(segment), partitions_per_epoch):
                group = tuple(segment[start : start + partitions_per_epoch])
                epochs.append(Epoch(len(epochs), pass_number, group))
    return tuple(epochs)


def extend_segments(segments: Segments, keys: Sequence[str]) -> Segments | None:
    """``segments`` with what ``keys`` (in time order) has beyond them as one more segment.

    None if ``keys`` does not begin with exactly the partitions of ``segments``: something was removed, or came in between.
    """
    known = [key for segment in segments for key in segment]
    if list(keys[: len(known)]) != known:
        return None
    added = tuple(keys[len(known) :])
    return (*segments, added) if added else segments
