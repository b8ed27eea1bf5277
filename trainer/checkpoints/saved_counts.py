"""The saved counters of trained events, and the sum of those of several hosts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from trainer.errors import TornCheckpoint
from trainer.options.document_field import OPEN, DocumentField
from transforms.arrays import Array
from transforms.derived_documents import Later, document_of, whole

#: The most times that an event is trained.
MOST_COUNT = 255
_MOST_ROWS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SavedFragment:
    """A fragment's ``rows`` events.

    Attributes:
        key: its place.
        rows: its stored events.
        count: the common count of its events; None if they differ.
        labels: :func:`label_sum` over its trained events; None if unknown.
    """

    key: str
    rows: Annotated[int, whole(most=_MOST_ROWS)]
    count: Annotated[int, whole(most=MOST_COUNT)] | None
    labels: Later[Annotated[int, whole(most=2**64 - 1)] | None] = None


@dataclass(frozen=True, slots=True)
class SavedCounts:
    """The counts of a checkpoint: one number for a fragment with equal counts, else an array.

    ``uneven``: uint8, the counts of the other fragments, concatenated in the order of ``fragments``.
    """

    fragments: tuple[SavedFragment, ...]
    uneven: Array

    @classmethod
    def of(cls, trained: Iterable[tuple[str, Array, int | None]]) -> SavedCounts:
        """The counts of fragments: for each its key, the counts of its events (uint8), and its label sum."""
        fragments: list[SavedFragment] = []
        uneven: list[Array] = [np.zeros(0, np.uint8)]
        for key, counts, labels in trained:
            even = not len(counts) or counts.min() == counts.max()
            common = int(counts[0]) if len(counts) and even else None
            fragments.append(SavedFragment(key, len(counts), common, labels))
            if not even:
                uneven.append(counts)
        return cls(tuple(fragments), np.concatenate(uneven))

    def counts(self) -> Iterator[tuple[SavedFragment, Array]]:
        """The fragments with the counts of their events, uint8."""
        at = 0
        for fragment in self.fragments:
            stop = at + (fragment.rows if fragment.count is None else 0)
            uneven = self.uneven[at:stop]
            yield (
                fragment,
                uneven if fragment.count is None else np.broadcast_to(np.uint8(fragment.count), fragment.rows),
            )
            at = stop

    def to_document(self) -> dict[str, Any]:
        """A JSON object without ``uneven``, the inverse of :meth:`read`."""
        return {"fragments": [document_of(fragment) for fragment in self.fragments]}

    @classmethod
    def read(cls, field: DocumentField, uneven: Array) -> SavedCounts:
        """The counts at ``field``. Raises :class:`TornCheckpoint` unless both parts match."""
        fragments = tuple(OPEN.read(SavedFragment, item) for item in field.at("fragments").items())
        if len({fragment.key for fragment in fragments}) != len(fragments):
            raise TornCheckpoint("the fragments of a ledger must be distinct", where=field.place)
        expected = sum(fragment.rows for fragment in fragments if fragment.count is None)
        if uneven.dtype != np.uint8 or uneven.shape != (expected,):
            raise TornCheckpoint("the ledger's counts must fit its fragments, got others", where=field.place,
                                 value=f"{uneven.dtype} {uneven.shape}", allowed=f"uint8 ({expected},)")  # fmt: skip
        return cls(fragments, uneven)


def summed_counts(of_hosts: Sequence[SavedCounts], order: Callable[[str], Any], where: str) -> SavedCounts:
    """The sum of the counts of several hosts, each of which counts the events that it trained.

    Label sums are added: a host adds an event's label when the job trains it for the first time. ``order``: the order of fragments,
    by their keys. Raises :class:`TornCheckpoint` for counts that do not fit each other.
    """
    if len(of_hosts) == 1:
        return of_hosts[0]
    summed: dict[str, tuple[Array, int | None]] = {}
    for saved in of_hosts:
        for fragment, own in saved.counts():
            before, known = summed.get(fragment.key, (np.zeros(len(own), np.uint8), 0))
            if before.shape != own.shape:
                raise TornCheckpoint("the ledgers of all hosts must count the same events, got others", where=where,
                                     value=f"{fragment.key}: {len(own)} events", allowed=f"{len(before)}")  # fmt: skip
            total = before + own
            if (total < own).any():
                raise TornCheckpoint(
                    f"an event must be trained at most {MOST_COUNT} times", where=where, value=fragment.key
                )
            labels = None if known is None or fragment.labels is None else (known + fragment.labels) % 2**64
            summed[fragment.key] = total, labels
    return SavedCounts.of((key, *summed[key]) for key in sorted(summed, key=order))
