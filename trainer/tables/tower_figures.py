"""What hosts that exchange by towers have sent, so that their user sees what towers are worth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

_NAME = "tower_"


@dataclass(frozen=True, slots=True)
class TowerFigures:
    """What one host has sent for lookups and updates since its tables were made, or hosts together.

    Attributes:
        between_bytes, between_messages: between machines; empty messages are not counted.
        inside_bytes: between hosts of one machine.
        as_rows, as_bags: tables of trained batches that went to their towers as rows, and as bags.
    """

    between_bytes: int
    between_messages: int
    inside_bytes: int
    as_rows: int
    as_bags: int

    def __add__(self, other: TowerFigures) -> TowerFigures:
        """The figures of both hosts together."""
        return TowerFigures(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def to_numbers(self) -> dict[str, float]:
        """The figures of a host's progress, by name."""
        return {f"{_NAME}{name}": float(value) for name, value in asdict(self).items()}

    @classmethod
    def of_numbers(cls, numbers: Mapping[str, float]) -> TowerFigures | None:
        """The inverse of :meth:`to_numbers`; None without these figures. Others are ignored."""
        found = [numbers.get(f"{_NAME}{one.name}", math.nan) for one in fields(cls)]
        return cls(*map(int, found)) if all(0 <= one < math.inf for one in found) else None
