"""How often every single event was trained by the weights at hand: counted as it happens, saved with the weights.

The counts travel with the checkpoint they belong to. Work that a crash threw away is thrown away here too, so the
ledger speaks of the surviving weights: "every event exactly once" is read off, not inferred.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from trainer.document_field import DocumentField
from trainer.errors import TornCheckpoint
from trainer.readers import Span

Array = np.ndarray[Any, np.dtype[Any]]

_MOST = 255


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """``events`` counted; the least and the most often one was trained; whether every one was trained ``expected`` times."""

    events: int
    least: int
    most: int
    expected: int

    @property
    def exact(self) -> bool:
        """Whether every event was trained exactly the expected number of times."""
        return self.events == 0 or (self.least == self.most == self.expected)

    def to_document(self) -> dict[str, Any]:
        """A JSON object."""
        return {**asdict(self), "exact": self.exact}


@dataclass(frozen=True, slots=True)
class SavedFragment:
    """A fragment's ``rows`` events: ``count`` is how often each was trained, None where that differs."""

    key: str
    rows: int
    count: int | None


@dataclass(frozen=True, slots=True)
class SavedCounts:
    """The counts of a checkpoint: a fragment of which events agree is one number, ``uneven`` holds the others.

    ``uneven``: uint8, one fragment after the other, in the order of ``fragments``.
    """

    fragments: tuple[SavedFragment, ...]
    uneven: Array

    def to_document(self) -> dict[str, Any]:
        """A JSON object without ``uneven``, the inverse of :meth:`read`."""
        return {"fragments": [asdict(fragment) for fragment in self.fragments]}

    @classmethod
    def read(cls, field: DocumentField, uneven: Array) -> SavedCounts:
        """The counts at ``field``. Raises :class:`TornCheckpoint` unless both parts fit each other."""
        fragments = tuple(_read_fragment(item) for item in field.at("fragments").items())
        if len({fragment.key for fragment in fragments}) != len(fragments):
            raise TornCheckpoint("the fragments of a ledger must be distinct", where=field.place)
        expected = sum(fragment.rows for fragment in fragments if fragment.count is None)
        if uneven.dtype != np.uint8 or uneven.shape != (expected,):
            raise TornCheckpoint("the ledger's counts must fit its fragments, got others", where=field.place,
                                 value=f"{uneven.dtype} {uneven.shape}", allowed=f"uint8 ({expected},)")  # fmt: skip
        return cls(fragments, uneven)


def _read_fragment(field: DocumentField) -> SavedFragment:
    count = field.at("count")
    known = None if count.value is None else count.count(most=_MOST)
    return SavedFragment(field.at("key").text(), field.at("rows").count(), known)


class Ledger:
    """One uint8 counter an event, by fragment key, in training order. ``rows`` maps fragment keys to events."""

    def __init__(self, rows: Mapping[str, int]) -> None:
        self._counts = {key: np.zeros(count, np.uint8) for key, count in rows.items()}

    def count(self, spans: Iterable[Span]) -> None:
        """Note that these events were just trained. Raises :class:`OverflowError` past 255 times."""
        for span in spans:
            counts, events = self._counts[span.key], span.events
            trained = counts[events]
            if len(trained) and trained.max() == _MOST:
                raise OverflowError(f"an event of fragment {span.key} was trained more than {_MOST} times")
            counts[events] = trained + np.uint8(1)

    def summary(self, keys: Iterable[str], *, expected: int) -> LedgerSummary:
        """The figures over the fragments ``keys``."""
        counts = [self._counts[key] for key in keys if len(self._counts[key])]
        least = min((int(part.min()) for part in counts), default=0)
        most = max((int(part.max()) for part in counts), default=0)
        return LedgerSummary(sum(map(len, counts)), least, most, expected)

    def counts(self) -> SavedCounts:
        """The counts as they are saved; fragments never trained are left out."""
        fragments: list[SavedFragment] = []
        uneven: list[Array] = [np.zeros(0, np.uint8)]
        for key, counts in self._counts.items():
            if not counts.any():
                continue
            even = counts.min() == counts.max()
            fragments.append(SavedFragment(key, len(counts), int(counts[0]) if even else None))
            if not even:
                uneven.append(counts)
        return SavedCounts(tuple(fragments), np.concatenate(uneven))

    def load(self, saved: SavedCounts) -> None:
        """Take over saved counts; fragments that were not saved keep zero.

        Raises :class:`TornCheckpoint` for counts of events that this data does not have.
        """
        at = 0
        for fragment in saved.fragments:
            counts = self._counts.get(fragment.key)
            if counts is None or len(counts) != fragment.rows:
                raise TornCheckpoint("the ledger counts events that this data does not have", value=fragment.key)
            if fragment.count is None:
                counts[:] = saved.uneven[at : at + fragment.rows]
                at += fragment.rows
            else:
                counts[:] = fragment.count
