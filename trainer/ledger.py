"""How often every single event was trained by the weights at hand: counted as it happens, saved with the weights.

The counts travel with the checkpoint they belong to. Work that a crash threw away is thrown away here too, so the
ledger speaks of the surviving weights: "every event exactly once" is read off, not inferred.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

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


class Ledger:
    """One uint8 counter an event, by fragment key, in training order. ``rows`` maps fragment keys to events."""

    def __init__(self, rows: Mapping[str, int]) -> None:
        self._counts = {key: np.zeros(count, np.uint8) for key, count in rows.items()}

    def count(self, spans: Iterable[Span]) -> None:
        """Note that these events were just trained. Raises :class:`OverflowError` past 255 times."""
        for span in spans:
            counts = self._counts[span.key][span.start : span.stop]
            if len(counts) and counts.max() == _MOST:
                raise OverflowError(f"an event of fragment {span.key} was trained more than {_MOST} times")
            counts += 1

    def summary(self, keys: Iterable[str], *, expected: int) -> LedgerSummary:
        """The figures over the fragments ``keys``."""
        counts = [self._counts[key] for key in keys if len(self._counts[key])]
        least = min((int(part.min()) for part in counts), default=0)
        most = max((int(part.max()) for part in counts), default=0)
        return LedgerSummary(sum(map(len, counts)), least, most, expected)

    def to_document(self) -> tuple[dict[str, Any], Array]:
        """The counts as JSON and bytes; fragments never trained are left out.

        A fragment whose events agree is one number, the others are in the array, one after the other.
        """
        fragments: list[dict[str, Any]] = []
        uneven: list[Array] = [np.zeros(0, np.uint8)]
        for key, counts in self._counts.items():
            if not counts.any():
                continue
            even = counts.min() == counts.max()
            fragments.append({"key": key, "rows": len(counts), "count": int(counts[0]) if even else None})
            if not even:
                uneven.append(counts)
        return {"fragments": fragments}, np.concatenate(uneven)

    def load(self, document: Mapping[str, Any], uneven: Array) -> None:
        """Take over saved counts; fragments that were not saved keep zero. Raises :class:`TornCheckpoint` on a misfit."""
        at = 0
        fragments: Sequence[Mapping[str, Any]] = document["fragments"]
        for saved in fragments:
            counts = self._counts.get(saved["key"])
            if counts is None or len(counts) != saved["rows"]:
                raise TornCheckpoint("the ledger counts events that this data does not have", value=saved["key"])
            if saved["count"] is None:
                counts[:] = uneven[at : at + len(counts)]
                at += len(counts)
            else:
                counts[:] = saved["count"]
        if at != len(uneven):
            raise TornCheckpoint("the ledger's counts do not fit its fragments", value=len(uneven), allowed=str(at))
