"""What hot rows have done for a run, so that its user sees whether they were worth their memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

_NAME = "hot_"


@dataclass(frozen=True, slots=True)
class HotFigures:
    """Figures of hot rows on one process since its engine was made, or of engines one after the other.

    Attributes:
        rows: the most rows that may be hot at once.
        memory_bytes: theirs, with their slots.
        lookups: in the batches that were trained.
        hits: those of hot rows.
        rows_in, rows_out: rows that became hot, and changed ones that were written back to the servers.
        moved_bytes: of both, values and numbers of rows.
        wire_bytes: to and from servers, for lookups, updates and moves, in both directions.
        spared_bytes: what lookups and updates of hot rows would have added to them.
    """

    rows: int
    memory_bytes: int
    lookups: int
    hits: int
    rows_in: int
    rows_out: int
    moved_bytes: int
    wire_bytes: int
    spared_bytes: int

    def __add__(self, other: HotFigures) -> HotFigures:
        """The figures of two engines, one after the other."""
        sums = [getattr(self, one.name) + getattr(other, one.name) for one in fields(self)[2:]]
        return HotFigures(max(self.rows, other.rows), max(self.memory_bytes, other.memory_bytes), *sums)

    def to_numbers(self) -> dict[str, float]:
        """The figures of a role's progress, by name."""
        return {f"{_NAME}{name}": float(value) for name, value in asdict(self).items()}

    @classmethod
    def of_numbers(cls, numbers: Mapping[str, float]) -> HotFigures | None:
        """The inverse of :meth:`to_numbers`; None without these figures. Others are ignored."""
        found = [numbers.get(f"{_NAME}{one.name}", math.nan) for one in fields(cls)]
        return cls(*map(int, found)) if all(0 <= one < math.inf for one in found) else None

    @property
    def hit_share(self) -> float:
        """The share of lookups of hot rows; 0 without lookups."""
        return self.hits / max(self.lookups, 1)

    def to_document(self) -> dict[str, float]:
        """A JSON object: the figures, and what follows from them."""
        return {**asdict(self), "hit_share": self.hit_share, "wire_ratio": self.wire_ratio}

    @property
    def wire_ratio(self) -> float:
        """The bytes on the wire by those that all rows on the servers would have taken, about; 1 without any."""
        all_bytes = self.wire_bytes - self.moved_bytes + self.spared_bytes
        return self.wire_bytes / all_bytes if all_bytes > 0 else 1.0
